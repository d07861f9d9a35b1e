"""A rank whose share of a save comes late: the save without it is never resumed from."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Collection
from pathlib import Path

from kit import toy_trainer
from kit.fleet import Fleet, shard
from kit.fleet_pod import PodDied
from kit.ganglike import Gang
from kit.trainers import habits
from rtj_api.reasons import Reason
from rtj_api.rules.resume import NoChoice
from rtj_api.wire import TrainerState
from rtj_sidecar.runs.records import MarkKind

CODE = f"PYTHONPATH={Path(__file__).parents[2]}"


def save(fleet: Fleet, step: int, *, ranks: Collection[int], name: str = "step") -> None:
    """Each of the ranks saves other bytes under the same name, on a disk of its own."""
    for rank in ranks:
        pod = fleet.pods[rank]
        toy_trainer.save(pod.path / f"{name}_{step}.pt", shard(step, rank))


def fleet_of(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, world_size=3, store=f"file://{tmp_path}/store", mirror="never")


def heard_of(fleet: Fleet, *, rank: int) -> bool:
    """Whether rank 0 knows that this one writes, too: from then on it is waited for."""
    holding = fleet.pods[0].agent.holding
    return holding is not None and rank in holding.word.waited_for


async def test_a_share_after_the_commit_takes_the_save_back(tmp_path: Path) -> None:
    async with fleet_of(tmp_path) as fleet:
        await fleet.begin()
        save(fleet, 10, ranks=[0, 2])
        await fleet.until_durable(10)
        (manifest,) = fleet.history().manifests.values()
        assert manifest.ranks == [0, 2]  # rank 1 had looked, and had nothing
        save(fleet, 10, ranks=[1])
        await fleet.until(
            lambda: [m.kind for ms in fleet.history().marks.values() for m in ms],
            why="the save is marked",
        )
        marks = [m for ms in fleet.history().marks.values() for m in ms]
        assert [m.kind for m in marks] == [MarkKind.INVALID]
        assert "rank 1 told of its share" in marks[0].message
        await fleet.until(
            lambda: all(c.invalid for c in fleet.pods[0].report.candidates),
            why="a restart in place cannot begin from it either",
        )
        seconds = fleet.pods[0].agent.holding._late.longest  # type: ignore[union-attr]
        assert seconds > 0
        save(fleet, 20, ranks=range(3))
        await fleet.until(
            lambda: [m.ranks for m in fleet.history().manifests.values() if m.step == 20],
            why="the next save is durable",
        )
        found = [m.ranks for m in fleet.history().manifests.values()]
        assert sorted(found) == [[0, 1, 2], [0, 2]]  # no share passed for a save of its own
        await fleet.replace(1, made_in=2)
        resume = await fleet.begin(replaced=[1])
        assert resume.step == 20
        # Of the one that lacks a share the marks speak now, and a person may take that back.
        assert not fleet.pods[0].agent.station.halves
        torn = [c for c in fleet.pods[0].report.candidates if c.invalid is not None]
        assert [c.name for c in torn] == [manifest.name]


def dies_at_a_mark(verb: str, key: str) -> None:
    if verb == "put" and "/marks/" in key:
        raise PodDied(key)


async def test_also_where_rank_0_dies_before_it_says_so_in_the_store(tmp_path: Path) -> None:
    async with fleet_of(tmp_path) as fleet:
        await fleet.begin()
        save(fleet, 10, ranks=[0, 2])
        await fleet.until_durable(10)
        fleet.pods[0].store.gate = dies_at_a_mark
        save(fleet, 10, ranks=[1])
        await fleet.until(lambda: fleet.pods[0].died, why="rank 0 is dead")
        (told,) = fleet.pods[0].report.candidates
        assert told.invalid == Reason.CHECKPOINT_TORN  # before the store heard of it
        await fleet.replace(0, made_in=2)
        await fleet.prepare(replaced=[0])
        chosen = fleet.choice()
        assert isinstance(chosen, NoChoice)
        assert "rank 1 told of its share" in chosen.message


async def test_a_rank_that_writes_what_others_do_not_takes_nothing_back(tmp_path: Path) -> None:
    """Once it is known who writes: files of the same step elsewhere are another save."""
    async with fleet_of(tmp_path) as fleet:
        await fleet.begin()
        for step in (10, 20):
            save(fleet, step, ranks=[0, 2])
            await fleet.until_durable(step)
        save(fleet, 20, ranks=[1], name="best")
        await fleet.until(lambda: fleet.pods[1].report.checkpoint.pending_saves, why="it is found")
        await fleet.until(lambda: heard_of(fleet, rank=1), why="rank 0 has heard of it")
        save(fleet, 30, ranks=range(3))
        await fleet.until(
            lambda: [m.ranks for m in fleet.history().manifests.values() if m.step == 30],
            why="the next save is durable",
        )
        assert not [m for ms in fleet.history().marks.values() for m in ms]


def same_names(path: Path) -> list[str]:
    script = Path(habits.__file__).with_name("every_node.py")
    options = ["--out", str(path), "--steps", "100000", "--every", "10", "--step-seconds", "0.1"]
    return ["env", CODE, sys.executable, "-S", str(script), *options]


def test_the_first_save_waits_for_a_rank_that_has_not_looked(tmp_path: Path) -> None:
    """Its sidecar is starved of CPU for longer than a rank that has nothing is waited for."""
    gang = Gang(tmp_path, command=same_names)
    try:
        gang.begin()
        gang.ranks[1].until(lambda r: r.trainer.state is TrainerState.RUNNING, seconds=60)
        agent = gang.ranks[1].agent
        assert agent is not None
        agent.send_signal(signal.SIGSTOP)
        gang.ranks[0].until(lambda r: r.checkpoint.pending_saves >= 5, seconds=60)
        agent.send_signal(signal.SIGCONT)
        gang.ranks[0].until(lambda r: r.checkpoint.last_durable_step, seconds=60)
        records = (tmp_path / "store/ns/gpt/ships").rglob("*.json")
        found = [json.loads(record.read_text())["expected"] for record in records]
        assert found
        assert all(ranks == [0, 1] for ranks in found)
    finally:
        gang.end()
