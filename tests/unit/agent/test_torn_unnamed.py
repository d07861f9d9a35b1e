"""A save that a crash has cut short between two ranks is never begun from."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

import pytest
from kit.fleet import Fleet
from kit.handmade import dcp_directory

KEYS = {"model.w": None, "optimizer.m": None}


def save(fleet: Fleet, step: int, *, place: str, ranks: Collection[int] = (0, 1)) -> None:
    """Each rank its shard, and rank 0 the `.metadata`."""
    whole = fleet.directory / f"whole-{step}"
    dcp_directory(whole, {**KEYS, "step": step}, plain_rank=1)
    for rank in ranks:
        home = fleet.pods[rank].path / place.format(step)
        home.mkdir(exist_ok=True)
        for name in (f"__{rank}_0.distcp", *([".metadata"] if rank == 0 else [])):
            (home / name).write_bytes((whole / name).read_bytes())


def is_durable(fleet: Fleet, step: int) -> bool:
    return step in fleet.durable_steps()


@pytest.mark.parametrize("place", ["state", "step_{}"])
@pytest.mark.parametrize("rate", [None, 5.0], ids=["a quick store", "a slow store"])
async def test_a_share_that_one_rank_finished_is_no_save_to_begin_from(
    tmp_path: Path, place: str, rate: float | None
) -> None:
    """The other rank died before it wrote anything, and the store has not heard of it yet."""
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        for step in (10, 20):
            save(fleet, step, place=place)
            await fleet.until(partial(is_durable, fleet, step), why=f"{step} durable")
        for pod in fleet.pods:
            pod.store.rate = rate
        save(fleet, 30, place=place, ranks=(1,))
        for pod in fleet.pods:
            pod.exit_code = 1
        chosen = await fleet.begin()
        assert chosen.step == 20
        for pod in fleet.pods:
            assert (pod.path / place.format(20) / ".metadata").exists()
            pod.store.rate = None
        save(fleet, 40, place=place)
        await fleet.until(partial(is_durable, fleet, 40), why="the next one durable")
        assert fleet.durable_steps() == [10, 20, 40]
