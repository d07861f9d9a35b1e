"""Why a job is held, how each hold is worded, and when it looks again. Pure."""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.wire import Problem, Report

from rtj_operator.core.gang import Gang
from rtj_operator.core.nodes import is_heard

# The sidecar names the store's trouble more exactly than "unreachable".
STORE_REASONS = frozenset(
    {
        Reason.STORE_UNREACHABLE,
        Reason.STORE_SCHEME_UNKNOWN,
        Reason.CREDENTIALS_REFUSED,
        Reason.CREDENTIALS_MISSING,
        Reason.BUCKET_MISSING,
    }
)
# The cause lies in the store: rank 0's pod stays, to look at it again.
KEEPS_RANK_ZERO = STORE_REASONS | {Reason.NO_VALID_CHECKPOINT, Reason.RUN_IN_USE}
# A sidecar that gives up for one of these needs a person or another job, not another try.
HOLDING = STORE_REASONS | {
    Reason.RUN_IN_USE,
    Reason.RUN_ALREADY_COMPLETE,
    Reason.NO_VALID_CHECKPOINT,
    Reason.SUPERVISOR_MISSING,
    Reason.PATH_NOT_WRITABLE,
    Reason.DIRECTORY_READ_ONLY,
    Reason.DIRECTORY_MISSING,
    Reason.DISK_FULL,
}


def problems_of(report: Report) -> list[Problem]:
    """What a sidecar complains of, the problem that stops it first."""
    return ([report.problem] if report.problem is not None else []) + list(report.degraded)


def store_trouble(report: Report) -> Problem | None:
    """What it says of the store."""
    return next((p for p in problems_of(report) if p.reason in STORE_REASONS), None)


def refusal_of(gang: Gang, zero: Report) -> tuple[Reason, str] | None:
    """Why this run may not be touched, whatever its saves; with the remedy."""
    run = gang.spec.run_id
    if zero.run_complete:
        return (
            Reason.RUN_ALREADY_COMPLETE,
            f"run {run} has finished already: give checkpoint.runID another name to train again",
        )
    if zero.fence_owner is not None:
        return (
            Reason.RUN_IN_USE,
            f"run {run} is held by job {zero.fence_owner}, which may still write. End that job, "
            "choose another checkpoint.runID, or take it over with the annotation "
            'resumable-training.dev/request: {"id": "1", "action": "take-over"}',
        )
    if zero.fence is None and zero.listed:
        return (
            Reason.STORE_UNREACHABLE,
            "the store can be read but the run could not be claimed in it: check that the "
            "credentials may write",
        )
    return None


def retry_seconds(gang: Gang, reason: str) -> float | None:
    """When such a hold looks again by itself; None where only news or a person ends it."""
    if reason == Reason.RUN_ALREADY_COMPLETE:
        return None
    since = gang.status.held_since
    has_lasted = since is not None and gang.now - since > gang.policy.hold_keep_seconds
    # Looking again needs every rank's pod; once they were given up it is worth less often.
    return gang.policy.hold_retry_seconds * (20 if has_lasted else 1)


def why_over(gang: Gang) -> tuple[str, bool] | None:
    """Why the hold is over, and whether the run may be claimed over its last holder."""
    hold = gang.status.hold
    if hold is None:
        return None
    if gang.job.generation != hold.generation:
        return "the spec changed", False
    zero = gang.rank_zero if gang.members else None
    report = zero.report if zero is not None else None
    if hold.reason == Reason.RUN_IN_USE and report is not None and report.fence_owner is not None:
        lives = gang.observed.owner_lives.get(report.fence_owner)
        if lives is False:
            return f"the run's last holder {report.fence_owner} no longer exists", True
        if lives:
            gang.alarm.has_passed(gang.now + gang.policy.hold_retry_seconds)
            return None
    # The sidecar of rank 0 is still in prepare and goes on asking the store.
    is_asking = (
        hold.reason in STORE_REASONS
        and zero is not None
        and zero.pod is not None
        and report is not None
        and report.attempt == gang.attempt
        and is_heard(gang, zero.pod)
    )
    if is_asking and report is not None:
        answers = report.listed and report.fence is not None
        return ("the store answers again", False) if answers else None
    if hold.retry_at is not None and gang.alarm.has_passed(hold.retry_at):
        return "it is time to look again", False
    return None
