"""Suspend at a good moment: after the next save, within a limit; at once while nothing trains.

Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Charge, Reason
from rtj_api.status import PendingSuspend, PlannedStop

from rtj_operator.core import attempts, failures, stop_planning, stopping
from rtj_operator.core.attempts import Cause
from rtj_operator.core.conditions import is_training
from rtj_operator.core.gang import Gang
from rtj_operator.core.plan import Action, CreatePod, Note, Plan
from rtj_operator.core.recording import record
from rtj_operator.core.undurable import has_undurable


def newest_save(gang: Gang) -> str | None:
    """The newest save that rank 0's sidecar has named: the stop makes it durable."""
    zero = gang.rank_zero.report if gang.members else None
    if zero is not None and zero.candidates:
        return zero.candidates[0].name
    return gang.status.checkpoint.last_durable_name


def _have_all_saved(gang: Gang, *, since: float) -> bool:
    """Every rank that saves has finished one since, though a slow store keeps it from a name."""
    reports = [m.report.checkpoint for m in gang.members if m.report is not None]
    times = [view.last_saved_at for view in reports if view.last_saved_at is not None]
    return bool(times) and min(times) > since


def should_wait(gang: Gang) -> bool:
    """Training goes on for a moment, since a save is due that would else be lost work."""
    limit = gang.spec.suspend_wait_seconds
    if limit <= 0 or gang.status.hold is not None:
        return False
    asked, mark = gang.status.asked_stop, gang.status.pending_suspend
    is_over = mark is not None and gang.alarm.has_passed(mark.since + limit)
    if not is_over and stopping.is_awaited(gang):
        return True  # also when the first ranks have ended there
    if not is_training(gang) or (asked is not None and stopping.has_stopped(gang, asked)):
        return False
    if failures.all_faults(gang):
        return False
    if mark is None:
        return True
    if newest_save(gang) != mark.save or _have_all_saved(gang, since=mark.since):
        return False
    return not is_over


def begin(gang: Gang) -> Plan | None:
    """Record since when the job waits, and the step at which all ranks save where one can be asked
    for, now or later; None where that is done already."""
    if gang.status.pending_suspend is not None:
        return _asked_later(gang, gang.status.pending_suspend)
    mark = PendingSuspend(since=gang.now, save=newest_save(gang))
    limit = gang.spec.suspend_wait_seconds
    why = (
        f"spec.suspend is true: the next save is waited for, at most "
        f"{limit:.0f} s (suspendPolicy.checkpointTimeoutSeconds)"
    )
    notes = [Note(type="Normal", reason=Reason.SUSPENDING, message=why)]
    status = gang.status.model_copy(update={"pending_suspend": mark})
    if gang.spec.obeys_stop and status.asked_stop is None:
        planned = _planned(gang, left=limit)
        status = status.model_copy(update={"stop": planned})
        notes.append(stop_planning.note_of(planned))
    return record(gang, status, rule="suspend", why=why, notes=tuple(notes))


def _planned(gang: Gang, *, left: float) -> PlannedStop:
    return stop_planning.planned_for(
        gang, cause=Reason.SUSPENDING, why="spec.suspend is true", left=left, ships=False
    )


def _asked_later(gang: Gang, mark: PendingSuspend) -> Plan | None:
    """A step that could not be asked for at first: a pace was not known, a rank not heard."""
    before = gang.status.stop
    if before is None or before.cause != Reason.SUSPENDING or before.step is not None:
        return None
    planned = _planned(gang, left=mark.since + gang.spec.suspend_wait_seconds - gang.now)
    if planned.step is None:
        return None
    return record(
        gang,
        gang.status.model_copy(update={"stop": planned}),
        rule="suspend",
        why=planned.message,
        notes=(stop_planning.note_of(planned),),
    )


# --- rank 0 lost while others still have something to save ---


def _lacks_holder(gang: Gang) -> bool:
    """Rank 0's pod is gone, and another rank holds a save that only its sidecar can commit."""
    others = gang.members[1:]
    return gang.rank_zero.pod is None and any(has_undurable(gang, m) for m in others)


def new_holder(gang: Gang) -> Plan | None:
    """Suspended, and rank 0's pod is gone before the others' saves are durable: it is made anew,
    to commit and not to train. Recorded as an attempt of its own, for its pod's name."""
    hold, zero = gang.status.hold, gang.rank_zero if gang.members else None
    if hold is None or zero is None or not _lacks_holder(gang):
        return None
    if zero.made_in == gang.attempt and not gang.status.is_started and zero.stand_in is None:
        return None  # recorded already
    cause = Cause(
        reason=Reason.POD_DELETED,
        charge=Charge.INTENT,
        message="rank 0's pod is made anew to make the other ranks' saves durable",
        is_paced=False,
        only_missing=True,  # an older template's pod may be the one that has the save
    )
    status = attempts.next_attempt(gang, cause)
    kept = {"hold": hold, "held_since": gang.status.held_since}
    return record(
        gang,
        status.model_copy(update=kept),
        rule="suspend",
        why=cause.message,
        notes=(Note(type="Warning", reason=Reason.POD_DELETED, message=cause.message),),
    )


def holder_creation(gang: Gang) -> list[Action]:
    """That pod, where it is recorded and not there yet. No other pod is made while suspended."""
    zero = gang.rank_zero if gang.members else None
    if zero is None or gang.job.problem is not None or not _lacks_holder(gang):
        return []
    if zero.made_in != gang.attempt or gang.status.is_started or zero.stand_in is not None:
        return []
    refused = gang.observed.rejections.get(zero.name)
    wait = gang.policy.create_retry_seconds
    if refused is not None and not gang.alarm.has_passed(refused.at + wait):
        return []
    current = gang.status.current
    since = current.group_since if current is not None else None
    return [CreatePod(rank=0, made_in=zero.made_in, name=zero.name, group_since=since)]
