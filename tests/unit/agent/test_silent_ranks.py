"""A rank that says nothing is not one that has nothing: a save that was named without it waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kit import toy_trainer
from kit.fleet import Fleet, shard
from rtj_api.contract import NO_RANK
from rtj_api.rules.resume import Chosen
from rtj_api.wire import Directive, Phase, SidecarConfig
from rtj_sidecar import holding
from rtj_sidecar.config import Site
from rtj_sidecar.messages import Ships
from rtj_sidecar.runs.records import PartRecord, ShipRecord
from rtj_sidecar.standby import placed


def save(fleet: Fleet, step: int, *, rank: int) -> None:
    toy_trainer.save(fleet.pods[rank].path / f"ckpt_{step}.pt", shard(step, rank))


async def test_the_first_save_is_not_durable_without_a_rank_that_died_before_its_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was writing its share, and nobody knows yet who writes."""
    monkeypatch.setattr(holding, "USUAL_GRACE_SECONDS", 1.0)
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        await fleet.pods[1].stop()
        save(fleet, 10, rank=0)
        await fleet.until(lambda: fleet.history().ships, why="named after the grace", seconds=20)
        await asyncio.sleep(3.0)
        assert fleet.durable_steps() == []
        await fleet.replace(1, made_in=2)
        fleet.pods[0].exit_code = 1
        await fleet.prepare(replaced=[1])
        chosen = fleet.choice()
        assert isinstance(chosen, Chosen)
        assert chosen.resume.scratch
        await asyncio.sleep(2.0)
        assert fleet.durable_steps() == []


async def test_a_silent_rank_that_comes_back_completes_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "USUAL_GRACE_SECONDS", 1.0)
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        shipping = fleet.pods[1].agent.shipping
        telling = shipping.telling.tell

        async def nothing() -> None:
            return None

        monkeypatch.setattr(shipping.telling, "tell", nothing)
        monkeypatch.setattr(shipping.uploading, "hear", lambda ships: None)
        save(fleet, 10, rank=0)
        save(fleet, 10, rank=1)
        await fleet.until(lambda: fleet.history().ships, why="named after the grace", seconds=20)
        monkeypatch.setattr(shipping.telling, "tell", telling)
        monkeypatch.undo()
        await fleet.until_durable(10, seconds=30)
        (manifest,) = fleet.history().manifests.values()
        assert manifest.ranks == [0, 1]
        assert not fleet.history().marks


async def test_a_silent_rank_that_lives_and_has_nothing_lets_it_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words do not get to rank 0: it hears of the save by the store, and answers there."""
    monkeypatch.setattr(holding, "USUAL_GRACE_SECONDS", 1.0)
    monkeypatch.setattr("rtj_sidecar.shipping.FALLBACK_SECONDS", 0.5)
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        monkeypatch.setattr(type(fleet.pods[1].agent.station), "holder_url", "http://127.0.9.9:1")
        fleet.pods[1].agent.shipping._ships = Ships(version=0)
        save(fleet, 10, rank=0)
        await fleet.until_durable(10, seconds=40)
        (manifest,) = fleet.history().manifests.values()
        assert manifest.ranks == [0]


async def test_a_silent_rank_that_said_none_and_has_a_share_after_all_ends_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was far behind, and the others' files were still on their way."""
    monkeypatch.setattr(holding, "USUAL_GRACE_SECONDS", 1.0)
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        telling = fleet.pods[1].agent.shipping.telling

        async def nothing() -> None:
            return None

        monkeypatch.setattr(telling, "tell", nothing)
        fleet.pods[0].store.rate = 300.0
        save(fleet, 10, rank=0)
        await fleet.until(
            lambda: [p for parts in fleet.history().parts.values() for p in parts.values()],
            why="the silent rank has said that it has none",
            seconds=30,
        )
        monkeypatch.undo()
        save(fleet, 10, rank=1)
        await fleet.until(
            lambda: fleet.pods[1].report.checkpoint.last_saved_step == 10,
            why="its share is pinned",
            seconds=30,
        )
        await fleet.until(
            lambda: fleet.history().marks or fleet.durable_steps(), why="decided", seconds=30
        )
        assert fleet.durable_steps() == []
        (marks,) = fleet.history().marks.values()
        assert "rank 1, which wrote files of it" in marks[0].message


def test_a_spare_does_not_speak_for_the_pod_whose_rank_it_took(tmp_path: Path) -> None:
    """It was made before the save, and was not this rank then."""
    config = SidecarConfig(
        clusterUID="cluster",
        jobUID="job-1",
        namespace="ns",
        job="gpt",
        rank=NO_RANK,
        spare=0,
        made_in=1,
        framework="pytorch",
        procs_per_replica=1,
        runID="ns/gpt",
        path=str(tmp_path),
    )
    where = {"root": tmp_path, "directive": tmp_path / "directive"}
    site = Site(config=config, pod_uid="u", pod_name="p", **where)
    directive = Directive(
        jobUID="job-1",
        podUID="u",
        attempt=2,
        seq=1,
        phase=Phase.PREPARE,
        rank=1,
        world_size=2,
        coordinator="127.0.0.1",
    )
    taken = placed(site, directive).config
    assert taken.rank == 1
    named = {"fence": 1, "n": 1, "rank": 1, "written_at": 1.0}
    ship = ShipRecord(
        fence=1,
        n=1,
        name="f1-n1-s10",
        root_key="ckpt_10.pt",
        layout="generic",
        expected=[0],
        asked=[1],
        made_in=1,
        world_size=2,
        named_at=1.0,
    )
    assert not ship.believes_none(PartRecord(**named, made_in=taken.made_in))
    assert ship.believes_none(PartRecord(**named, made_in=1))


async def test_a_pod_that_is_ended_does_not_wait_for_a_rank_that_went_on_without_it(
    tmp_path: Path,
) -> None:
    """Its gang is restarted around it, so nobody answers its question any more, and its time is
    short: the rank hears of the save by the store, and has answered before the next holder is
    there, and the choice."""
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        await fleet.until(lambda: fleet.pods[1].agent.shipping.fence == 1, why="it was heard once")
        fleet.pods[1].direct(Phase.PREPARE, 2, world_size=2)  # no rank 0 yet, as the operator says
        fleet.pods[0].sigterm()
        save(fleet, 10, rank=0)
        fleet.pods[0].exit_code = 0
        await fleet.until(lambda: fleet.pods[0].is_released, why="drained", seconds=40)
        # Where the answer came in time the pod that ended has committed it itself.
        await fleet.until(
            lambda: (
                fleet.durable_steps() == [10]
                or [parts for parts in fleet.history().parts.values() if set(parts) == {0, 1}]
            ),
            why="rank 1 has said that it has none of it",
            seconds=60,
        )
        await fleet.replace(0, made_in=2)
        fleet.attempt = 2
        await fleet.prepare()
        chosen = fleet.choice()
        assert isinstance(chosen, Chosen)
        assert chosen.resume.step == 10


async def test_a_pod_that_is_ended_waits_for_a_rank_that_sends_its_share(tmp_path: Path) -> None:
    """Else the next holder might choose before the share is there, and drop the save."""
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        fleet.pods[1].store.rate = None
        await fleet.begin()
        fleet.pods[1].store.rate = 600.0  # bytes a second: some eight seconds for its share
        save(fleet, 10, rank=0)
        save(fleet, 10, rank=1)
        await fleet.until(lambda: fleet.history().ships, why="named", seconds=20)
        fleet.pods[0].sigterm()
        fleet.pods[0].exit_code = fleet.pods[1].exit_code = 0
        await fleet.until(lambda: fleet.pods[0].is_released, why="drained", seconds=30)
        assert fleet.durable_steps() == [10]
