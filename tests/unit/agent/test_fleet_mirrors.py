"""Copies of what other ranks wrote: from each other before the store, and ahead of a restore."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kit.fleet import Fleet
from kit.fleet_pod import FleetPod, Held


def is_whole(pod: FleetPod) -> bool:
    return pod.report.mirror is not None and pod.report.mirror.is_whole


async def test_ranks_copy_each_others_shards_and_the_store_is_not_asked(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, world_size=3, store=f"file://{tmp_path}/store", mirror="always")
    async with fleet:
        await fleet.begin()
        fleet.save(10)
        await fleet.until_durable(10)
        await fleet.until(lambda: all(map(is_whole, fleet.pods)), why="each holds all of it")
        for pod in fleet.pods:
            told = pod.report.mirror
            assert told is not None
            assert (told.policy, told.name, told.missing_bytes) == ("always", "f1-n1-s10", 0)
            assert told.from_peers == told.fetched_bytes > 0
            assert told.from_store == 0
        resume = await fleet.begin()
        assert [pod.report.checkpoint.restored_bytes for pod in fleet.pods] == [0, 0, 0]
        assert resume.step == 10


async def test_a_new_pod_fetches_ahead_while_rank_0_still_proves(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, world_size=3, store=f"file://{tmp_path}/store", mirror="never")
    async with fleet:
        await fleet.begin()
        fleet.save(10)
        await fleet.until_durable(10)
        for rank in range(3):
            await fleet.replace(rank, made_in=2)
        held = Held(fleet.pods[0], "download")
        begun = asyncio.create_task(fleet.begin())
        await fleet.until(held.asked.is_set, why="rank 0 fetches what it proves")
        ahead = [pod.path / ".rtj/incoming/f1-n1-s10/step_10" for pod in fleet.pods[1:]]
        names = {"rank0.pt", "rank1.pt", "rank2.pt"}
        await fleet.until(
            lambda: all(a.is_dir() and names <= {p.name for p in a.iterdir()} for a in ahead),
            why="ranks 1 and 2 have all of it",
        )
        assert not (fleet.pods[1].path / "step_10").exists(), "before anything was chosen"
        held.free.set()
        resume = await begun
        assert resume.step == 10
        assert all((pod.path / "step_10" / "rank2.pt").exists() for pod in fleet.pods)
        assert not any(a.exists() for a in ahead)
