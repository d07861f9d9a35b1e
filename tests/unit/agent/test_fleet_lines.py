"""After a roll-back: what was on its way on the line that was left never counts as the newest."""

from __future__ import annotations

from pathlib import Path

from kit.fleet import Fleet
from kit.fleet_pod import Held
from rtj_api.wire import Phase, Resume, SidecarPhase, Wanted


async def test_a_commit_that_comes_after_the_roll_back_is_a_branch(tmp_path: Path) -> None:
    """Its last part came during the choice, and its commit is on its way when the line begins."""
    fleet = Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store", mirror="never")
    async with fleet:
        await fleet.begin()
        fleet.save(10)
        await fleet.until_durable(10)
        part = Held(fleet.pods[1], "put", "parts/f1/2/1")
        fleet.save(20)
        await fleet.until(part.asked.is_set, why="rank 1 sent its files of step 20")
        await fleet.prepare(wanted=Wanted(value="f1-n1-s10", asked="request 1"))
        found = fleet.pods[0].report.found
        assert found is not None
        assert found.save is not None
        commit = Held(fleet.pods[0], "put", "manifests/f1-n2")
        part.free.set()
        await fleet.until(commit.asked.is_set, why="step 20 is about to be committed")
        resume = Resume(run="ns/gpt", name=found.save.name, step=10, asked="request 1")
        fleet.direct(Phase.RESTORE, resume=resume)
        await fleet.reach(SidecarPhase.RESTORED)
        commit.free.set()
        await fleet.until(lambda: 20 in fleet.durable_steps(), why="the late commit")
        fleet.direct(Phase.GO, resume=resume)
        await fleet.until(lambda: all(2 in pod.trained for pod in fleet.pods), why="both train")
        for pod in fleet.pods:
            await fleet.until(
                lambda pod=pod: pod.report.checkpoint.pending_saves == 0,  # type: ignore[misc]
                why="nothing waits for a save that was left",
            )
            assert pod.report.checkpoint.last_durable_name == "f1-n1-s10"
            assert pod.agent.shipping.newest_durable == "f1-n1-s10"
        fleet.save(30)
        await fleet.until_durable(30)
        assert fleet.pods[0].report.checkpoint.last_durable_name == "f2-n1-s30"


async def test_what_is_left_behind_is_dropped_by_name(tmp_path: Path) -> None:
    """A save whose part never came is given up by all ranks, and says why."""
    fleet = Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store", mirror="never")
    async with fleet:
        await fleet.begin()
        fleet.save(10)
        await fleet.until_durable(10)
        part = Held(fleet.pods[1], "put", "parts/f1/2/1")
        fleet.save(20)
        await fleet.until(part.asked.is_set, why="rank 1 sent its files of step 20")
        await fleet.prepare(wanted=Wanted(value="f1-n1-s10", asked="request 1"))
        resume = Resume(run="ns/gpt", name="f1-n1-s10", step=10, asked="request 1")
        fleet.direct(Phase.RESTORE, resume=resume)
        await fleet.reach(SidecarPhase.RESTORED)
        assert "began from f1-n1-s10" in fleet.dropped()["f1-n2"]
        part.free.set()
        fleet.direct(Phase.GO, resume=resume)
        await fleet.until(
            lambda: all(pod.report.checkpoint.pending_saves == 0 for pod in fleet.pods),
            why="no rank waits for it",
        )
        assert fleet.durable_steps() == [10]
