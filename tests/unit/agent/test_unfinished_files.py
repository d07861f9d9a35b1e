"""A file that a rank never closes: what the gang saves beside it becomes durable all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit import toy_trainer
from kit.fleet import Fleet, shard
from rtj_sidecar import holding, unfinished, uploading
from rtj_sidecar.messages import Unfinished
from rtj_sidecar.runs.records import SaveFacts, ShipRecord
from rtj_sidecar.unfinished import Spell, Told, has_nothing, writing


def save(fleet: Fleet, step: int, *, rank: int) -> None:
    toy_trainer.save(fleet.pods[rank].path / f"ckpt_{step}.pt", shard(step, rank))


def keep_open(fleet: Fleet, name: str, *, rank: int, step: int = 0) -> None:
    """As the rank's supervisor tells of a file that its trainer writes from its first step on."""
    pod = fleet.pods[rank]
    (pod.path / name).parent.mkdir(parents=True, exist_ok=True)
    toy_trainer.save(pod.path / name, shard(step, rank))
    pod._publish(open_for_writing=[name])


async def until_told_unfinished(fleet: Fleet, *, rank: int) -> None:
    holder = fleet.pods[0].agent.holding
    assert holder is not None
    await fleet.until(lambda: holder.word.has_unfinished(rank), why="rank 0 hears of the open file")


async def test_a_file_that_is_always_open_keeps_no_save_from_being_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in it tells which save it belongs to, but it was open long before this one began."""
    monkeypatch.setattr(holding, "USUAL_GRACE_SECONDS", 3.0)
    monkeypatch.setattr(unfinished, "BEFORE_SECONDS", 0.5)
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        keep_open(fleet, "scratch.pt", rank=1)
        await until_told_unfinished(fleet, rank=1)
        await asyncio.sleep(1.0)
        for step in (10, 20):
            save(fleet, step, rank=0)
            await fleet.until_durable(step, seconds=15)
        assert not fleet.history().marks


async def test_also_where_another_save_is_written_at_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own name tells its step: it is no share of this one, however new it is."""
    monkeypatch.setattr(holding, "USUAL_GRACE_SECONDS", 3.0)
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        keep_open(fleet, "ckpt_7.pt", rank=1, step=7)
        await until_told_unfinished(fleet, rank=1)
        save(fleet, 10, rank=0)
        await fleet.until_durable(10, seconds=15)


async def test_a_file_opened_with_the_save_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be that rank's share: a fixed name tells no step before it is finished."""
    monkeypatch.setattr(holding, "USUAL_GRACE_SECONDS", 1.0)
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        keep_open(fleet, "model.pt", rank=1)
        await until_told_unfinished(fleet, rank=1)
        save(fleet, 10, rank=0)
        await fleet.until(lambda: fleet.history().ships, why="named after the grace", seconds=20)
        (ship,) = fleet.history().ships.values()
        assert ship.asked == [1]
        await asyncio.sleep(2.0)
        assert fleet.durable_steps() == []
        fleet.pods[1]._publish(open_for_writing=[])
        await fleet.until_durable(10, seconds=15)


STEP_10 = SaveFacts(root_key="ckpt_10.pt", layout="torch", step=10)


@pytest.mark.parametrize(
    ("what", "heard_at", "may_be"),
    [
        (None, 0.0, True),  # an older sidecar says only that there is something
        (Unfinished(root_key="ckpt_10.rank1.pt", layout="torch", step=10, since=1.0), 0.0, True),
        (Unfinished(root_key="ckpt_20.pt", layout="torch", step=20, since=1.0), 99.0, False),
        (Unfinished(root_key="events.pt", layout="torch", since=1.0), 0.0, False),
        (Unfinished(root_key="model.pt", layout="torch", since=1.0), 95.0, True),
    ],
)
def test_what_may_become_a_share_of_a_save_that_was_begun_at_100(
    what: Unfinished | None, heard_at: float, may_be: bool
) -> None:
    told = {1: Told(answered=3, unfinished=(Spell(what, heard_at),))}
    assert has_nothing(told, 1, STEP_10, question=3, begun_at=100.0) is not may_be
    assert bool(writing(told, STEP_10, begun_at=100.0)) is may_be
    assert not has_nothing(told, 1, STEP_10, question=4, begun_at=100.0)  # not asked yet
    assert not has_nothing(told, 2, STEP_10, question=3, begun_at=100.0)  # silent


def test_a_paused_sidecar_says_none_only_after_it_has_looked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its clock goes on while it is stopped; what its trainer saved meanwhile it has not seen."""
    now = [100.0]
    monkeypatch.setattr(uploading.time, "monotonic", lambda: now[0])
    site = SimpleNamespace(touches_directory=True, config=SimpleNamespace(rank=1, poll_seconds=2.0))
    station = SimpleNamespace(site=site, settled=False, is_training=True, looks=7, unfinished=())
    ship = ShipRecord(
        fence=1,
        n=1,
        name="f1-n1-s10",
        root_key="ckpt_10.pt",
        layout="torch",
        step=10,
        expected=[1],
        world_size=2,
        named_at=0.0,
    )
    rank = uploading.Uploading(station, SimpleNamespace())  # type: ignore[arg-type]
    assert not rank._may_say_none(ship)
    now[0] += 3600.0
    assert not rank._may_say_none(ship)
    station.looks += 2  # the first may have begun before it heard
    assert not rank._may_say_none(ship)
    station.looks += 1
    assert rank._may_say_none(ship)
