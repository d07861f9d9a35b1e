"""Every cause of a hold: it is entered, kept without harm, and left by its own remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from kit.decisions import prepared
from kit.observations import applied, later, running, with_exit, with_job, with_report, with_view
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.status import Hold
from rtj_operator.core import holds
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import DeletePod

DAY = 86_400.0

Step = Callable[[Observed], Observed]


def report(rank: int = 0, **fields: object) -> Step:
    return lambda seen: with_report(seen, rank, lambda r: r.model_copy(update=fields))


def gave_up(reason: Reason, rank: int = 0, **fields: object) -> Step:
    problem = wire.Problem(reason=reason, message="as told", since=1001.0)
    return report(rank, phase=wire.SidecarPhase.FAILED, problem=problem, **fields)


def unlisted(reason: Reason) -> Step:
    problem = wire.Problem(reason=reason, message="as told", since=1001.0)
    return report(0, listed=False, fence=None, degraded=[problem], candidates=[])


def heard_now(seen: Observed) -> Observed:
    for rank in (0, 1):
        seen = with_view(seen, rank, connected=True, last_contact=seen.now)
    nodes = {n: replace(v, lease_renewed_at=seen.now) for n, v in seen.nodes.items()}
    return replace(seen, nodes=nodes)


def spec_changed(seen: Observed) -> Observed:
    assert seen.job is not None
    return with_job(seen, generation=seen.job.generation + 1)


def store_answers(seen: Observed) -> Observed:
    return report(0, listed=True, fence=1, degraded=[], problem=None)(seen)


def asked_for(action: wire.RequestAction) -> Step:
    return lambda seen: with_job(seen, request=wire.Request(id="1", action=action))


def time_passes(seconds: float) -> Step:
    return lambda seen: heard_now(later(seen, seconds))


@dataclass(frozen=True)
class Case:
    enter: Step
    remedy: Step
    by_itself: bool  # it looks again without anybody's doing


BAD = wire.Candidate(name="f1-n1-s5", step=5, durable=True, invalid="CheckpointCorrupt", needs=[0])
REFUSED = wire.Candidate(
    name="f1-n1-s5",
    step=5,
    durable=True,
    failed_probe=wire.FailedProbe(how="exit code 3", message="`check`: exit code 3"),
    needs=[0],
)
CASES: dict[Reason, Case] = {
    **{
        reason: Case(unlisted(reason), store_answers, by_itself=True)
        for reason in holds.STORE_REASONS
    },
    **{
        reason: Case(gave_up(reason, rank=1), time_passes(31), by_itself=True)
        for reason in (
            Reason.SUPERVISOR_MISSING,
            Reason.PATH_NOT_WRITABLE,
            Reason.DIRECTORY_READ_ONLY,
            Reason.DIRECTORY_MISSING,
            Reason.DISK_FULL,
            Reason.CHECKPOINT_ORDER_UNKNOWN,
        )
    },
    Reason.RUN_IN_USE: Case(
        gave_up(Reason.RUN_IN_USE, fence=None, fence_owner="c/other", listed=True),
        asked_for(wire.RequestAction.TAKE_OVER),
        by_itself=True,
    ),
    Reason.RUN_ALREADY_COMPLETE: Case(
        gave_up(Reason.RUN_ALREADY_COMPLETE, fence=None, run_complete=True, listed=True),
        spec_changed,
        by_itself=False,
    ),
    Reason.PROBE_NOT_RUN: Case(
        gave_up(Reason.PROBE_NOT_RUN, rank=1), spec_changed, by_itself=False
    ),
    Reason.RESTORE_TOO_LARGE: Case(
        gave_up(Reason.RESTORE_TOO_LARGE, rank=1), spec_changed, by_itself=False
    ),
    Reason.PROBE_FAILED: Case(
        report(0, candidates=[REFUSED], listed=True, fence=1),
        asked_for(wire.RequestAction.RESTART),
        by_itself=False,
    ),
    Reason.NO_VALID_CHECKPOINT: Case(
        report(0, candidates=[BAD], listed=True, fence=1),
        asked_for(wire.RequestAction.ALLOW_SCRATCH),
        by_itself=True,
    ),
}


def test_every_cause_that_can_be_told_by_a_sidecar_is_in_the_table() -> None:
    told = holds.STORE_REASONS | holds.HOLDING | holds.KEEPS_RANK_ZERO
    # With the words of a person's wish, and told by the queue (see test_queues.py).
    others = {Reason.RUN_EXISTS, Reason.RESUME_FROM_UNUSABLE, Reason.QUEUE_DEACTIVATED}
    assert told - others <= set(CASES)


def entered(case: Case) -> Observed:
    seen = heard_now(case.enter(prepared()))
    plan = decide(seen)
    assert plan.status is not None, plan
    assert plan.status.hold is not None, plan
    return applied(seen, plan)


def hold_of(seen: Observed) -> Hold:
    assert seen.job is not None
    assert seen.job.status.hold is not None
    return seen.job.status.hold


@pytest.mark.parametrize("reason", sorted(CASES))
def test_it_is_entered_with_its_reason_and_nothing_is_counted(reason: Reason) -> None:
    seen = entered(CASES[reason])
    assert hold_of(seen).reason == reason
    assert seen.job is not None
    assert (seen.job.status.starts, seen.job.status.restarts) == (0, 0)


@pytest.mark.parametrize("reason", sorted(CASES))
def test_its_remedy_ends_it_with_a_new_attempt(reason: Reason) -> None:
    seen = CASES[reason].remedy(entered(CASES[reason]))
    plan = decide(seen)
    assert plan.status is not None, plan
    assert plan.status.hold is None
    assert (plan.status.attempt, plan.status.restarts) == (2, 0)


@pytest.mark.parametrize("reason", sorted(CASES))
def test_a_changed_spec_ends_it(reason: Reason) -> None:
    plan = decide(spec_changed(entered(CASES[reason])))
    assert plan.status is not None
    assert plan.status.hold is None


@pytest.mark.parametrize("reason", sorted(CASES))
def test_it_has_a_time_at_which_it_looks_again_or_waits_for_a_person(reason: Reason) -> None:
    case = CASES[reason]
    held = hold_of(entered(case))
    assert (held.retry_at is not None) is case.by_itself


def deleted_ranks(seen: Observed) -> set[int]:
    names = {a.name for a in decide(seen).actions if isinstance(a, DeletePod)}
    return {pod.rank for pod in seen.pods if pod.name in names}


@pytest.mark.parametrize("reason", sorted(CASES))
def test_however_long_it_lasts_a_save_that_is_not_durable_keeps_its_pod(reason: Reason) -> None:
    seen = entered(CASES[reason])
    held = hold_of(seen).model_copy(update={"retry_at": None})
    assert seen.job is not None
    seen = with_job(seen, status=seen.job.status.model_copy(update={"hold": held}))
    pending = wire.CheckpointView(pending_saves=1, last_saved_step=7)
    with_save = heard_now(later(report(1, checkpoint=pending)(seen), DAY))
    assert deleted_ranks(with_save) == set(), "rank 1 has it, rank 0 alone can commit it"
    without = deleted_ranks(heard_now(later(seen, DAY)))
    assert without == ({1} if reason in holds.KEEPS_RANK_ZERO else {0, 1}), "GPUs are freed"


def test_the_end_of_training_with_a_save_that_the_store_does_not_take() -> None:
    seen = running()
    for rank in (0, 1):
        seen = with_exit(seen, rank, at=seen.now, exit_code=0)
    trouble = wire.Problem(reason="StoreUnreachable", message="s3 is down", since=1.0)
    seen = report(0, degraded=[trouble], phase=wire.SidecarPhase.DRAINING)(seen)
    late = heard_now(later(seen, 130))
    plan = decide(late)
    assert plan.status is not None
    assert plan.status.hold is not None
    assert plan.status.hold.reason == Reason.FINAL_CHECKPOINT_NOT_DURABLE
    assert "s3 is down" in plan.status.hold.message
    held = applied(late, plan)
    assert deleted_ranks(heard_now(later(held, DAY))) == set()
    for rank in (0, 1):
        held = report(rank, phase=wire.SidecarPhase.DRAINED, degraded=[])(held)
    done = decide(held)
    assert done.rule == "success"


def test_complete_waits_for_what_the_holder_has_named_and_not_committed() -> None:
    """A sidecar of an older version calls itself drained before the holder has committed."""
    seen = running()
    for rank in (0, 1):
        seen = with_exit(seen, rank, at=seen.now, exit_code=0)
        seen = report(rank, phase=wire.SidecarPhase.DRAINED)(seen)
    open_save = wire.Candidate(name="f1-n9-s99", step=99, durable=False, needs=[1])
    waiting = report(0, fence=1, candidates=[open_save])(seen)
    assert decide(waiting).rule != "success"
    committed = open_save.model_copy(update={"durable": True})
    assert decide(report(0, fence=1, candidates=[committed])(seen)).rule == "success"


def test_a_restore_that_may_not_be_holds_after_the_counted_start_too() -> None:
    seen = gave_up(Reason.RESTORE_TOO_LARGE, rank=1)(running())
    plan = decide(heard_now(seen))
    assert plan.status is not None
    assert plan.status.hold is not None
    assert (plan.status.hold.reason, plan.status.hold.retry_at) == (Reason.RESTORE_TOO_LARGE, None)
    assert plan.status.hold.message
