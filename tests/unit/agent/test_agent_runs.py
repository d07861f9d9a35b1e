"""One run and several who want it: real agents, supervisors and trainers on one store."""

from __future__ import annotations

import json
from pathlib import Path

from kit.orders import SCRATCH, SECONDS, gone, prepared
from kit.podlike import PodLike, make_pod, trainer_command
from rtj_api.reasons import Reason
from rtj_api.wire import Candidate, Phase, Report, Resume, SidecarPhase, TrainerState, Wanted
from rtj_sidecar.runs.conditions import APART


def endless(path: Path) -> list[str]:
    return trainer_command(path, steps=100_000)


def begin(
    pods: list[PodLike], directory: Path, *, job: str, store: Path, **more: object
) -> PodLike:
    pod = make_pod(directory / job, store=store, job_uid=job, command=endless, **more)
    pods.append(pod)
    return pod.start()


def of(save: Candidate, *, asked: str | None = None) -> Resume:
    return Resume(run="ns/gpt", name=save.name, step=save.step, durable=True, asked=asked)


def durable_beyond(pod: PodLike, step: int, *, count: int = 1) -> list[Candidate]:
    def look(report: Report) -> list[Candidate]:
        new = [c for c in report.candidates if c.durable and (c.step or 0) > step]
        return new if len(new) >= count else []

    return look(pod.until(look, seconds=SECONDS))


def test_a_rollback_by_full_name_begins_a_line_of_its_own_and_acts_once(
    pods: list[PodLike], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    pod = begin(pods, tmp_path, job="job-1", store=store)
    prepared(pod, 1)
    gone(pod, 1, SCRATCH)
    *newer, oldest = durable_beyond(pod, 0, count=3)
    wish = Wanted(value=oldest.name, asked="request 1")
    pod.direct(Phase.PREPARE, 2, wanted=wish)
    report = pod.until(lambda r: r.found is not None, seconds=SECONDS)
    assert report.found is not None
    assert report.found.save is not None, report.found.problem
    assert (report.found.asked, report.found.save.name) == ("request 1", oldest.name)
    pod.until_phase(SidecarPhase.PREPARED, 2, seconds=SECONDS)
    restored = gone(pod, 2, of(report.found.save, asked="request 1"))
    assert [c.name for c in restored.candidates] == [oldest.name], "the newer ones are a branch"
    assert restored.checkpoint.last_durable_name == oldest.name
    assert restored.acted == ["request 1"]
    begun = durable_beyond(pod, oldest.step or 0)
    assert all(c.name.startswith("f2-") for c in begun)
    manifests = {p.stem for p in (store / "ns/gpt/manifests").glob("*.json")}
    assert {c.name.rpartition("-s")[0] for c in newer} <= manifests, "nothing was deleted"
    # The same wish again, as after a job that was applied anew: the run remembers.
    again = prepared(pod, 3, wanted=wish)
    assert again.found is None
    assert again.acted == ["request 1"]
    assert again.candidates[0].name.startswith("f2-")
    assert [c.name for c in again.candidates][-1] == oldest.name


def test_a_start_from_nothing_beside_older_saves(pods: list[PodLike], tmp_path: Path) -> None:
    store = tmp_path / "store"
    pod = begin(pods, tmp_path, job="job-1", store=store)
    prepared(pod, 1)
    gone(pod, 1, SCRATCH)
    old = durable_beyond(pod, 0, count=2)
    report = prepared(pod, 2, wanted=Wanted(asked="Fresh of job"))
    assert report.found is not None
    assert len(report.candidates) >= len(old)
    fresh = gone(pod, 2, Resume(scratch=True, asked="Fresh of job"))
    assert fresh.candidates == []
    assert fresh.checkpoint.last_durable_name is None
    begun = pod.until(
        lambda r: r.attempt == 2 and any(c.durable for c in r.candidates), seconds=SECONDS
    )
    assert {c.name[:3] for c in begun.candidates} == {"f2-"}


def test_another_runs_newest_save_is_brought_into_this_run(
    pods: list[PodLike], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    theirs = begin(pods, tmp_path, job="job-1", store=store)
    prepared(theirs, 1)
    gone(theirs, 1, SCRATCH)
    durable_beyond(theirs, 0, count=2)
    theirs.kill_trainer()
    ended = theirs.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=SECONDS)
    theirs.end()
    (store / "ns/gpt").rename(store / "theirs")  # as a run of another name
    run = json.loads((store / "theirs/run.json").read_text())
    (store / "theirs/run.json").write_text(json.dumps(run | {"runID": "theirs"}))
    mine = begin(pods, tmp_path, job="job-2", store=store)
    mine.direct(Phase.PREPARE, 1, wanted=Wanted(value=(store / "theirs").as_uri(), asked="spec"))
    report = mine.until(lambda r: r.found is not None, seconds=SECONDS)
    assert report.found is not None
    assert report.found.save is not None, report.found.problem
    assert report.found.save.step == ended.checkpoint.last_durable_step
    mine.until_phase(SidecarPhase.PREPARED, 1, seconds=SECONDS)
    gone(mine, 1, of(report.found.save, asked="spec"))
    new = durable_beyond(mine, report.found.save.step or 0)
    assert new[-1].name.startswith("f1-")
    assert mine.report().candidates[-1].name == report.found.save.name


def test_a_store_without_conditional_writes_is_told_and_gives_no_run_away(
    pods: list[PodLike], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    first = begin(pods, tmp_path, job="job-1", store=store)
    prepared(first, 1)
    run = json.loads((store / "ns/gpt/run.json").read_text())
    first.end()
    for path in (store / "ns/gpt/fences").iterdir():
        path.unlink()
    run["store"] |= {"conditionalCreate": False, "conditionalReplace": False}
    (store / "ns/gpt/run.json").write_text(json.dumps(run))
    second = begin(pods, tmp_path, job="job-2", store=store)
    told = prepared(second, 4)
    assert Reason.STORE_WITHOUT_CONDITIONS in [problem.reason for problem in told.degraded]
    assert told.fence == 4, "the number of the attempt"
    gone(second, 4, SCRATCH)
    durable_beyond(second, 0)
    second.end()
    third = begin(pods, tmp_path, job="job-3", store=store)
    third.direct(Phase.PREPARE, 1)
    refused = third.until_phase(SidecarPhase.FAILED, 1, seconds=SECONDS)
    assert refused.holder is not None
    assert refused.holder.person_only
    third.direct(Phase.PREPARE, 1, may_claim=True)
    taken = third.until(lambda r: r.phase is SidecarPhase.PREPARED, seconds=SECONDS)
    assert taken.fence == 4 + APART + 1
    assert any(c.durable for c in taken.candidates)


def test_a_living_job_is_not_touched_until_it_is_taken_over_by_name(
    pods: list[PodLike], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    first = begin(pods, tmp_path, job="job-1", store=store, image="a:1")
    prepared(first, 1)
    gone(first, 1, SCRATCH)
    durable_beyond(first, 0)
    second = begin(pods, tmp_path, job="job-2", store=store, image="a:2")
    second.direct(Phase.PREPARE, 1)
    refused = second.until_phase(SidecarPhase.FAILED, 1, seconds=SECONDS)
    assert refused.problem is not None
    assert (refused.problem.reason, refused.fence_owner) == (Reason.RUN_IN_USE, "cluster/job-1")
    assert refused.holder is not None
    holder = refused.holder
    assert (holder.namespace, holder.job, holder.attempt) == ("ns", "gpt", 1)
    assert holder.changes == ["image a:1 -> a:2"]
    before = first.report().checkpoint.last_durable_step or 0
    durable_beyond(first, before)
    assert first.report().phase is SidecarPhase.TRAINING, "the owner trains on"
    # The same attempt goes on: until it has heard of the leave, it tells of the refusal.
    second.direct(Phase.PREPARE, 1, may_claim=True)
    taken = second.until(lambda r: r.phase is SidecarPhase.PREPARED, seconds=SECONDS)
    assert taken.fence is not None
    assert taken.fence_owner is None
    resume = of(next(c for c in taken.candidates if c.durable))
    gone(second, 1, resume)
    lost = first.until(lambda r: r.phase is SidecarPhase.FAILED, seconds=SECONDS)
    assert lost.problem is not None
    assert lost.problem.reason == Reason.FENCE_TAKEN
    first.until(lambda r: r.trainer.state is TrainerState.EXITED, seconds=SECONDS)
    names = [p.stem for p in (store / "ns/gpt/manifests").glob("f1-*.json")]
    durable_beyond(second, resume.step or 0)
    assert sorted(names) == sorted(p.stem for p in (store / "ns/gpt/manifests").glob("f1-*.json"))
