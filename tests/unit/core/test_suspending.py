"""Suspend: after the next save within a limit, and never at the price of a save."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.observations import later, new_job, pod_of, running, started, with_job, with_report
from kit.scenarios import SCENARIOS, state, trains
from kit.simulated import World
from kit.simulated_operator import Operator
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType, JobPhase, StandIn
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import JobSpec, Observed, ReportView
from rtj_operator.core.plan import CreatePod, DeletePod, PatchDirective


def operator(**spec: object) -> Operator:
    fields = {"replicas": 2, "run_id": "ns/gpt", "template_hash": "h1", **spec}
    return Operator(World(spec=JobSpec(**fields)))  # type: ignore[arg-type]


def test_the_next_save_is_waited_for_and_no_step_is_lost() -> None:
    op = operator(suspend_wait_seconds=60)
    trains(op, step=8)
    step = state(op).progress.step or 0
    op.run_until(lambda: (op.world.pod_of(0).trainer.step or 0) % op.world.save_every == 1)
    op.world.change_spec(suspend=True)
    op.run(0.5)
    assert state(op).pending_suspend is not None
    assert state(op).phase == JobPhase.RUNNING
    op.run_until(lambda: state(op).phase == JobPhase.SUSPENDED and not op.world.pods)
    newest = op.world.store.newest()
    assert newest is not None
    assert newest.step > step
    trained = max(s.step for s in op.world.store.saves)
    assert newest.step == trained
    assert state(op).pending_suspend is None
    assert state(op).restarts == 0


def test_a_save_that_does_not_come_is_waited_for_no_longer_than_the_limit() -> None:
    op = operator(suspend_wait_seconds=30)
    op.world.save_every = 10_000
    op.run_until(lambda: state(op).phase == JobPhase.RUNNING)
    op.world.change_spec(suspend=True)
    began = op.world.now
    op.run_until(lambda: state(op).phase == JobPhase.SUSPENDED)
    assert 30 <= op.world.now - began < 35


def test_while_no_rank_trains_it_is_at_once() -> None:
    op = operator(suspend_wait_seconds=600)
    op.run_until(lambda: state(op).attempt == 1)
    op.world.change_spec(suspend=True)
    op.run_until(lambda: state(op).phase == JobPhase.SUSPENDED, within=5)
    op.run_until(lambda: not op.world.pods, within=20)


def test_a_crash_while_it_waits_suspends_at_once_and_starts_nothing() -> None:
    op = operator(suspend_wait_seconds=600)
    op.world.save_every = 10_000
    op.run_until(lambda: state(op).phase == JobPhase.RUNNING)
    op.world.change_spec(suspend=True)
    op.run(2)
    op.world.kill_trainer(1, code=1)
    op.run_until(lambda: state(op).phase == JobPhase.SUSPENDED, within=5)
    assert state(op).attempt == 1


def test_unset_before_the_save_came_nothing_has_happened() -> None:
    op = operator(suspend_wait_seconds=600)
    op.world.save_every = 10_000
    op.run_until(lambda: state(op).phase == JobPhase.RUNNING)
    op.world.change_spec(suspend=True)
    op.run(2)
    op.world.change_spec(suspend=False)
    op.run(2)
    assert state(op).pending_suspend is None
    assert (state(op).phase, state(op).attempt) == (JobPhase.RUNNING, 1)


# --- with saves that are not durable ---


def suspended(observed: Observed) -> Observed:
    assert observed.job is not None
    assert observed.job.spec is not None
    spec = replace(observed.job.spec, suspend=True)
    seen = with_job(observed, spec=spec, generation=observed.job.generation + 1)
    plan = decide(seen)
    assert plan.status is not None
    assert plan.status.hold is not None
    return with_job(seen, status=plan.status, resource_version="900")


def stopped(observed: Observed, rank: int, *, pending: int, phase: str) -> Observed:
    """That rank's trainer has ended at the stop."""

    def change(report: wire.Report) -> wire.Report:
        ended = {"state": wire.TrainerState.EXITED, "exit_code": 0, "asked_to_stop": True}
        return report.model_copy(
            update={
                "phase": wire.SidecarPhase(phase),
                "trainer": report.trainer.model_copy(update=ended),
                "checkpoint": report.checkpoint.model_copy(
                    update={"pending_saves": pending, "last_saved_step": 12}
                ),
            }
        )

    return with_report(observed, rank, change)


def deleted(observed: Observed) -> set[int]:
    names = {a.name for a in decide(observed).actions if isinstance(a, DeletePod)}
    return {p.rank for p in observed.pods if p.name in names}


def test_rank_0_stays_while_another_rank_may_still_save() -> None:
    seen = stopped(suspended(running()), 0, pending=0, phase="Drained")
    assert deleted(seen) == set()
    both = stopped(seen, 1, pending=1, phase="Draining")
    assert deleted(both) == set()
    assert deleted(stopped(both, 1, pending=0, phase="Drained")) == {0, 1}


def test_the_condition_names_the_rank_and_the_save_that_is_waited_for() -> None:
    seen = stopped(suspended(running()), 0, pending=0, phase="Drained")
    seen = stopped(seen, 1, pending=1, phase="Draining")
    trouble = wire.Problem(reason="StoreUnreachable", message="s3 is down", since=1.0)
    seen = with_report(seen, 0, lambda r: r.model_copy(update={"degraded": [trouble]}))
    for _ in range(5):
        plan = decide(seen)
        if plan.status is not None:
            break
        assert all(isinstance(a, PatchDirective) for a in plan.actions)
        told = {a.pod: a.directive for a in plan.actions if isinstance(a, PatchDirective)}
        pods = tuple(replace(p, directive=told.get(p.name, p.directive)) for p in seen.pods)
        seen = replace(seen, pods=pods)
    assert plan.status is not None
    condition = plan.status.condition(ConditionType.SUSPENDED)
    assert condition is not None
    assert condition.reason == Reason.SUSPENDING
    for word in ("rank 1", "step 12", "s3 is down"):
        assert word in condition.message


def test_what_a_silent_pod_has_told_last_still_counts() -> None:
    seen = stopped(suspended(running()), 0, pending=0, phase="Drained")
    seen = stopped(seen, 1, pending=1, phase="Draining")
    uid = pod_of(seen, 1).uid
    view = replace(seen.reports[uid], connected=False, last_contact=seen.now - 1)
    silent = replace(seen, reports={**seen.reports, uid: view})
    assert 1 not in deleted(later(silent, 15))


def back_after(observed: Observed, seconds: float) -> Observed:
    """A new operator begins to poll, so long after; its nodes live and nobody was heard yet."""
    seen = later(observed, seconds)
    unheard = ReportView(
        report=None, received_at=None, connected=False, last_contact=None, polled_since=seen.now
    )
    nodes = {n: replace(v, lease_renewed_at=seen.now) for n, v in seen.nodes.items()}
    return replace(seen, reports=dict.fromkeys(seen.reports, unheard), nodes=nodes)


def test_an_operator_that_comes_back_hears_who_has_a_save_before_it_deletes() -> None:
    saved = stopped(suspended(running()), 0, pending=0, phase="Drained")
    saved = stopped(saved, 1, pending=1, phase="Draining")
    back = back_after(saved, 3600)
    assert deleted(back) == set(), "nobody was heard yet"
    heard = replace(back.reports[pod_of(back, 1).uid], last_contact=back.now, connected=True)
    for rank in (0, 1):
        uid = pod_of(saved, rank).uid
        view = replace(heard, report=saved.reports[uid].report, received_at=back.now)
        back = replace(back, reports={**back.reports, uid: view})
    assert deleted(back) == set(), "rank 1 has a save, and only rank 0 can commit it"


def test_a_pod_that_stays_silent_is_given_up_after_the_patience_of_a_first_report() -> None:
    back = back_after(suspended(running()), 3600)
    nodes = {n: replace(v, lease_renewed_at=back.now + 181) for n, v in back.nodes.items()}
    late = replace(later(back, 181), nodes=nodes)
    assert deleted(late) == {0, 1}
    never_ran = replace(pod_of(back, 1), sidecar=None, trainer=None)
    pods = (pod_of(back, 0), never_ran)
    assert deleted(replace(back, pods=pods)) == {1}, "it has never run and holds nothing"


def test_a_lost_rank_0_is_made_anew_to_commit_what_the_others_saved() -> None:
    seen = stopped(suspended(running()), 1, pending=1, phase="Draining")
    seen = replace(seen, pods=tuple(p for p in seen.pods if p.rank != 0))
    plan = decide(seen)
    status = plan.status
    assert status is not None
    assert (status.attempt, status.placements[0]) == (2, 2)
    assert status.hold is not None
    assert status.hold.reason == Reason.SUSPENDED
    assert status.starts == 1
    after = with_job(seen, status=status, resource_version="901")
    actions = decide(after).actions
    assert [a.rank for a in actions if isinstance(a, CreatePod)] == [0]
    told = [a.directive for a in actions if isinstance(a, PatchDirective)]
    assert [(d.rank, d.phase) for d in told] == [(1, wire.Phase.STOP)]
    assert deleted(after) == set()


def test_a_spare_that_was_to_be_rank_0_and_is_gone_is_not_made_anew() -> None:
    """It had been recorded, and lost before it was told: rank 0 gets a pod of its own."""
    seen = stopped(suspended(running()), 1, pending=1, phase="Draining")
    seen = replace(seen, pods=tuple(p for p in seen.pods if p.rank != 0))
    status = decide(seen).status
    assert status is not None
    lost = StandIn(rank=0, spare=0, made_in=1)
    after = with_job(seen, status=status.model_copy(update={"stand_ins": [lost]}))
    again = decide(after).status
    assert again is not None
    assert (again.attempt, again.placements[0], again.stand_ins) == (3, 3, [])
    made = decide(with_job(seen, status=again)).actions
    assert [a.name for a in made if isinstance(a, CreatePod)] == ["gpt-0-3-abcd"]


def test_a_rank_0_made_anew_takes_no_pod_of_an_older_template_along() -> None:
    """That pod has the save; as no rank's own it would be deleted."""
    seen = stopped(suspended(running()), 1, pending=1, phase="Draining")
    assert seen.job is not None
    assert seen.job.spec is not None
    changed = replace(seen.job.spec, template_hash="h2")
    pods = tuple(p for p in seen.pods if p.rank != 0)
    seen = with_job(replace(seen, pods=pods), spec=changed, generation=seen.job.generation + 1)
    plan = decide(seen)
    assert plan.status is not None
    assert plan.status.placements == [2, 1]
    assert deleted(with_job(seen, status=plan.status, resource_version="901")) == set()


def test_a_rank_without_a_pod_is_named_in_the_stop_and_stays_named() -> None:
    seen = suspended(running())
    seen = replace(seen, pods=tuple(p for p in seen.pods if p.rank != 1))
    plan = decide(seen)
    told = [a.directive for a in plan.actions if isinstance(a, PatchDirective)]
    assert [d.replaced for d in told] == [[1]]


@pytest.mark.parametrize("story", ["suspended_and_resumed", "template_changed"])
def test_the_stories_end_as_before(story: str) -> None:
    op = SCENARIOS[story].run()
    assert state(op).phase == JobPhase.RUNNING


def test_a_new_job_that_is_suspended_makes_no_pod() -> None:
    op = started(new_job())
    assert op.world.pods
    op = operator(suspend=True, suspend_wait_seconds=60)
    op.run(10)
    assert not op.world.pods
