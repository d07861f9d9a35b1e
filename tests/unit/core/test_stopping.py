"""Which signs of a coming end count, how much time they give, and what each rank is told when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.observations import (
    applied,
    later,
    pod_of,
    running,
    with_exit,
    with_job,
    with_pod,
    with_report,
)
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import PatchDirective, Plan

SPOT = "aws-node-termination-handler/spot-itn:NoSchedule"


@pytest.fixture(scope="module")
def gang() -> Observed:
    seen = running(obeys_stop=True)
    for rank in (0, 1):
        seen = with_report(seen, rank, paced)
    return seen


def paced(report: wire.Report, *, step: int = 120, **fields: Any) -> wire.Report:
    progress = report.progress.model_copy(
        update={"step": step, "pace_seconds": 1.0, "updated_at": report.sent_at}
    )
    return report.model_copy(update={"progress": progress, **fields})


def evicted(seen: Observed, rank: int, *, grace: float = 330) -> Observed:
    return with_pod(
        seen,
        rank,
        deleting_since=seen.now,
        deletion_deadline=seen.now + grace,
        disruption="EvictionByEvictionAPI",
    )


def tainted(seen: Observed, rank: int, *taints: str) -> Observed:
    name = pod_of(seen, rank).node or ""
    return replace(seen, nodes={**seen.nodes, name: replace(seen.nodes[name], taints=taints)})


def terminating(seen: Observed, rank: int, *, ago: float) -> Observed:
    """Its supervisor was sent SIGTERM `ago` seconds before now, and no deletion is seen."""

    def change(report: wire.Report) -> wire.Report:
        signalled = {"terminating": True, "term_received_at": seen.now - ago}
        return report.model_copy(update={**signalled, "sent_at": seen.now})

    uid = pod_of(seen, rank).uid
    seen = with_report(seen, rank, change)
    view = replace(seen.reports[uid], received_at=seen.now)
    return replace(seen, reports={**seen.reports, uid: view})


def decided(plan: Plan) -> tuple[str, str, str]:
    assert plan.rule == "stop", plan
    assert plan.status is not None
    stop = plan.status.stop
    assert stop is not None
    return stop.verdict, stop.cause, stop.message


@pytest.mark.parametrize("grace", [330.0, 30.0, 12.0, 1.0])
def test_a_deletion_leaves_what_the_api_server_says(gang: Observed, grace: float) -> None:
    verdict, cause, message = decided(decide(evicted(gang, 1, grace=grace)))
    assert cause == Reason.POD_EVICTED
    assert f"{grace - 2:.1f} s" in message
    assert (verdict == "Agreed") == (grace >= 30)


@pytest.mark.parametrize(
    ("taint", "left"),
    [(SPOT, "110.0 s"), ("cloud.google.com/impending-node-termination:NoSchedule", "25.0 s")],
)
def test_a_notice_leaves_what_its_cloud_gives(gang: Observed, taint: str, left: str) -> None:
    verdict, cause, message = decided(decide(tainted(gang, 0, "other:NoSchedule", taint)))
    assert (verdict, cause) == ("Agreed", Reason.NODE_LEAVING)
    assert left in message
    assert taint in message


@pytest.mark.parametrize(
    "taint",
    [
        "node.kubernetes.io/unschedulable:NoSchedule",
        "aws-node-termination-handler/rebalance-recommendation:NoSchedule",
        "kubernetes.azure.com/scalesetpriority:NoSchedule",
        "ToBeDeletedByClusterAutoscaler:NoSchedule",
    ],
)
def test_what_names_no_time_is_no_notice(gang: Observed, taint: str) -> None:
    assert decide(tainted(gang, 0, taint)).is_empty


def test_a_pod_that_was_signalled_and_not_deleted_is_on_a_node_that_shuts_down(
    gang: Observed,
) -> None:
    early = decide(terminating(gang, 1, ago=0.5))
    assert early.is_empty, "the deletion may be about to be read"
    assert early.wake_at is not None
    assert early.wake_at <= gang.now + 1.1
    verdict, cause, message = decided(decide(terminating(gang, 1, ago=2)))
    assert (verdict, cause) == ("Agreed", Reason.POD_EVICTED)
    assert "18.0 s" in message


def test_the_ending_pod_is_told_first_and_the_others_when_it_has_it(gang: Observed) -> None:
    seen = applied(evicted(gang, 1), decide(evicted(gang, 1)))
    step = seen.job.status.stop.step if seen.job and seen.job.status.stop else 0
    assert told(decide(seen)) == {1: step}
    heard = with_report(seen, 1, lambda r: r.model_copy(update={"stop_step": step}))
    assert told(decide(heard)) == {0: step, 1: step}
    silent = decide(later(fresh(seen), 4))
    assert silent.status is not None
    assert silent.status.stop is not None
    assert silent.status.stop.verdict == "Missed"
    assert [n.reason for n in silent.notes] == [Reason.STOP_MISSED]


def fresh(seen: Observed) -> Observed:
    """The reports are heard four seconds later, too."""
    views = {uid: replace(v, last_contact=seen.now + 4) for uid, v in seen.reports.items()}
    return replace(seen, reports=views)


def told(plan: Plan) -> dict[int, int | None]:
    """By rank, each with the go that it has carried out."""
    said = [a.directive for a in plan.actions if isinstance(a, PatchDirective)]
    assert all(d.phase is wire.Phase.GO for d in said)
    return {d.rank: d.stop_step for d in said}


def test_a_second_pod_with_a_shorter_grace_is_signalled_in_time(gang: Observed) -> None:
    """It was told of the first pod's time, and the kubelet kills it long before that."""
    seen = applied(evicted(gang, 1), decide(evicted(gang, 1)))
    stop = seen.job.status.stop if seen.job else None
    assert stop is not None
    assert stop.until is not None
    for rank in (1, 0):
        directive = next(
            a.directive
            for a in decide(seen).actions
            if isinstance(a, PatchDirective) and a.directive.rank == rank
        )
        seen = with_pod(seen, rank, directive=directive)
        seen = with_report(seen, rank, lambda r: r.model_copy(update={"stop_step": stop.step}))
    assert not told(decide(seen))
    seen = later(fresh(seen), 4)
    for grace, within in ((300, None), (10, 3.5)):
        second = evicted(seen, 0, grace=grace)
        second = applied(second, decide(second))
        patches = [a.directive for a in decide(second).actions if isinstance(a, PatchDirective)]
        assert [(d.rank, d.stop_step, d.stop_within) for d in patches] == (
            [] if within is None else [(0, stop.step, within)]
        )
    again = later(with_pod(second, 0, directive=patches[0]), 1)
    assert not told(decide(again)), "said once"


def test_a_second_pod_that_is_done_first_does_not_end_the_others_save(gang: Observed) -> None:
    seen = applied(evicted(gang, 1), decide(evicted(gang, 1)))
    stop = seen.job.status.stop if seen.job else None
    assert stop is not None
    for rank in (0, 1):
        seen = with_report(seen, rank, lambda r: r.model_copy(update={"stop_step": stop.step}))
    second = evicted(seen, 0, grace=20)
    plan = decide(second)
    assert plan.rule == "stop"
    assert plan.status is not None
    assert plan.status.stop is not None
    assert (plan.status.stop.ranks, plan.status.attempt) == ([0, 1], 1)
    second = applied(second, plan)
    done = with_exit(second, 0, exit_code=0, asked_to_stop=True)
    gone = with_pod(done, 0, phase="Succeeded")
    assert decide(gone).rule != "fault", "rank 1 is saving"
    assert decide(with_pod(seen, 0, phase="Succeeded")).rule == "fault"
    both = with_exit(gone, 1, exit_code=0, asked_to_stop=True)
    plan = decide(both)
    assert plan.status is not None
    assert plan.status.current is not None
    assert (plan.rule, plan.status.current.replaced) == ("stop", [0, 1])


def test_an_end_with_0_there_is_neither_success_nor_fault(gang: Observed) -> None:
    seen = applied(tainted(gang, 1, SPOT), decide(tainted(gang, 1, SPOT)))
    step = seen.job.status.stop.step if seen.job and seen.job.status.stop else 0
    for rank in (0, 1):
        ended = {"exit_code": 0, "asked_to_stop": True}
        seen = with_exit(seen, rank, **ended)
        seen = with_report(seen, rank, lambda r: r.model_copy(update={"stop_step": step}))
        plan = decide(seen)
        if rank == 0:
            assert plan.rule != "fault"
            assert plan.status is None or plan.status.attempt == 1
    assert plan.status is not None
    assert (plan.rule, plan.status.attempt) == ("stop", 2)
    current = plan.status.current
    assert current is not None
    assert (current.cause, current.replaced) == (Reason.NODE_LEAVING, [1])
    assert plan.status.stop is None


def test_who_crashes_at_the_stop_has_crashed(gang: Observed) -> None:
    seen = applied(tainted(gang, 1, SPOT), decide(tainted(gang, 1, SPOT)))
    plan = decide(with_exit(seen, 0, exit_code=1, asked_to_stop=True))
    assert plan.status is not None
    assert plan.status.current is not None
    assert (plan.rule, plan.status.current.cause) == ("fault", Reason.TRAINER_FAILED)


def test_a_sidecar_that_knows_no_stop_steps_agrees_to_none(gang: Observed) -> None:
    seen = with_report(gang, 0, lambda r: r.model_copy(update={"can_stop": False}))
    verdict, _, message = decided(decide(evicted(seen, 1)))
    assert verdict == "FinishLast"
    assert "rank 0 cannot be reached" in message


def test_the_same_trouble_is_looked_at_once_and_another_anew(gang: Observed) -> None:
    small = evicted(gang, 1, grace=5)
    seen = applied(small, decide(small))
    assert decide(seen).rule == "fault"
    unpaced = with_report(
        gang, 0, lambda r: r.model_copy(update={"progress": wire.ProgressView(step=3)})
    )
    seen = tainted(unpaced, 1, SPOT)
    plan = decide(seen)
    assert decided(plan)[0] == "FinishLast"
    seen = applied(seen, plan)
    assert decide(seen).rule != "stop"
    again = with_report(seen, 0, paced)
    assert decided(decide(evicted(again, 1)))[0] == "Agreed"


def test_what_could_not_be_asked_for_is_asked_for_when_it_can(gang: Observed) -> None:
    """A pace that was not known, a rank that was not heard, saves that have become faster."""
    slow = with_report(gang, 0, lambda r: r.model_copy(update={"can_stop": False}))
    seen = tainted(slow, 1, SPOT)
    first = decide(seen)
    assert decided(first)[0] == "FinishLast"
    seen = applied(seen, first)
    assert decide(later(fresh(seen), 4)).rule != "stop", "said once"
    heard = with_report(seen, 0, lambda r: r.model_copy(update={"can_stop": True}))
    verdict, cause, message = decided(decide(heard))
    assert (verdict, cause) == ("Agreed", Reason.NODE_LEAVING)
    assert "110.0 s" in message


def test_a_notice_that_is_taken_back_is_shown_no_longer(gang: Observed) -> None:
    slow = with_report(gang, 0, lambda r: r.model_copy(update={"can_stop": False}))
    seen = tainted(slow, 1, SPOT)
    seen = applied(seen, decide(seen))
    back = decide(tainted(seen, 1))
    assert back.rule == "stop"
    assert back.status is not None
    assert back.status.stop is None
    assert "taken back" in back.why
    calm = applied(tainted(seen, 1), back)
    assert decide(calm).status is None
    assert decided(decide(tainted(calm, 1, SPOT)))[0] == "FinishLast"


def test_a_suspend_asks_for_its_step_as_soon_as_it_can(gang: Observed) -> None:
    assert gang.job is not None
    assert gang.job.spec is not None
    spec = replace(gang.job.spec, suspend=True, suspend_wait_seconds=60.0)
    seen = with_report(gang, 0, lambda r: r.model_copy(update={"can_stop": False}))
    seen = with_job(seen, spec=spec)
    plan = decide(seen)
    assert plan.status is not None
    assert plan.status.stop is not None
    assert (plan.rule, plan.status.stop.verdict) == ("suspend", "FinishLast")
    seen = later(fresh(applied(seen, plan)), 4)
    assert decide(seen).status is None
    plan = decide(with_report(seen, 0, lambda r: r.model_copy(update={"can_stop": True})))
    assert plan.status is not None
    assert plan.status.stop is not None
    assert (plan.rule, plan.status.stop.verdict) == ("suspend", "Agreed")
    assert "of the 56.0 s that are left" in plan.status.stop.message


@pytest.mark.parametrize(("ago", "left"), [(0.0, 110.0), (30.0, 80.0), (-5.0, 110.0)])
def test_a_notice_counts_from_when_it_was_given(gang: Observed, ago: float, left: float) -> None:
    seen = tainted(gang, 1, SPOT)
    name = pod_of(seen, 1).node or ""
    node = replace(seen.nodes[name], tainted_at={SPOT: seen.now - ago})
    _, _, message = decided(decide(replace(seen, nodes={**seen.nodes, name: node})))
    assert f"of the {left:.1f} s that are left" in message


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        ({"disruption": "EvictionByEvictionAPI"}, Reason.POD_EVICTED),
        ({"ended_by_queue": "Preempted to accommodate a workload"}, Reason.PREEMPTED_BY_QUEUE),
        (None, Reason.POD_DELETED),
    ],
)
def test_the_cause_is_what_the_api_server_says_a_moment_later(
    told: dict[str, Any] | None, cause: Reason
) -> None:
    """The word of a SIGTERM comes from the pod, and may overtake the list of pods."""
    plain = terminating(running(), 1, ago=0.4)
    early = decide(plain)
    assert early.status is None
    assert early.wake_at is not None
    assert early.wake_at <= plain.now + 1.2
    if told is None:
        seen = terminating(running(), 1, ago=1.6)
    else:
        ends = {"deleting_since": plain.now, "deletion_deadline": plain.now + 330}
        seen = with_pod(plain, 1, **ends, **told)
    plan = decide(seen)
    assert plan.status is not None
    assert plan.status.current is not None
    assert (plan.rule, plan.status.current.cause) == ("fault", cause)


def test_who_crashes_beside_a_pod_that_is_being_ended_is_its_victim() -> None:
    seen = terminating(running(), 1, ago=0.4)
    seen = with_exit(seen, 0, exit_code=1)
    assert decide(seen).status is None
    seen = with_pod(seen, 1, deleting_since=seen.now - 0.5, deletion_deadline=seen.now + 330)
    plan = decide(seen)
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.cause == Reason.POD_DELETED


@pytest.mark.parametrize("obeys", [True, False])
def test_an_operator_that_comes_back_brings_its_key_before_a_pod_ends(obeys: bool) -> None:
    """To a pod that is being ended the kubelet brings no annotation any more."""
    seen = with_pod(running(obeys_stop=obeys), 1, key_is_old=True)
    plan = decide(seen)
    assert told(plan) == ({1: None} if obeys else {})
    said = [a.directive for a in plan.actions if isinstance(a, PatchDirective)]
    assert all(d == pod_of(seen, 1).directive for d in said)


def test_a_pod_that_is_killed_before_its_step_is_an_ordinary_loss(gang: Observed) -> None:
    """The kubelet evicts for memory within a second: the others would wait for nothing."""
    seen = applied(terminating(gang, 1, ago=2), decide(terminating(gang, 1, ago=2)))
    killed = with_pod(seen, 1, phase="Failed", reason="Evicted", message="The node was low on it")
    plan = decide(killed)
    assert plan.status is not None
    assert (plan.rule, plan.status.attempt) == ("fault", 2)
    well = with_exit(killed, 1, exit_code=0, asked_to_stop=True)
    assert decide(well).rule == "stop", "it has saved there: the others are about to"
    stop = seen.job.status.stop if seen.job else None
    assert stop is not None
    by_signal = with_exit(killed, 1, exit_code=143, asked_to_stop=True)
    assert decide(by_signal).rule == "fault", "it was never told of the step"
    told_so = with_report(by_signal, 1, lambda r: r.model_copy(update={"stop_step": stop.step}))
    assert decide(told_so).rule == "stop"


def test_a_stop_that_was_asked_for_is_followed_up_whatever_the_spec_says_now(
    gang: Observed,
) -> None:
    """Trainers were told: their ends with 0 are neither successes nor faults, so nothing else
    would ever go on from there."""
    seen = applied(tainted(gang, 1, SPOT), decide(tainted(gang, 1, SPOT)))
    assert seen.job is not None
    assert seen.job.spec is not None
    step = seen.job.status.stop.step if seen.job.status.stop else 0
    seen = with_job(seen, spec=replace(seen.job.spec, obeys_stop=False))
    for rank in (0, 1):
        seen = with_exit(seen, rank, exit_code=0, asked_to_stop=True)
        seen = with_report(seen, rank, lambda r: r.model_copy(update={"stop_step": step}))
    plan = decide(seen)
    assert plan.status is not None
    assert (plan.rule, plan.status.attempt) == ("stop", 2)


def test_a_sidecar_that_does_not_say_since_when_it_ends_is_not_waited_for(gang: Observed) -> None:
    """One of an older version: the wait would begin anew with each pass."""
    seen = terminating(gang, 1, ago=2)
    seen = with_report(
        seen, 1, lambda r: r.model_copy(update={"term_received_at": None, "can_stop": False})
    )
    plan = decide(seen)
    assert decided(plan)[0] == "FinishLast"
    assert decide(applied(seen, plan)).rule == "fault"


def test_a_rank_that_may_be_writing_its_first_save_is_waited_for(gang: Observed) -> None:
    """Of a save in shards the others may be done before it; a stop would leave it torn."""
    seen = applied(tainted(gang, 1, SPOT), decide(tainted(gang, 1, SPOT)))
    stop = seen.job.status.stop if seen.job else None
    assert stop is not None
    assert stop.until is not None

    def done(report: wire.Report, *, saved: int | None) -> wire.Report:
        at = None if saved is None else seen.now
        shown = {"last_saved_step": saved, "last_saved_at": at}
        progress = report.progress.model_copy(update={"step": stop.step})
        save = report.checkpoint.model_copy(update=shown)
        return report.model_copy(
            update={"stop_step": stop.step, "progress": progress, "checkpoint": save}
        )

    seen = with_report(seen, 0, lambda r: done(r, saved=stop.step))
    seen = with_report(seen, 1, lambda r: done(r, saved=None))
    waiting = decide(seen)
    assert waiting.status is None or waiting.status.attempt == 1
    over = decide(later(seen, stop.until + 1.5 - seen.now))
    assert over.status is not None
    assert (over.rule, over.status.attempt) == ("stop", 2)
    other = with_report(seen, 1, lambda r: done(r, saved=stop.step))
    assert decide(other).rule == "stop"


@pytest.mark.parametrize("ended", [{"signal": 15}, {"exit_code": 143}, {"signal": 10}])
@pytest.mark.parametrize("saved", [True, False])
def test_who_ends_by_the_signal_that_tells_it_costs_the_user_nothing(
    gang: Observed, ended: dict[str, int], saved: bool
) -> None:
    """With recovery.stop.by: SIGTERM many a trainer saves and ends with 143, and not with 0."""
    seen = applied(tainted(gang, 1, SPOT), decide(tainted(gang, 1, SPOT)))
    stop = seen.job.status.stop if seen.job else None
    assert stop is not None

    def told(report: wire.Report) -> wire.Report:
        shown = {"last_saved_step": stop.step, "last_saved_at": seen.now} if saved else {}
        return report.model_copy(
            update={
                "stop_step": stop.step,
                "progress": report.progress.model_copy(update={"step": stop.step}),
                "checkpoint": report.checkpoint.model_copy(update=shown),
            }
        )

    for rank in (0, 1):
        seen = with_report(with_exit(seen, rank, asked_to_stop=True, **ended), rank, told)
    plan = decide(seen)
    assert plan.status is not None
    current = plan.status.current
    assert current is not None
    assert (plan.rule, current.replaced, current.charge) == ("stop", [1], "infrastructure")
    assert plan.status.budgets.restarts_since_progress == 0
    missed = Reason.STOP_MISSED in [note.reason for note in plan.notes]
    assert missed is not saved


@pytest.mark.parametrize("told_of", [(), (0,)])
def test_a_step_that_is_behind_by_now_is_told_to_nobody(
    gang: Observed, told_of: tuple[int, ...]
) -> None:
    """The operator died behind the record: each rank would stop where it hears of it."""
    seen = applied(tainted(gang, 1, SPOT), decide(tainted(gang, 1, SPOT)))
    for action in decide(seen).actions:
        if isinstance(action, PatchDirective) and action.directive.rank in told_of:
            seen = with_pod(seen, action.directive.rank, directive=action.directive)
    plan = decide(later(fresh(seen), 4.5))
    assert plan.status is not None
    assert plan.status.stop is not None
    assert plan.status.stop.verdict == "Missed"
    assert not told(decide(later(fresh(applied(seen, plan)), 4.6)))
