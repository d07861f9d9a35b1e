"""A save that a crash has cut short between two ranks is never begun from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import pytest
from kit import toy_trainer
from kit.fleet import Fleet, shard
from kit.fleet_pod import FleetPod, PodDied
from kit.handmade import dcp_directory
from rtj_api.wire import SidecarPhase
from rtj_sidecar import holding

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


def save_files(fleet: Fleet, step: int, *, form: str, ranks: Collection[int] = (0, 1)) -> None:
    for rank in ranks:
        path = fleet.pods[rank].path / form.format(step=step, rank=rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        toy_trainer.save(path, shard(step, rank))


@pytest.mark.parametrize(
    "form", ["rank{rank}/step_{step}.pt", "ckpt_{step}_r{rank}.pt", "step_{step}/w{rank}.pt"]
)
async def test_nor_where_only_the_save_before_tells_that_another_writes_too(
    tmp_path: Path, form: str
) -> None:
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        for step in (10, 20):
            save_files(fleet, step, form=form)
            await fleet.until(partial(is_durable, fleet, step), why=f"{step} durable")
        save_files(fleet, 30, form=form, ranks=(1,))
        for pod in fleet.pods:
            pod.exit_code = 1
        assert (await fleet.begin()).step == 20
        assert fleet.durable_steps() == [10, 20]
        told = [verdict.message for verdict in fleet.pods[0].report.verdicts]
        assert any("rank 0, which wrote a share of the save before" in text for text in told)
        save_files(fleet, 40, form=form)
        await fleet.until(partial(is_durable, fleet, 40), why="the next one durable")


async def test_nor_where_rank_0_is_a_new_pod_that_has_seen_no_save(tmp_path: Path) -> None:
    """What the records tell of the save before is enough."""
    form = "rank{rank}/step_{step}.pt"
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        for step in (10, 20):
            save_files(fleet, step, form=form)
            await fleet.until(partial(is_durable, fleet, step), why=f"{step} durable")
        await fleet.pods[0].stop()
        save_files(fleet, 30, form=form, ranks=(1,))
        fleet.pods[1].exit_code = 1
        pod = await fleet.replace(0, made_in=2)
        await fleet.prepare(replaced=[0])
        await fleet.until(
            lambda: verdicts(pod) or [c for c in pod.report.candidates if c.step == 30],
            why="the share was judged",
        )
        assert [c.step for c in pod.report.candidates] == [20, 10]


async def test_nor_while_training_goes_on_without_a_rank_whose_pod_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has noticed yet that it is, and the store is quick: durable it would be chosen."""
    monkeypatch.setattr(holding, "USUAL_GRACE_SECONDS", 1.0)
    form = "rank{rank}/step_{step}.pt"
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        for step in (10, 20):
            save_files(fleet, step, form=form)
            await fleet.until(partial(is_durable, fleet, step), why=f"{step} durable")
        await fleet.pods[1].stop()
        for step in (30, 40, 50, 60):
            save_files(fleet, step, form=form, ranks=(0,))
            await asyncio.sleep(1.5)
        assert not fleet.history().ships
        assert fleet.durable_steps() == [10, 20]
        await fleet.replace(1, made_in=2)
        fleet.pods[0].exit_code = 1
        assert (await fleet.begin(replaced=[1])).step == 20
        save_files(fleet, 70, form=form)
        await fleet.until(partial(is_durable, fleet, 70), why="the next one durable")


async def test_a_rank_that_lives_and_writes_no_more_keeps_nobody_from_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "USUAL_GRACE_SECONDS", 1.0)
    form = "rank{rank}/step_{step}.pt"
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        save_files(fleet, 10, form=form)
        await fleet.until(partial(is_durable, fleet, 10), why="10 durable")
        save_files(fleet, 20, form=form, ranks=(0,))
        await asyncio.sleep(3.0)
        assert fleet.durable_steps() == [10]  # the other may only be late
        save_files(fleet, 30, form=form, ranks=(0,))
        await fleet.until(partial(is_durable, fleet, 30), why="30 durable")
        save_files(fleet, 40, form=form, ranks=(0,))
        await fleet.until(partial(is_durable, fleet, 40), why="40 durable", seconds=10)


async def test_what_one_rank_saves_under_a_name_of_its_own_is_whole(tmp_path: Path) -> None:
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        save_files(fleet, 10, form="rank{rank}/step_{step}.pt")
        await fleet.until(partial(is_durable, fleet, 10), why="10 durable")
        save_files(fleet, 20, form="final_{step}.pt", ranks=(0,))
        for pod in fleet.pods:
            pod.exit_code = 1
        assert (await fleet.begin()).step == 20


def dies_at(verb: str, key: str) -> Callable[[str, str], None]:
    def gate(asked: str, at: str) -> None:
        if asked == verb and key in at:
            raise PodDied(f"{asked} {at}")

    return gate


async def test_nor_where_rank_0_dies_as_soon_as_it_has_seen_that_a_share_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainers run on, and the other rank's share of the save does not come in time."""
    monkeypatch.setattr(holding, "USUAL_GRACE_SECONDS", 1.0)
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        for step in (10, 20):
            save(fleet, step, place="step_{}")
            await fleet.until(partial(is_durable, fleet, step), why=f"{step} durable")
        fleet.pods[0].store.gate = dies_at("put", "/marks/")
        save(fleet, 30, place="step_{}", ranks=(0,))
        told = partial(verdicts, fleet.pods[0])
        await fleet.until(lambda: told() or fleet.pods[0].died, why="it is seen as torn")
        assert not [ship for ship in fleet.history().ships.values() if ship.step == 30]
        await fleet.replace(0, made_in=2, keeps_disk=True)
        assert (await fleet.begin(replaced=[0])).step == 20


def verdicts(pod: FleetPod) -> list[str]:
    return [verdict.message for verdict in pod.report.verdicts]


async def test_the_last_share_of_one_rank_goes_with_the_outputs_where_all_succeed(
    tmp_path: Path,
) -> None:
    """Ranks that are not in step: nobody may begin from it, and nobody loses it."""
    form = "rank{rank}/step_{step}.pt"
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        for step in (10, 20):
            save_files(fleet, step, form=form)
            await fleet.until(partial(is_durable, fleet, step), why=f"{step} durable")
        save_files(fleet, 30, form=form, ranks=(1,))
        for pod in fleet.pods:
            pod.exit_code = 0
        await fleet.until(
            lambda: all(pod.report.phase is SidecarPhase.DRAINED for pod in fleet.pods),
            why="all drained",
        )
        assert fleet.durable_steps() == [10, 20]
        outputs = tmp_path / "store/ns/gpt/outputs/f1"
        found = [p.relative_to(outputs).as_posix() for p in outputs.rglob("*.pt")]
        assert found == [".rank1/rank1/step_30.pt"]


def whole_save_of_rank_zero(fleet: Fleet, step: int) -> None:
    """All that its `.metadata` names lies with rank 0."""
    made = fleet.directory / f"whole-{step}"
    dcp_directory(made, {**KEYS, "step": step}, ranks=1)
    home = fleet.pods[0].path / f"step_{step}"
    home.mkdir()
    for name in ("__0_0.distcp", ".metadata"):
        (home / name).write_bytes((made / name).read_bytes())


async def test_a_last_save_of_one_rank_that_its_layout_finds_whole_is_durable(
    tmp_path: Path,
) -> None:
    """The other rank ended one save early; all that `.metadata` names lies with this one."""
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        for step in (10, 20):
            save(fleet, step, place="step_{}")
            await fleet.until(partial(is_durable, fleet, step), why=f"{step} durable")
        whole_save_of_rank_zero(fleet, 30)
        for pod in fleet.pods:
            pod.exit_code = 0
        await fleet.until(
            lambda: all(pod.report.phase is SidecarPhase.DRAINED for pod in fleet.pods),
            why="all drained",
        )
        assert fleet.durable_steps() == [10, 20, 30]


async def test_a_share_that_is_still_being_written_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is much slower than the other's, and rank 0 is told that it writes."""
    monkeypatch.setattr(holding, "USUAL_GRACE_SECONDS", 1.0)
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        save(fleet, 10, place="step_{}", ranks=(0,))
        home = fleet.pods[1].path / "step_10"
        home.mkdir()
        whole = (fleet.directory / "whole-10" / "__1_0.distcp").read_bytes()
        part = len(whole) // 20 + 1
        with (home / "__1_0.distcp").open("wb") as file:
            for start in range(0, len(whole), part):
                file.write(whole[start : start + part])
                file.flush()
                await asyncio.sleep(0.25)
        await fleet.until(partial(is_durable, fleet, 10), why="10 durable", seconds=20)
        assert not verdicts(fleet.pods[0])


@pytest.mark.parametrize("code", [0, 1])
async def test_nor_where_pods_have_more_processes_than_anybody_stated(
    tmp_path: Path, code: int
) -> None:
    """Two in each: what the first pod wrote has as many ranks' files as there are pods."""

    def save_two(fleet: Fleet, step: int, *, pods: Collection[int] = (0, 1)) -> None:
        for rank in (2 * pod + process for pod in pods for process in (0, 1)):
            path = fleet.pods[rank // 2].path / f"step_{step}" / f"state_rank{rank}.pt"
            path.parent.mkdir(exist_ok=True)
            toy_trainer.save(path, shard(step, rank))

    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        for step in (10, 20):
            save_two(fleet, step)
            await fleet.until(partial(is_durable, fleet, step), why=f"{step} durable")
        save_two(fleet, 30, pods=(0,))
        for pod in fleet.pods:
            pod.exit_code = code
        if code:
            assert (await fleet.begin()).step == 20
        else:
            drained = [SidecarPhase.DRAINED] * 2
            await fleet.until(
                lambda: [pod.report.phase for pod in fleet.pods] == drained, why="all drained"
            )
        assert fleet.durable_steps() == [10, 20]


async def test_who_did_not_share_in_the_last_save_is_waited_for_in_the_next(
    tmp_path: Path,
) -> None:
    """One rank ended before the last save, and in the next attempt it is the slower one."""
    async with Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        for step in (10, 20):
            save(fleet, step, place="step_{}")
            await fleet.until(partial(is_durable, fleet, step), why=f"{step} durable")
        whole_save_of_rank_zero(fleet, 30)
        for pod in fleet.pods:
            pod.exit_code = 1
        assert (await fleet.begin()).step == 30
        save(fleet, 40, place="step_{}", ranks=(0,))
        await fleet.until(lambda: fleet.pods[0].report.checkpoint.pending_saves, why="seen")
        await asyncio.sleep(4.0)
        save(fleet, 40, place="step_{}", ranks=(1,))
        await fleet.until(partial(is_durable, fleet, 40), why="40 durable", seconds=20)
        assert [verdicts(pod) for pod in fleet.pods] == [[], []]
