"""Real saves of real frameworks, whole and damaged in every way that was seen in the wild."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from kit.checkpoint_verdicts import Fresh, expect_torn, look
from rtj_sidecar.checkpoints.inspect import inspect_path
from rtj_sidecar.checkpoints.types import Reason, Status


def test_every_real_save_is_verified_with_its_step(originals: Path) -> None:
    expected = {
        "torch": {"ckpt_5.pt": 5, "ckpt_10.pt": 10, "ckpt_999.pt": 999, "ckpt_1000.pt": 1000},
        "reused": {"ckpt.pt": 40},
        "lightning": {"epoch=1-step=20.ckpt": 20},
        "safetensors": {"step_1": 1, "step_2": 2},
        "sharded": {"step_3": 3},
        "dcp": {"step-1": 1, "step-2": 2},
        "dcp-reused": {"state": 1},
        "hf": {"checkpoint-2": 2, "checkpoint-4": 4},
        "hf-ddp": {"checkpoint-2": 2, "checkpoint-4": 4},
    }
    for name, steps in expected.items():
        found = look(originals / name)
        assert {key: save.step for key, (save, _) in found.items()} == steps
        for save, verdict in found.values():
            assert verdict.status is Status.VERIFIED, (name, verdict.message)
            assert verdict.candidate
            assert save.full_state is (name not in ("safetensors", "sharded"))


def test_order_is_by_integer_not_by_text(originals: Path) -> None:
    assert [save.step for save, _ in inspect_path(originals / "torch")] == [5, 10, 999, 1000]


def test_padding_widths_are_compared_as_integers(fresh: Fresh) -> None:
    root = fresh("safetensors")
    (root / "step_1").rename(root / "step_0900000")
    (root / "step_2").rename(root / "step_1000000")
    assert [save.step for save, _ in inspect_path(root)] == [900000, 1000000]


def test_facts_are_read_from_the_content(originals: Path) -> None:
    save = look(originals / "torch")["ckpt_10.pt"][0]
    assert (save.step, save.epoch, save.loss) == (10, 1, pytest.approx(1 / 11))
    assert save.facts["has"]["rng"] is True
    scalar = look(originals / "odd")["numpy.pt"][0]
    assert (scalar.step, scalar.loss) == (12, 0.25)
    hf = look(originals / "hf")["checkpoint-4"][0]
    state = json.loads((originals / "hf/checkpoint-4/trainer_state.json").read_text())
    assert hf.loss == state["log_history"][-2]["loss"] or hf.loss == pytest.approx(
        [line["loss"] for line in state["log_history"] if "loss" in line][-1]
    )


def test_one_save_may_be_inspected_by_its_own_path(originals: Path) -> None:
    assert list(look(originals / "hf" / "checkpoint-4")) == ["checkpoint-4"]
    assert list(look(originals / "torch" / "ckpt_10.pt")) == ["ckpt_10.pt"]


def test_a_payload_is_read_and_never_runs(fresh: Fresh, originals: Path) -> None:
    found = look(fresh("odd"))
    assert found["payload_3.pt"][0].step == 3
    assert found["payload_3.pt"][1].status is Status.VERIFIED
    assert not list(originals.parent.glob("*/EXECUTED"))
    assert not (originals.with_suffix(".tmp") / "EXECUTED").exists()


def test_weights_only_without_a_step_is_an_output_not_a_save(fresh: Fresh) -> None:
    assert "weights.pt" not in look(fresh("odd"))


def test_legacy_torch_files_prove_their_exact_size(fresh: Fresh) -> None:
    root = fresh("odd")
    (root / "nocrc.pt").unlink()
    path = root / "legacy_7.pt"
    save, verdict = look(root)["legacy_7.pt"]
    assert (save.step, verdict.status, verdict.candidate) == (40, Status.VERIFIED, True)
    whole = path.read_bytes()
    for cut in (0, 15, 200, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        expect_torn(root, "legacy_7.pt", Reason.TRUNCATED, "legacy_7.pt")
    path.write_bytes(whole + b"another object of the same file")
    verdict = look(root)["legacy_7.pt"][1]
    assert (verdict.status, verdict.gates[1].passed) == (Status.SETTLED, None)


def test_a_legacy_file_whose_lengths_lie_is_torn(fresh: Fresh) -> None:
    root = fresh("odd")
    path = root / "legacy_7.pt"
    whole, length = path.read_bytes(), (64 * 128).to_bytes(8, "little")
    assert length in whole
    path.write_bytes(whole.replace(length, (1 << 62).to_bytes(8, "little")))
    expect_torn(root, "legacy_7.pt", Reason.MALFORMED, "elements")


def test_a_file_without_crcs_is_said_to_be_unchecked(originals: Path, tmp_path: Path) -> None:
    shutil.copy2(originals / "odd" / "nocrc.pt", tmp_path)
    verdict = look(tmp_path)["nocrc.pt"][1]
    assert verdict.status is Status.VERIFIED
    with open(tmp_path / "nocrc.pt", "r+b") as file:
        file.truncate(os.path.getsize(tmp_path / "nocrc.pt") - 1)
    expect_torn(tmp_path, "nocrc.pt", Reason.TRUNCATED, "nocrc.pt")


def test_truncation_at_every_eighth_and_by_one_byte(fresh: Fresh) -> None:
    root = fresh("torch")
    whole = (root / "ckpt_10.pt").read_bytes()
    cuts = [0, 1, 21, 64, *(len(whole) * part // 8 for part in range(1, 8)), len(whole) - 1]
    for cut in cuts:
        (root / "ckpt_10.pt").write_bytes(whole[:cut])
        expect_torn(root, "ckpt_10.pt", Reason.TRUNCATED, "ckpt_10.pt")
        assert look(root)["ckpt_1000.pt"][1].status is Status.VERIFIED


def test_a_zeroed_block_and_a_flipped_byte_are_found(fresh: Fresh) -> None:
    root = fresh("torch")
    whole = (root / "ckpt_10.pt").read_bytes()
    hole = whole[:20000] + bytes(4096) + whole[24096:]
    (root / "ckpt_10.pt").write_bytes(hole)
    expect_torn(root, "ckpt_10.pt", Reason.CHECKSUM_MISMATCH, "ckpt_10.pt", "ckpt_10/data/0")
    flipped = bytearray(whole)
    flipped[60000] ^= 1
    (root / "ckpt_10.pt").write_bytes(flipped)
    expect_torn(root, "ckpt_10.pt", Reason.CHECKSUM_MISMATCH, "CRC-32")


def test_a_file_of_zeros_and_an_empty_one_are_torn(fresh: Fresh) -> None:
    root = fresh("torch")
    size = os.path.getsize(root / "ckpt_1000.pt")
    (root / "ckpt_1000.pt").write_bytes(bytes(size))
    (root / "ckpt_999.pt").write_bytes(b"")
    expect_torn(root, "ckpt_1000.pt", Reason.TRUNCATED)
    expect_torn(root, "ckpt_999.pt", Reason.TRUNCATED)


def test_last_and_best_ride_along_and_do_not_make_another_save(fresh: Fresh) -> None:
    root = fresh("torch")
    before = look(root)["ckpt_1000.pt"][0]
    shutil.copy2(root / "ckpt_1000.pt", root / "last.pt")
    shutil.copy2(root / "ckpt_10.pt", root / "best.pt")
    found = look(root)
    assert set(found) == {"ckpt_5.pt", "ckpt_10.pt", "ckpt_999.pt", "ckpt_1000.pt"}
    assert [entry.path for entry in found["ckpt_1000.pt"][0].aliases] == ["last.pt"]
    assert [entry.path for entry in found["ckpt_10.pt"][0].aliases] == ["best.pt"]
    assert found["ckpt_1000.pt"][0].identity == before.identity


def test_a_torn_last_is_its_own_torn_save(fresh: Fresh) -> None:
    root = fresh("lightning")
    (root / "last.ckpt").write_bytes((root / "last.ckpt").read_bytes()[:-100])
    expect_torn(root, "last.ckpt", Reason.TRUNCATED)
    assert look(root)["epoch=1-step=20.ckpt"][1].status is Status.VERIFIED


def test_files_of_one_step_are_one_save_and_a_missing_one_is_seen(fresh: Fresh) -> None:
    root = fresh("torch")
    for step in (5, 10, 999, 1000):
        os.rename(root / f"ckpt_{step}.pt", root / f"model_{step}.pt")
        shutil.copy2(root / f"model_{step}.pt", root / f"optim_{step}.pt")
    found = look(root)
    assert len(found) == 4
    assert [entry.path for entry in found["model_10.pt"][0].files] == [
        "model_10.pt",
        "optim_10.pt",
    ]
    (root / "optim_1000.pt").unlink()
    expect_torn(root, "model_1000.pt", Reason.FILES_MISSING, "optim_#.pt")


def test_the_user_may_stop_writing_a_file(fresh: Fresh) -> None:
    """One save pays for the change, the next is believed."""
    root = fresh("torch")
    shutil.copy2(root / "ckpt_5.pt", root / "ema_5.pt")
    shutil.copy2(root / "ckpt_10.pt", root / "ema_10.pt")
    found = look(root)
    assert found["ckpt_999.pt"][1].status is Status.TORN
    assert found["ckpt_1000.pt"][1].status is Status.VERIFIED


def test_per_rank_files_must_be_there_for_every_rank(fresh: Fresh) -> None:
    root = fresh("torch")
    for rank in range(2):
        shutil.copy2(root / "ckpt_10.pt", root / f"state_20_rank{rank}.pt")
    assert look(root, world_size=2)["state_20_rank0.pt"][1].status is Status.VERIFIED
    expect_torn(root, "state_20_rank0.pt", Reason.FILES_MISSING, "rank 2", world_size=3)


_SAVER = """
import sys, torch
state = {"step": 7, "model": [torch.zeros(1 << 22) for _ in range(8)], "optimizer": {}}
print("ready", flush=True)
sys.stdin.readline()
while True:
    torch.save(state, sys.argv[1])
"""


def test_a_torch_save_killed_in_the_middle_is_torn(trainer: Path, tmp_path: Path) -> None:
    """It overwrites one file without a pause, so that wherever the signal lands it is in a save."""
    target = tmp_path / "ckpt_7.pt"
    process = subprocess.Popen(
        [trainer, "-c", _SAVER, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    process.stdin.write(b"\n")
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not (target.exists() and target.stat().st_size > 1 << 20):
        assert time.monotonic() < deadline, "the save never began"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    expect_torn(tmp_path, "ckpt_7.pt", Reason.TRUNCATED, "ckpt_7.pt")
