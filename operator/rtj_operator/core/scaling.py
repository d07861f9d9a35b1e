"""Rules of an elastic gang: fewer pods where not all find a place, more at a save when they do.

Both are attempts with a cause of their own, recorded before a pod is made or ended. Must never
make a gang smaller while its newest save could not be loaded so, nor disturb a training for a
place that nobody has yet. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Charge, Reason
from rtj_api.rules.stopping import StopVerdict
from rtj_api.status import CheckpointStatus, ElasticStatus, PendingGrowth, PlannedStop, Status

from rtj_operator.core import attempts, failures, growth, stop_planning, stopping, successes
from rtj_operator.core.attempts import Cause
from rtj_operator.core.conditions import is_training
from rtj_operator.core.faults import BY_POD, Fault, fault_at
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.plan import Note, Plan
from rtj_operator.core.recording import record
from rtj_operator.core.shortage import Shortage, shortage_of


def shrink(gang: Gang) -> Plan | None:
    """spec.elastic, and a rank has found no place for scaleDownAfterSeconds while others have one:
    the attempt goes on as a smaller gang of an allowed size. Ranks above it are ended, and a lost
    rank below it gets the place that they free. Not where the newest save fits one number of ranks
    only: Degraded then says why."""
    short = shortage_of(gang)
    if short is None or short.size is None or failures.all_faults(gang):
        return None
    how = f"found no place for {short.limit:.0f} s" if short.limit else "lost their place again"
    message = f"{len(short.waiting)} of {len(gang.members)} pods {how}: {short.why}"
    faults = tuple(_lost(gang, member, short) for member in short.waiting)
    status = attempts.next_attempt(
        gang,
        Cause(
            reason=Reason.SCALED_DOWN,
            charge=Charge.INFRASTRUCTURE,
            message=message,
            fault=faults[0],
            is_paced=False,
            size=short.size,
        ),
        faults,
    )
    text = f"{short.size} of {gang.spec.replicas} pods go on: {message}"
    return record(
        gang,
        status,
        rule="shrink",
        why=text,
        notes=(Note(type="Warning", reason=Reason.SCALED_DOWN, message=text),),
        evidence={
            "waiting": [m.rank for m in short.waiting],
            "room": short.room,
            "size": short.size,
        },
    )


def _lost(gang: Gang, member: Member, short: Shortage) -> Fault:
    return fault_at(
        member,
        reason=Reason.UNSCHEDULABLE,
        at=short.since,
        order=BY_POD,
        is_pod_lost=True,
        message=short.why,
        charge=Charge.INFRASTRUCTURE,
        evidence={"since": short.since, "world": len(gang.members)},
    )


def grow(gang: Gang) -> Plan | None:
    """A smaller gang than wanted trains, and pods that wait beside it are placed and ready: they
    are awaited no longer than the next durable save, or the stop step that is agreed on, and take
    the missing ranks with a new attempt. A growth that failed is not tried again at once."""
    status, shown = gang.status, gang.status.elastic
    if shown is None or not status.is_started or status.hold is not None:
        return None
    if status.pending_suspend is not None or status.pending_template is not None:
        return None
    if gang.job.problem is not None or successes.have_finished(gang) or _is_stopping(gang):
        return None
    size, mark = growth.target(gang), shown.growing
    if size is None:
        return _give_up(gang, shown) if mark is not None else None
    if not is_training(gang):
        return None
    if mark is None or mark.size != size:
        return _await_save(gang, shown, size=size)
    if not _is_newer(status.checkpoint, mark):
        planned = _stop_step(gang, size)
        return None if planned is None else _ask(gang, planned)
    message = _room(gang, size)
    grown = attempts.next_attempt(
        gang,
        Cause(
            reason=Reason.SCALED_UP,
            charge=Charge.INTENT,
            message=message,
            is_paced=False,
            size=size,
            is_by_itself=True,
        ),
    )
    return record(
        gang,
        grown,
        rule="grow",
        why=message,
        notes=(Note(type="Normal", reason=Reason.SCALED_UP, message=message),),
        evidence={"from": len(gang.members), "to": size, "save": mark.save},
    )


def _is_stopping(gang: Gang) -> bool:
    asked = gang.status.asked_stop
    return asked is not None and asked.verdict != stopping.MISSED


def _is_newer(durable: CheckpointStatus, mark: PendingGrowth) -> bool:
    return durable.last_durable_name not in (None, mark.save)


def _with(gang: Gang, shown: ElasticStatus, mark: PendingGrowth | None) -> Status:
    return gang.status.model_copy(update={"elastic": shown.model_copy(update={"growing": mark})})


def _give_up(gang: Gang, shown: ElasticStatus) -> Plan:
    why = "the room for a larger gang is gone again"
    return record(gang, _with(gang, shown, None), rule="grow", why=why)


def _await_save(gang: Gang, shown: ElasticStatus, *, size: int) -> Plan:
    """Since when there is room, and the step at which all ranks save where one can be agreed on."""
    old = shown.growing
    save = old.save if old is not None else gang.status.checkpoint.last_durable_name
    mark = PendingGrowth(size=size, since=gang.now, save=save)
    status = _with(gang, shown, mark)
    why = _room(gang, size)
    notes = [
        Note(
            type="Normal",
            reason=Reason.SCALING_UP,
            message=f"{why}: the gang grows at its next save",
        )
    ]
    planned = _stop_step(gang, size)
    if planned is not None:
        status = status.model_copy(update={"stop": planned})
        notes.append(stop_planning.note_of(planned))
    return record(gang, status, rule="grow", why=why, notes=tuple(notes))


def _stop_step(gang: Gang, size: int) -> PlannedStop | None:
    """The step that all ranks can agree on now; None where there is none, or one was missed."""
    if not gang.spec.obeys_stop or gang.status.asked_stop is not None:
        return None
    planned = stop_planning.planned_for(
        gang,
        cause=Reason.SCALING_UP,
        why=_room(gang, size),
        left=gang.policy.grow_stop_seconds,
        ships=False,
    )
    return planned if planned.verdict == StopVerdict.AGREED else None


def _ask(gang: Gang, planned: PlannedStop) -> Plan:
    status = gang.status.model_copy(update={"stop": planned})
    notes = (stop_planning.note_of(planned),)
    return record(gang, status, rule="grow", why=planned.message, notes=notes)


def _room(gang: Gang, size: int) -> str:
    return f"there is room for {size} of {gang.spec.replicas} pods again"
