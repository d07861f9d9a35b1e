"""A save of an earlier attempt with fewer processes is whole; the same of this attempt is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.directories import Place
from kit.handmade import age, safetensors_file, torch_file
from kit.handmade_sharded import accelerate
from rtj_sidecar.checkpoints.types import Expectations, Reason, Status

FOUR = Expectations(world_size=4)


def trainer(root: Path) -> None:
    (root / "checkpoint-10").mkdir()
    (root / "checkpoint-10/trainer_state.json").write_text(json.dumps({"global_step": 10}))
    safetensors_file(root / "checkpoint-10/model.safetensors", "w")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth"):
        torch_file(root / "checkpoint-10" / name, {"weight": 0})


def ranks(root: Path) -> None:
    for rank in (0, 1):
        torch_file(root / f"step_10/shard_rank{rank}.pt", {"step": 10, "optimizer": {"state": {}}})


def composer(root: Path) -> None:
    for rank in (0, 1):
        torch_file(root / f"ep0-ba10-rank{rank}.pt", {"state": {}, "rng": []})


def shards(root: Path) -> None:
    for rank in (1, 2):
        name = f"shard-{rank:05d}-model-00001-of-00001.safetensors"
        safetensors_file(root / "step_10" / name, "w")


SAVES: dict[str, Callable[[Path], object]] = {
    "hf-trainer": trainer,
    "torch": ranks,
    "composer": composer,
    "dcp-hf": shards,
    "accelerate": lambda root: accelerate(root / "step_10", step=10, ranks=2),
}


@pytest.mark.parametrize("layout", SAVES)
def test_a_save_of_two_in_a_world_of_four(tmp_path: Path, layout: str) -> None:
    place = Place(tmp_path, {"expect": FOUR})
    SAVES[layout](tmp_path)
    age(tmp_path)
    ((save, verdict),) = place.judged()
    assert save.layout == layout
    assert (verdict.status, verdict.reason) == (Status.TORN, Reason.FILES_MISSING)
    place.directory.ledger.note(save)  # an attempt of two processes saw it finish
    for _ in range(2):
        ((_, verdict),) = place.judged()
        assert verdict.status is not Status.TORN, verdict.message
        assert verdict.candidate


@pytest.mark.parametrize("world", [FOUR, Expectations(world_size=4, earlier=True)])
def test_a_gap_is_one_in_any_world(tmp_path: Path, world: Expectations) -> None:
    place = Place(tmp_path, {"expect": world})
    trainer(tmp_path)
    torch_file(tmp_path / "checkpoint-10/rng_state_3.pth", {"weight": 0})
    age(tmp_path)
    ((save, _),) = place.judged()
    place.directory.ledger.note(save)
    ((_, verdict),) = place.judged()
    assert (verdict.status, verdict.reason) == (Status.TORN, Reason.FILES_MISSING)
    assert "rng_state_2.pth" in verdict.message


def test_what_was_there_before_any_attempt_is_judged_by_itself(tmp_path: Path) -> None:
    place = Place(tmp_path, {"expect": FOUR})
    trainer(tmp_path)
    age(tmp_path)
    place.directory.load(is_new=True)
    ((_, verdict),) = place.judged()
    assert verdict.status is Status.VERIFIED, verdict.message
