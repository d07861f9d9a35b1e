"""Several ranks: a sharded model, and a gang that changes its size within an epoch."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from kit import exact, put_back
from kit.exact import needs_torch
from rtj_sidecar.checkpoints.types import Status

pytestmark = [needs_torch, pytest.mark.timeout(900)]


def run(place: Path, *words: object, world: int, stop: int | None = None) -> list[tuple[str, str]]:
    """(stdout, stderr) of each rank once all have ended well; stopped at that step."""
    told = {}
    if stop is not None:
        told["RTJ_STOP_FILE"] = str(place.parent / "stop")
        Path(told["RTJ_STOP_FILE"]).write_text(json.dumps({"step": stop, "reason": "PodEvicted"}))
    ends = [exact.ended(process) for process in exact.gang(place, *words, world=world, **told)]
    assert [code for code, _, _ in ends] == [0] * world, ends
    return [(out, err) for _, out, err in ends]


def test_a_sharded_model_is_saved_by_rank_proved_and_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole" / "saves", tmp_path / "cut" / "saves"
    for place in (whole, cut):
        place.parent.mkdir()
    alone = run(whole, "--steps", 12, "--sharded", world=2)
    run(cut, "--steps", 12, "--sharded", "--every", 3, world=2, stop=7)
    snapshot, verdicts, _ = put_back.look(cut, world_size=2)
    assert [save.step for save in snapshot.saves] == [3, 6, 7]
    for save in snapshot.saves:
        assert save.layout == "dcp"
        assert verdicts[save.identity].status is Status.VERIFIED, verdicts[save.identity].message
        assert {path.path.rpartition("/")[2] for path in save.files} == {
            ".metadata",
            "__0_0.distcp",
            "__1_0.distcp",
        }
        assert save.facts["has"]["scheduler"]
        assert save.facts["has"]["rng"]
        assert save.facts["has"]["loader"]
    again = run(cut, "--steps", 12, "--sharded", world=2)
    for rank in range(2):
        assert "from 7 with" in again[rank][0]
        assert (
            exact.last(again[rank][0], "weights").split()[1]
            == (exact.last(alone[rank][0], "weights").split()[1])
        )


def taken(ends: list[tuple[str, str]], *, epoch: int) -> list[int]:
    found: list[int] = []
    for out, _ in ends:
        for line in re.findall(rf"^took {epoch} \[(.*)\]$", out, re.MULTILINE):
            found += [int(number) for number in line.split(",")]
    return found


def test_four_two_three_ranks_take_each_sample_once_and_the_batch_is_kept_where_it_can_be(
    tmp_path: Path,
) -> None:
    """96 samples: 2 steps of 16 with four ranks, 2 of 16 with two ranks in two parts each, and the
    rest with three, which cannot make 16 of batches of 4."""
    place = tmp_path / "saves"
    ends = run(place, "--steps", 9, world=4, stop=2)
    assert "with 1" in ends[0][0]
    second = run(place, "--steps", 9, world=2, stop=4)
    assert "from 2 with 2" in second[0][0]
    assert (
        "4 ranks became 2: a step takes 16 samples in 2 parts of each rank, as before"
        in (second[0][1])
    )
    third = run(place, "--steps", 6, "--lr-policy", "linear", world=3)
    assert "learning rate x 1.5 (policy linear)" in third[0][1]
    counts = Counter(taken([*ends, *second, *third], epoch=0))
    assert set(counts) == set(range(96)), "each sample of the epoch"
    twice = [index for index, count in counts.items() if count > 1]
    assert sum(counts.values()) - 96 == len(twice) <= 2, "the last round alone is filled up"
    before = float(exact.last(second[0][0], "step ").split()[-1])
    after = float(re.findall(r"^step \d+ lr (\S+)$", third[0][0], re.MULTILINE)[0])
    assert after == pytest.approx(1.5 * before, rel=0.02)
