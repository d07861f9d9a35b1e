"""When a job has had its time: two deadlines end it, and a time to live removes it.

Pure. Must never end a job that is suspended, nor remove one while a pod of it exists.
"""

from __future__ import annotations

from rtj_api.reasons import Charge, Reason

from rtj_operator.core import attempts, pending
from rtj_operator.core.gang import Gang
from rtj_operator.core.plan import DeleteJob, Note, Plan
from rtj_operator.core.recording import record


def active_since(gang: Gang) -> float | None:
    """What deadlines count from, Unix seconds; None while the job is, or is to be, suspended."""
    hold = gang.status.hold
    if gang.spec.suspend or (hold is not None and hold.reason == Reason.SUSPENDED):
        return None
    resumed = gang.status.resumed_at
    return resumed if resumed is not None else gang.job.created_at


def deadline(gang: Gang) -> Plan | None:
    """activeDeadlineSeconds since the job's creation, or since it was last unsuspended, or
    startDeadlineSeconds without any start: Failed. What was saved is kept."""
    since, spec = active_since(gang), gang.spec
    if since is None or gang.status.is_terminal:
        return None
    limits = [(spec.active_deadline_seconds, Reason.DEADLINE_EXCEEDED)]
    if gang.status.starts == 0:
        limits.append((spec.start_deadline_seconds, Reason.START_DEADLINE_EXCEEDED))
    over = [
        (since + seconds, reason)
        for seconds, reason in limits
        if seconds is not None and gang.alarm.has_passed(since + seconds)
    ]
    if not over:
        return None
    _, reason = min(over)
    message = _words(gang, reason)
    failed = attempts.next_failed(gang, reason=reason, message=message, charge=Charge.INTENT)
    note = Note(type="Warning", reason=reason, message=message)
    return record(
        gang,
        failed,
        rule="deadline",
        why=message,
        notes=(note,),
        evidence={"activeSince": since, "starts": gang.status.starts},
    )


def _words(gang: Gang, reason: Reason) -> str:
    anew = "delete the job and apply it anew with a longer one"
    if reason == Reason.DEADLINE_EXCEEDED:
        seconds = gang.spec.active_deadline_seconds
        saved = ". Its saves are safe" if gang.status.ever_durable else ""
        on = "; it goes on from the newest" if gang.status.ever_durable else ""
        return f"active for {seconds:.0f} s (activeDeadlineSeconds){saved}: {anew}{on}"
    seconds = gang.spec.start_deadline_seconds
    return (
        f"no trainer was started within {seconds:.0f} s (startDeadlineSeconds): "
        f"{_what_it_waits_for(gang)}. To try again {anew}"
    )


def _what_it_waits_for(gang: Gang) -> str:
    if gang.status.hold is not None:
        return gang.status.hold.message
    blocked = pending.blocked(gang)
    return blocked[1] if blocked is not None else "its pods were not ready yet"


def expired(gang: Gang) -> Plan | None:
    """ttlSecondsAfterFinished after its end, and with all its pods gone, the job is deleted."""
    status, seconds = gang.status, gang.spec.ttl_seconds_after_finished
    if not status.is_terminal or seconds is None or gang.observed.pods:
        return None
    if status.completion_time is None:
        return None
    if not gang.alarm.has_passed(status.completion_time + seconds):
        return None
    return Plan(
        rule="expired",
        why=f"the job ended {seconds:.0f} s ago (ttlSecondsAfterFinished)",
        actions=(DeleteJob(uid=gang.job.uid, resource_version=gang.job.resource_version),),
        evidence={"completionTime": status.completion_time},
    )
