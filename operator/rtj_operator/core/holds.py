"""Why a job is held, how each hold is worded, and when it looks again. Pure."""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.status import format_time
from rtj_api.wire import Problem, Report

from rtj_operator.core import steering
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
    Reason.RUN_EXISTS,
    Reason.RESUME_FROM_UNUSABLE,
    Reason.NO_VALID_CHECKPOINT,
    Reason.CHECKPOINT_ORDER_UNKNOWN,
    Reason.SUPERVISOR_MISSING,
    Reason.PROBE_NOT_RUN,
    Reason.PATH_NOT_WRITABLE,
    Reason.DIRECTORY_READ_ONLY,
    Reason.DIRECTORY_MISSING,
    Reason.DISK_FULL,
    Reason.RESTORE_TOO_LARGE,
    Reason.QUEUE_DEACTIVATED,
}
# Nor for one of these once it trained: it would do the same again.
ENDING = frozenset(
    {
        Reason.CHECKPOINT_IGNORED,
        Reason.PROBE_NOT_RUN,
        Reason.RESTORE_TOO_LARGE,
        Reason.QUEUE_DEACTIVATED,
    }
)


# No look at the store ends these.
WAITING_FOR_A_PERSON = frozenset(
    {
        Reason.RUN_ALREADY_COMPLETE,
        Reason.RUN_EXISTS,
        Reason.RESUME_FROM_UNUSABLE,
        Reason.PROBE_FAILED,
        Reason.REQUIRED_KEY_MISSING,
        Reason.TRAINING_DIVERGED,
        Reason.DETERMINISTIC_FAILURE,
        *ENDING,
    }
)


def problems_of(report: Report) -> list[Problem]:
    """What a sidecar complains of, the problem that stops it first."""
    return ([report.problem] if report.problem is not None else []) + list(report.degraded)


def store_trouble(report: Report) -> Problem | None:
    """What it says of the store."""
    return next((p for p in problems_of(report) if p.reason in STORE_REASONS), None)


def _place(gang: Gang) -> str:
    return f"{(gang.spec.store_url or 'the store').rstrip('/')}/{gang.spec.run_id}"


def _in_use(gang: Gang, zero: Report) -> str:
    """Who holds the run, what became of ours, and what a person can do."""
    owner = zero.fence_owner or ""
    cluster, _, uid = owner.partition("/")
    holder = zero.holder
    name = f"{holder.namespace}/{holder.job}" if holder is not None and holder.job else "a job"
    since = (
        f"attempt {holder.attempt}, since {format_time(float(int(holder.claimed_at)))}, "
        if holder is not None
        else ""
    )
    lives = gang.observed.owner_lives.get(owner)
    where = "of this cluster, where it lives" if lives else f"of cluster {cluster}"
    status, run = gang.status, gang.spec.run_id
    verb = "was taken over by" if status.starts > 0 else "is held by"
    pending = max((r.checkpoint.pending_saves for m in gang.members if (r := m.report)), default=0)
    kept = (
        f" {pending} finished saves of this job are not in the store and never will be in this "
        f"run: they stay in its pods, below the checkpoint directory, until you delete them."
        if pending and status.starts > 0
        else ""
    )
    by_itself = (
        "The store does not honour conditional writes, so the run is not given over when that job "
        "is gone: give this one another checkpoint.runID."
        if holder is not None and holder.person_only
        else "Delete that job, or give this one another checkpoint.runID."
    )
    return (
        f"run {run} {verb} {name} ({since}UID {uid}) {where}; it may still write, so nothing of it "
        f"was touched.{kept} {by_itself} If it has certainly ended, take the run over with "
        f"checkpoint.takeOver: {uid}, or once by the annotation resumable-training.dev/request: "
        '{"id": "1", "action": "take-over"}'
    )


def refusal_of(gang: Gang, zero: Report) -> tuple[Reason, str] | None:
    """Why this run may not be touched, whatever its saves; with the remedy."""
    run = gang.spec.run_id
    if zero.run_complete and steering.wanted(gang) is None:
        return (
            Reason.RUN_ALREADY_COMPLETE,
            f"run {run} has finished already, so nothing was started. To train again, give "
            f"checkpoint.runID another name, or delete {_place(gang)}; to begin at step 0 beside "
            "its saves, set checkpoint.onExistingRun: Fresh; to train on from one of them, name it "
            "in checkpoint.resumeFrom",
        )
    if zero.fence_owner is not None and not zero.run_complete:
        return Reason.RUN_IN_USE, _in_use(gang, zero)
    if zero.fence is None and zero.listed:
        return (
            Reason.STORE_UNREACHABLE,
            "the store can be read but the run could not be claimed in it: check that the "
            "credentials may write",
        )
    return None


def is_answered(gang: Gang) -> bool:
    """Rank 0's sidecar was just allowed to claim over the owner that it still complains of."""
    current, report = gang.status.current, gang.rank_zero.report
    if current is None or report is None or not current.may_claim:
        return False
    if report.fence_owner is None or report.fence_owner != current.claim_over:
        return False
    return not gang.alarm.has_passed(current.recorded_at + gang.policy.prepare_seconds)


def retry_seconds(gang: Gang, reason: str) -> float | None:
    """When such a hold looks again by itself; None where only news or a person ends it."""
    if reason in WAITING_FOR_A_PERSON:
        return None
    since = gang.status.held_since
    has_lasted = since is not None and gang.now - since > gang.policy.hold_keep_seconds
    # Looking again needs every rank's pod; once they were given up it is worth less often.
    return gang.policy.hold_retry_seconds * (20 if has_lasted else 1)


def why_over(gang: Gang) -> tuple[str, str | None] | None:
    """Why the hold is over, and over which owner's fence the run may then be claimed."""
    hold = gang.status.hold
    if hold is None:
        return None
    if gang.job.generation != hold.generation:
        return "the spec changed", None
    zero = gang.rank_zero if gang.members else None
    report = zero.report if zero is not None else None
    owner = report.fence_owner if report is not None else None
    if hold.reason == Reason.RUN_IN_USE and report is not None and owner is not None:
        if report.holder is not None and report.holder.person_only:
            gang.alarm.has_passed(gang.now + gang.policy.hold_retry_seconds)
            return None
        lives = gang.observed.owner_lives.get(owner)
        if lives is False:
            return f"the run's last holder {owner} no longer exists", owner
        if report.holder is not None and report.holder.is_released:
            return f"the run's last holder {owner} released it", None
        watches = zero is not None and zero.pod is not None and is_heard(gang, zero.pod)
        if lives or (watches and report.holder is not None and report.holder.owner == owner):
            # Rank 0's sidecar goes on watching the fence, and tells.
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
        return ("the store answers again", None) if answers else None
    if hold.retry_at is not None and gang.alarm.has_passed(hold.retry_at):
        return "it is time to look again", None
    return None
