"""Verdicts on Hugging Face checkpoints and safetensors."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kit.checkpoint_looks import judged
from kit.checkpoint_verdicts import Fresh, expect_torn, look
from rtj_sidecar.checkpoints.layouts.hf_trainer import HuggingFaceTrainerLayout
from rtj_sidecar.checkpoints.types import Expectations, PartFiles, Reason, Status


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
