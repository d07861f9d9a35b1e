"""Gangs of 2, 3 and 8 ranks that share nothing but a store: real sidecars, played trainers.

64 ranks with unequal lines: `benchmarks/ranks.py`. The same on S3: `tests/contract/sidecar`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.fleet import Fleet, shard
from kit.fleet_pod import FleetPod, Held, PodDied
from kit.toy_trainer import load
from rtj_api.reasons import Reason
from rtj_api.wire import Resume, SidecarPhase
from rtj_sidecar import owning


def fleet_of(tmp_path: Path, world_size: int, **options: object) -> Fleet:
    store = f"file://{tmp_path}/store"
    return Fleet(tmp_path, world_size=world_size, store=store, mirror="never", **options)  # type: ignore[arg-type]


def dies_at(pod: FleetPod, verb: str, key: str) -> None:
    """The pod's agent ends before that call to the store."""

    def gate(now: str, at: str) -> None:
        if now == verb and key in at:
            raise PodDied(at)

    pod.store.gate = gate


def holds_own(fleet: Fleet, step: int) -> bool:
    return all(
        load(pod.path / f"step_{step}" / f"rank{rank}.pt")["model"] == shard(step, rank)["model"]
        for rank, pod in enumerate(fleet.pods)
    )


@pytest.mark.parametrize("world_size", [2, 3, 8])
async def test_the_parts_of_all_ranks_are_one_save(tmp_path: Path, world_size: int) -> None:
    """Committed as a union, and given back whole to pods whose disks are empty."""
    async with fleet_of(tmp_path, world_size) as fleet:
        await fleet.begin()
        fleet.save(10)
        await fleet.until_durable(10)
        (manifest,) = fleet.history().manifests.values()
        assert manifest.ranks == list(range(world_size))
        assert manifest.world_size == world_size
        paths = {f"step_10/rank{rank}.pt" for rank in range(world_size)}
        assert {file.path for file in manifest.files} == paths
        for rank in range(world_size):
            await fleet.replace(rank, made_in=2)
        resume = await fleet.begin()
        assert resume.step == 10
        assert holds_own(fleet, 10)


async def test_bytes_without_a_part_count_for_nothing(tmp_path: Path) -> None:
    """A rank that died between its files and its part, and whose disk died too: dropped by name."""
    async with fleet_of(tmp_path, 3) as fleet:
        await fleet.begin()
        fleet.save(10)
        await fleet.until_durable(10)
        dies_at(fleet.pods[2], "put", "parts/f1/2/2")
        fleet.save(20)
        await fleet.until(lambda: fleet.pods[2].died, why="rank 2 dies")
        await fleet.replace(2, made_in=2)
        resume = await fleet.begin(replaced=[2])
        assert resume.step == 10
        await fleet.until(lambda: fleet.dropped(), why="dropped by name")
        assert "rank 2" in fleet.dropped()["f1-n2"]
        fleet.save(30)
        await fleet.until_durable(30)
        assert fleet.durable_steps() == [10, 30]


async def test_a_sidecar_that_comes_back_sends_the_part_it_owes(tmp_path: Path) -> None:
    async with fleet_of(tmp_path, 3) as fleet:
        await fleet.begin()
        dies_at(fleet.pods[2], "put", "parts/f1/1/2")
        fleet.save(10)
        await fleet.until(lambda: fleet.pods[2].died, why="rank 2 dies")
        await fleet.replace(2, made_in=2, keeps_disk=True)
        resume = await fleet.begin()
        assert resume.step == 10
        await fleet.until_durable(10)
        assert fleet.durable_steps() == [10]


async def test_a_complete_set_whose_holder_died_is_rolled_forward(tmp_path: Path) -> None:
    """All parts are in the store, and the holder's pod and disk are gone before its commit."""
    async with fleet_of(tmp_path, 3) as fleet:
        await fleet.begin()
        dies_at(fleet.pods[0], "put", "manifests/")
        fleet.save(10)
        await fleet.until(lambda: fleet.pods[0].died, why="rank 0 dies")
        assert fleet.durable_steps() == []
        await fleet.replace(0, made_in=2)
        resume = await fleet.begin(replaced=[0])
        assert (resume.name, resume.step) == ("f1-n1-s10", 10)
        (manifest,) = fleet.history().manifests.values()
        assert (manifest.fence, manifest.committed_by_fence) == (1, 2)
        assert holds_own(fleet, 10)


async def test_of_two_holders_one_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zombie wakes up in the middle of its commit, after another has taken the run."""
    monkeypatch.setattr(owning, "HELD_SECONDS", 1.0)
    async with fleet_of(tmp_path, 3) as fleet:
        await fleet.begin()
        zombie = fleet.pods[0]
        held = Held(zombie, "put", "manifests/")
        fleet.save(10)
        await fleet.until(held.asked.is_set, why="the commit begins")
        fleet.pods[0] = await fleet.make(0, made_in=2, address=100)
        resume = await fleet.begin(replaced=[0])
        assert resume.step == 10
        held.free.set()
        fleet.save(20)
        await fleet.until_durable(20)
        await fleet.until(
            lambda: zombie.report.phase is SidecarPhase.FAILED or zombie.died is not None,
            why="the zombie stops",
        )
        assert zombie.report.problem is not None
        assert zombie.report.problem.reason == Reason.FENCE_TAKEN
        assert fleet.durable_steps() == [10, 20]
        await zombie.stop()


async def test_a_slow_line_costs_saves_but_never_a_half_one(tmp_path: Path) -> None:
    """While rank 1 uploads, it still tells what it saved; then the newest save goes, whole."""
    async with fleet_of(tmp_path, 3) as fleet:
        await fleet.begin()
        fleet.save(10)
        await fleet.until_durable(10)
        held = Held(fleet.pods[1], "upload")
        fleet.save(20)
        await fleet.until(held.asked.is_set, why="rank 1 uploads step 20")
        holding = fleet.pods[0].agent.holding
        assert holding is not None
        for step in (30, 40, 50, 60):
            fleet.save(step)
        await fleet.until(
            lambda: {30, 40, 50, 60} <= {s.facts.step for s in holding.word.said[1].saves},
            why="the holder hears of rank 1's saves during its upload",
        )
        held.free.set()
        await fleet.until_durable(60)
        assert fleet.durable_steps() == [10, 20, 60]
        history = fleet.history()
        assert all(m.ranks == [0, 1, 2] for m in history.manifests.values())
        assert not history.ships, "named, and neither committed nor dropped"


async def test_a_holder_with_a_slow_line_commits_what_others_wait_for(tmp_path: Path) -> None:
    """Its own upload of a newer save must not delay the commit of an older one."""
    async with fleet_of(tmp_path, 2) as fleet:
        await fleet.begin()
        slow = Held(fleet.pods[1], "upload")
        fleet.save(10)
        await fleet.until(slow.asked.is_set, why="rank 1 uploads step 10")
        own = Held(fleet.pods[0], "upload", "s20")
        # Finished before the first was named, so both are on their way at once.
        fleet.save(20)
        slow.free.set()
        await fleet.until(own.asked.is_set, why="rank 0 uploads step 20")
        await fleet.until_durable(10)
        own.free.set()
        await fleet.until_durable(20)


async def test_on_one_directory_rank_0_alone_touches_it(tmp_path: Path) -> None:
    async with fleet_of(tmp_path, 3, shared=True) as fleet:
        await fleet.begin()
        fleet.save(10)
        await fleet.until_durable(10)
        (manifest,) = fleet.history().manifests.values()
        assert manifest.ranks == [0]
        assert len(manifest.files) == 3
        assert [pod.store.busy_seconds > 0 for pod in fleet.pods] == [True, False, False]
        assert [pod.report.pinned for pod in fleet.pods[1:]] == [[], []]
        resume: Resume = await fleet.begin()
        assert resume.step == 10
