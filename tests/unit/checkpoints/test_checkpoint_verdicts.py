"""Real saves of real frameworks, whole and damaged in every way that was seen in the wild."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.checkpoint_looks import judged
from rtj_sidecar.checkpoints.inspect import inspect_path
from rtj_sidecar.checkpoints.layouts.dcp import DcpLayout
from rtj_sidecar.checkpoints.layouts.hf_trainer import HuggingFaceTrainerLayout
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FoundSave,
    PartFiles,
    Reason,
    Status,
    Verdict,
)

Fresh = Callable[[str], Path]


def look(root: Path, **options: object) -> dict[str, tuple[FoundSave, Verdict]]:
    found = inspect_path(root, **options)  # type: ignore[arg-type]
    return {save.root_key: (save, verdict) for save, verdict in found}


def expect_torn(root: Path, key: str, reason: Reason, *words: str, **options: object) -> None:
    verdict = look(root, **options)[key][1]
    assert (verdict.status, verdict.reason) == (Status.TORN, reason), verdict.message
    assert not verdict.candidate
    for word in words:
        assert word in verdict.message


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


# --- DCP ---


def test_dcp_without_its_metadata_did_not_finish(fresh: Fresh) -> None:
    root = fresh("dcp")
    (root / "step-2" / ".metadata").unlink()
    expect_torn(root, "step-2", Reason.MARKER_MISSING, "step-2/.metadata")
    assert look(root)["step-1"][1].status is Status.VERIFIED


def test_dcp_with_a_missing_short_or_changed_shard(fresh: Fresh) -> None:
    root = fresh("dcp")
    shard = root / "step-2" / "__1_0.distcp"
    whole, times = shard.read_bytes(), (shard.stat().st_atime_ns, shard.stat().st_mtime_ns)

    def write(content: bytes) -> None:
        shard.write_bytes(content)
        os.utime(shard, ns=times)

    write(whole[: 1261 + 2601])  # cut exactly between two archives: the chain alone looks whole
    expect_torn(root, "step-2", Reason.TRUNCATED, "step-2/__1_0.distcp", ".metadata says")
    flipped = bytearray(whole)
    flipped[2000] ^= 0xFF
    write(bytes(flipped))
    expect_torn(root, "step-2", Reason.CHECKSUM_MISMATCH, "step-2/__1_0.distcp")
    shard.unlink()
    expect_torn(root, "step-2", Reason.FILES_MISSING, "step-2/__1_0.distcp")


def test_dcp_shard_of_another_save_under_the_old_metadata(fresh: Fresh, originals: Path) -> None:
    """Killed after rank 0 wrote and before rank 1 did: loads without an error, as a mix."""
    root = fresh("dcp-reused")
    newer = originals / "dcp-reused-next" / "state" / "__0_0.distcp"
    shutil.copy(newer, root / "state" / "__0_0.distcp")  # its time is now, as after a real write
    expect_torn(root, "state", Reason.MIXED_GENERATIONS, "__0_0.distcp", "touch")


def test_dcp_swapped_rank_shards(fresh: Fresh) -> None:
    root = fresh("dcp")
    first, second = root / "step-1" / "__0_0.distcp", root / "step-1" / "__1_0.distcp"
    one, two = first.read_bytes(), second.read_bytes()
    for path, content in ((first, two), (second, one)):
        times = path.stat()
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    expect_torn(root, "step-1", Reason.MIXED_GENERATIONS, "step-1/__0_0.distcp")


def test_dcp_ignores_shards_left_by_a_larger_world(fresh: Fresh) -> None:
    root = fresh("dcp")
    shutil.copy2(root / "step-1" / "__1_0.distcp", root / "step-1" / "__7_0.distcp")
    save, verdict = look(root)["step-1"]
    assert verdict.status is Status.VERIFIED
    assert "step-1/__7_0.distcp" not in {entry.path for entry in save.files}


def test_dcp_of_one_pod_among_several_is_judged_as_a_part(fresh: Fresh) -> None:
    """On a disk of its own a rank has its shard only: whole in itself, complete in the union."""
    root, other = fresh("dcp"), fresh("dcp-reused")
    shutil.rmtree(other / "state")
    (other / "step-2").mkdir()
    (root / "step-2" / "__1_0.distcp").rename(other / "step-2" / "__1_0.distcp")
    part = Expectations(world_size=2, whole=False)
    first, second = judged(root, expect=part)["step-2"], judged(other, expect=part)["step-2"]
    assert first[1].status is Status.VERIFIED
    assert second[1].status is Status.VERIFIED
    parts = [
        PartFiles(rank, {e.path: e.size for e in save.files}, verdict.facts)
        for rank, (save, verdict) in enumerate((first, second))
    ]
    assert DcpLayout().union_gate(parts=parts, expect=part).passed is True
    missing = DcpLayout().union_gate(parts=parts[:1], expect=part)
    assert (missing.passed, missing.reason) == (False, Reason.FILES_MISSING)
    markerless = DcpLayout().union_gate(parts=parts[1:], expect=part)
    assert (markerless.passed, markerless.reason) == (False, Reason.MARKER_MISSING)
    (root / "step-2" / ".metadata").unlink()
    unfinished = judged(root, expect=part)["step-2"][1]
    assert (unfinished.status, unfinished.reason) == (Status.TORN, Reason.MARKER_MISSING)
    (other / "step-2" / "__1_0.distcp").write_bytes(b"PK\x03\x04 cut off")
    assert judged(other, expect=part)["step-2"][1].status is Status.TORN


def test_dcp_with_broken_metadata(fresh: Fresh) -> None:
    root = fresh("dcp")
    marker = root / "step-2" / ".metadata"
    marker.write_bytes(marker.read_bytes()[:500])
    expect_torn(root, "step-2", Reason.MARKER_INVALID, "step-2/.metadata")


def test_dcp_written_right_into_the_checkpoint_directory(originals: Path, tmp_path: Path) -> None:
    shutil.copytree(originals / "dcp-reused" / "state", tmp_path / "flat")
    (tmp_path / "flat" / "args.json").write_text("{}")
    save, verdict = judged(tmp_path / "flat")["."]
    assert (save.step, verdict.status) == (1, Status.VERIFIED)
    assert {entry.path for entry in save.files} == {".metadata", "__0_0.distcp", "__1_0.distcp"}


# --- Hugging Face Trainer ---


@pytest.mark.parametrize("lost", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_hf_resumes_silently_wrong_without_these(fresh: Fresh, lost: str) -> None:
    root = fresh("hf")
    (root / "checkpoint-4" / lost).unlink()
    expect_torn(root, "checkpoint-4", Reason.FILES_MISSING, "checkpoint-4", lost)
    assert look(root)["checkpoint-2"][1].status is Status.VERIFIED


def test_hf_killed_anywhere_in_its_save(fresh: Fresh) -> None:
    """The Trainer writes in this order; every prefix of it is a torn save, never another layout's
    whole one."""
    order = ["config.json", "generation_config.json", "model.safetensors", "training_args.bin"]
    order += ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"]
    root = fresh("hf")
    for count in range(1, len(order)):
        shutil.rmtree(root / "checkpoint-6", ignore_errors=True)
        (root / "checkpoint-6").mkdir()
        for name in order[:count]:
            shutil.copy2(root / "checkpoint-4" / name, root / "checkpoint-6" / name)
        expect_torn(root, "checkpoint-6", Reason.MARKER_MISSING, "trainer_state.json")


def test_hf_final_model_in_the_output_directory_is_no_save(fresh: Fresh) -> None:
    root = fresh("hf")
    for name in ("model.safetensors", "config.json", "training_args.bin"):
        shutil.copy2(root / "checkpoint-4" / name, root / name)
    assert set(judged(root)) == {"checkpoint-2", "checkpoint-4"}


def test_hf_step_in_state_and_name_must_agree(fresh: Fresh) -> None:
    root = fresh("hf")
    (root / "checkpoint-4").rename(root / "checkpoint-6")
    expect_torn(root, "checkpoint-6", Reason.STEP_MISMATCH, "global_step 4")


def test_hf_cut_off_state_and_model(fresh: Fresh) -> None:
    root = fresh("hf")
    state = root / "checkpoint-4" / "trainer_state.json"
    whole = state.read_bytes()
    state.write_bytes(whole[:-20])
    expect_torn(root, "checkpoint-4", Reason.MARKER_INVALID, "trainer_state.json")
    state.write_bytes(whole)
    model = root / "checkpoint-4" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1])
    expect_torn(root, "checkpoint-4", Reason.TRUNCATED, "model.safetensors")


def test_hf_ddp_needs_the_rng_state_of_every_rank(fresh: Fresh) -> None:
    root = fresh("hf-ddp")
    assert look(root, world_size=2)["checkpoint-4"][1].status is Status.VERIFIED
    (root / "checkpoint-4" / "rng_state_1.pth").unlink()
    expect_torn(root, "checkpoint-4", Reason.FILES_MISSING, "rng_state_1.pth", world_size=2)


def test_hf_rank_on_its_own_disk_has_its_rng_state_only(fresh: Fresh, tmp_path: Path) -> None:
    root, other = fresh("hf-ddp"), tmp_path / "other"
    (other / "checkpoint-4").mkdir(parents=True)
    (root / "checkpoint-4" / "rng_state_1.pth").rename(other / "checkpoint-4" / "rng_state_1.pth")
    part = Expectations(world_size=2, whole=False)
    found = [judged(place, expect=part)["checkpoint-4"] for place in (root, other)]
    assert [verdict.status for _, verdict in found] == [Status.VERIFIED, Status.VERIFIED]
    parts = [
        PartFiles(rank, {e.path: e.size for e in save.files})
        for rank, (save, _) in enumerate(found)
    ]
    layout = HuggingFaceTrainerLayout()
    assert layout.union_gate(parts=parts, expect=part).passed is True
    assert layout.union_gate(parts=parts[:1], expect=part).reason is Reason.FILES_MISSING
    assert layout.union_gate(parts=parts[1:], expect=part).reason is Reason.MARKER_MISSING


# --- safetensors ---


def test_sharded_safetensors_need_every_shard_and_the_index(fresh: Fresh) -> None:
    root = fresh("sharded")
    shard = root / "step_3" / "model-00002-of-00003.safetensors"
    content = shard.read_bytes()
    shard.unlink()
    expect_torn(root, "step_3", Reason.FILES_MISSING, shard.name)
    shard.write_bytes(content + b"\0")
    expect_torn(root, "step_3", Reason.MALFORMED, shard.name)
    shard.write_bytes(content)
    (root / "step_3" / "model.safetensors.index.json").unlink()
    expect_torn(root, "step_3", Reason.MARKER_MISSING, "index.json")


def test_safetensors_is_never_a_full_state(originals: Path) -> None:
    assert look(originals / "safetensors")["step_2"][0].full_state is False


# --- a save that was really killed ---

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
