"""What a rank tells again after rank 0's sidecar restarted, or before the store was listed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit import toy_trainer
from kit.fleet import Fleet, shard
from kit.fleet_pod import Held, PodDied
from rtj_sidecar.messages import OpenShip
from rtj_sidecar.runs.records import SaveFacts, ShipRecord
from rtj_sidecar.uploading import Uploading


def dies(*_: object, **__: object) -> None:
    raise PodDied("as soon as it had named a save")


@pytest.mark.parametrize("name", ["ckpt_10.pt", "model.pt"])
async def test_a_save_told_again_after_rank_0_came_back_is_the_one_that_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Rank 0 died as soon as the name was in the store: nobody had heard it."""
    async with Fleet(
        tmp_path, world_size=2, store=f"file://{tmp_path}/store", mirror="never"
    ) as fleet:
        await fleet.begin()
        uploading = fleet.pods[1].agent.shipping.uploading
        heard = uploading.hear
        monkeypatch.setattr(uploading, "hear", lambda ships: None)
        monkeypatch.setattr(fleet.pods[0].agent.holding, "_named", dies)
        for rank, pod in enumerate(fleet.pods):
            toy_trainer.save(pod.path / name, shard(10, rank))
        await fleet.until(lambda: fleet.history().ships, why="named")
        await fleet.until(lambda: fleet.pods[0].died, why="rank 0 is dead")
        monkeypatch.setattr(uploading, "hear", heard)
        await fleet.replace(0, made_in=1, keeps_disk=True)
        await fleet.until(lambda: fleet.durable_steps() == [10], why="durable", seconds=40)
        await asyncio.sleep(1.0)
        history = fleet.history()
        assert [save.n for save in history.named] == [1]
        assert [m.ranks for m in history.manifests.values()] == [[0, 1]]
        assert not history.marks
        assert fleet.pods[0].report.verdicts == []


async def test_what_a_rank_told_before_the_store_was_listed_counts_in_what_is_completed_there(
    tmp_path: Path,
) -> None:
    """All parts are there that were expected; but rank 1 has a share, too, and has said so."""

    def dies_at_the_commit(verb: str, key: str) -> None:
        if verb == "put" and "/manifests/" in key:
            raise PodDied(key)

    async with Fleet(
        tmp_path, world_size=3, store=f"file://{tmp_path}/store", mirror="never"
    ) as fleet:
        await fleet.begin()
        fleet.pods[0].store.gate = dies_at_the_commit
        for rank in (0, 2):
            toy_trainer.save(fleet.pods[rank].path / "ckpt_10.pt", shard(10, rank))
        await fleet.until(lambda: fleet.pods[0].died, why="rank 0 is dead")
        toy_trainer.save(fleet.pods[1].path / "ckpt_10.pt", shard(10, 1))
        await fleet.until(
            lambda: fleet.pods[1].report.checkpoint.pending_saves, why="rank 1 has found its share"
        )
        pod = await fleet.replace(0, made_in=2)
        held, holder = Held(pod, "put", "/fences/"), pod.agent.holding
        assert holder is not None
        preparing = asyncio.create_task(fleet.prepare(replaced=[0]))
        await fleet.until(lambda: 1 in holder.word.said, why="rank 1 has told of its share")
        held.free.set()
        await preparing
        assert fleet.history().manifests == {}
        await fleet.until(fleet.dropped, why="its record says why")
        assert "rank 1" in str(fleet.dropped())


async def test_a_late_share_gets_no_name_of_its_own_before_the_records_are_known(
    tmp_path: Path,
) -> None:
    """Rank 0's sidecar is back, and the next attempt begins before it has read the run."""
    async with Fleet(
        tmp_path, world_size=3, store=f"file://{tmp_path}/store", mirror="never"
    ) as fleet:
        await fleet.begin()
        for rank in (0, 2):
            toy_trainer.save(fleet.pods[rank].path / "ckpt_10.pt", shard(10, rank))
        await fleet.until_durable(10)
        await fleet.pods[0].stop()
        toy_trainer.save(fleet.pods[1].path / "ckpt_10.pt", shard(10, 1))
        await fleet.until(
            lambda: fleet.pods[1].report.checkpoint.pending_saves, why="rank 1 has found its share"
        )
        pod = await fleet.replace(0, made_in=1, keeps_disk=True)
        storing = pod.agent.attempts._storing
        assert storing is not None
        recover = storing.recalling.recover

        async def too_late() -> None:
            await asyncio.sleep(60)
            await recover()

        storing.recalling.recover = too_late  # type: ignore[method-assign]
        await fleet.prepare()
        history = fleet.history()
        assert [m.ranks for m in history.manifests.values()] == [[0, 2]]
        assert list(history.named) == list(history.manifests)


def pinned(seen_at: float, *, step: int | None = None) -> SimpleNamespace:
    facts = SaveFacts(root_key="model.pt", layout="torch", step=step)
    record = SimpleNamespace(
        mirror=False, name=None, over=None, attempt=1, facts=facts, seen_at=seen_at
    )
    return SimpleNamespace(record=record, pin=SimpleNamespace(fingerprint=f"at {seen_at}"))


def test_of_two_saves_under_one_name_the_one_finished_before_the_name_was_given_bears_it() -> None:
    """Rank 0 died before this rank heard the name, and it has overwritten the file since."""
    saves = [pinned(100.0), pinned(200.0)]
    config = SimpleNamespace(rank=1)
    at = SimpleNamespace(
        directory=SimpleNamespace(saves=saves), site=SimpleNamespace(config=config), attempt=1
    )
    uploading = Uploading(at, SimpleNamespace())  # type: ignore[arg-type]

    def matched(named_at: float) -> object:
        ship = ShipRecord(
            fence=1,
            n=1,
            name="f1-n1",
            root_key="model.pt",
            layout="torch",
            expected=[0, 1],
            world_size=2,
            named_at=named_at,
        )
        return uploading.match(OpenShip(record=ship))

    assert matched(130.0) is saves[0]
    assert matched(230.0) is saves[1]
    assert matched(50.0) is saves[1], "its clock is wrong: the newest, as far as anybody can tell"
