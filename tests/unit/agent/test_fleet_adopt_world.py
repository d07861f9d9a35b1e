"""A directory that eight processes wrote becomes the beginning of a job of sixteen, or is refused.

By layout, as docs/many-ranks.md says: what its loaders lay out anew is resumed, what fits only its
own number of processes holds the job with words, and is never passed by for step 0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kit.fleet import Fleet
from kit.handmade import age, dcp_directory
from kit.handmade_sharded import accelerate, deepspeed_tag, hf_trainer
from rtj_api.reasons import Reason
from rtj_api.rules.resume import Chosen, NoChoice

WROTE, RANKS = 8, 16


def dcp(home: Path) -> None:
    dcp_directory(home / "step-70", {"model.w": None, "optimizer.m": None, "step": 70}, ranks=WROTE)


def trainer(home: Path) -> None:
    hf_trainer(home / "checkpoint-70", step=70, ranks=WROTE)


def accelerated(home: Path) -> None:
    accelerate(home / "step_70", ranks=WROTE)


def zero(home: Path) -> None:
    deepspeed_tag(home / "global_step70", step=70, stage=2, data=WROTE)
    (home / "latest").write_text("global_step70")


def fleet_of(tmp_path: Path, *, ranks: int, shared: bool = True) -> Fleet:
    store = f"file://{tmp_path}/store"
    return Fleet(
        tmp_path, world_size=ranks, store=store, shared=shared, mirror="never", procs_stated=True
    )


@pytest.mark.parametrize("wrote", [dcp, trainer, accelerated])
async def test_what_is_laid_out_anew_is_resumed_by_sixteen(
    wrote: Callable[[Path], None], tmp_path: Path
) -> None:
    wrote(tmp_path / "shared")
    age(tmp_path / "shared")
    before = {f.name: f.read_bytes() for f in (tmp_path / "shared").rglob("*") if f.is_file()}
    async with fleet_of(tmp_path, ranks=RANKS) as fleet:
        resume = await fleet.begin()
        assert resume.step == 70
        (manifest,) = fleet.history().manifests.values()
        files = {f.path.rpartition("/")[2] for f in manifest.files}
        assert files == set(before), "every file of the eight"
    after = {f.name: f.read_bytes() for f in (tmp_path / "shared").glob("*70/**/*") if f.is_file()}
    assert after == before


async def test_zero_partitions_of_eight_hold_a_job_of_sixteen(tmp_path: Path) -> None:
    zero(tmp_path / "shared")
    age(tmp_path / "shared")
    async with fleet_of(tmp_path, ranks=RANKS) as fleet:
        await fleet.prepare()
        found = fleet.choice()
        assert isinstance(found, NoChoice), "never step 0 for that"
        assert found.reason == Reason.NO_VALID_CHECKPOINT
        assert Reason.WORLD_SIZE_REFUSED in found.message
        assert "saved by 8 processes and cannot be loaded by 16" in found.message
        assert "spec.replicas" in found.message
        assert "ds_to_universal.py" in found.message
        assert isinstance(fleet.choice(allow_scratch=True), Chosen), "a person may say so"
    assert (tmp_path / "shared/global_step70").is_dir(), "it stays where it is"


async def test_and_a_job_of_eight_goes_on_from_them(tmp_path: Path) -> None:
    zero(tmp_path / "shared")
    age(tmp_path / "shared")
    async with fleet_of(tmp_path, ranks=WROTE) as fleet:
        assert (await fleet.begin()).step == 70


async def test_a_shard_that_lacks_is_no_smaller_world(tmp_path: Path) -> None:
    """Seven of the eight files: not a save of seven, for sixteen or for anybody."""
    dcp(tmp_path / "shared")
    (tmp_path / "shared/step-70/__5_0.distcp").unlink()
    age(tmp_path / "shared")
    async with fleet_of(tmp_path, ranks=RANKS) as fleet:
        await fleet.prepare()
        assert fleet.pods[0].report.candidates == []
        assert fleet.durable_steps() == []
