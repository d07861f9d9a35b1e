"""One stop step for all ranks before a pod of the gang is gone, where there is time for it.

Decided once an attempt, recorded, then said: first to pods that are ending, which only hear what is
pushed to them; to the others when those have it. Then the gang has until the recorded time; a pod's
end is no fault before that. Whatever else goes wrong ends the wait, and the ordinary rules go on.
Must never be needed for a save that is finished already, nor name two steps in one attempt. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Charge, Reason
from rtj_api.rules import exits
from rtj_api.rules.stopping import lead_seconds
from rtj_api.status import MAX_MESSAGE, PlannedStop, Status

from rtj_operator.core import attempts, failures, growth, successes
from rtj_operator.core.attempts import Cause
from rtj_operator.core.conditions import is_training
from rtj_operator.core.converge import directive_patches
from rtj_operator.core.directives import untold_of_stop
from rtj_operator.core.faults import BY_POD, Fault, fault_at
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.leaving import (
    is_awaited_end,
    is_heard_too_early,
    leaving,
    next_left_nodes,
)
from rtj_operator.core.plan import Note, Plan
from rtj_operator.core.recording import record
from rtj_operator.core.stop_planning import is_decided, note_of, planned_for
from rtj_operator.core.trainer_judges import was_told_by

HEAR_SHARE = 0.75  # of the time to tell all, in which ending pods have to say that they heard it
MISSED = "Missed"
_CAUSES = {Reason.SUSPENDING: Reason.RESUMED_BY_USER}  # of the attempt after such a stop


def stop(gang: Gang) -> Plan | None:
    """A pod is being ended, or a node has given notice, and recovery.stop.by says that trainers
    obey a stop step: one is recorded if all ranks can reach it, save and ship in the time that is
    left, then told to all; else why not. When all have saved, the ranks that leave are moved."""
    if not gang.status.is_started or gang.status.hold is not None:
        return None
    asked = gang.status.asked_stop
    # What was asked for is followed up although the spec forbids it now: nobody else would.
    if (asked is None and not gang.spec.obeys_stop) or successes.have_finished(gang):
        return None
    return _begin(gang) if asked is None else _follow(gang, asked)


# --- the decision ---


def _begin(gang: Gang) -> Plan | None:
    going = leaving(gang)
    if not going:
        return _withdrawn(gang)
    if not is_training(gang) or _other_faults(gang):
        return None
    early = [one for one in going if is_heard_too_early(gang, one.member)]
    if early:
        return Plan(rule="stop", why=f"{early[0].why}; the API server may say more")
    first = min(going, key=lambda one: (one.left, one.member.rank))
    planned = planned_for(gang, cause=first.reason, why=first.why, left=first.left, going=going)
    if is_decided(gang, planned):
        return None
    return record(
        gang,
        gang.status.model_copy(update={"stop": planned}),
        rule="stop",
        why=planned.message,
        notes=(note_of(planned),),
        evidence={"verdict": planned.verdict, "step": planned.step, "left": first.left},
    )


def _withdrawn(gang: Gang) -> Plan | None:
    """What the last decision was about is no more: it is shown no longer, and the next trouble is
    looked at anew. A step that was asked for is not taken back."""
    before = gang.status.stop
    if before is None or before.attempt != gang.attempt or before.cause != Reason.NODE_LEAVING:
        return None
    why = f"the notice was taken back: {before.message.partition(';')[0]} no more"
    return record(
        gang, gang.status.model_copy(update={"stop": None}), rule="stop", why=why[:MAX_MESSAGE]
    )


# --- what follows ---


def _follow(gang: Gang, planned: PlannedStop) -> Plan | None:
    others = _other_faults(gang)
    if others:
        return None  # the ordinary rules: nothing is awaited any more
    if has_stopped(gang, planned):
        return _move(gang, planned)
    joined = _joined(gang, planned)
    if joined:
        ranks = sorted({*planned.ranks, *joined})
        more = planned.model_copy(update={"ranks": ranks})
        why = f"pods of ranks {joined[:8]} are ending too: they wait for step {planned.step}"
        return record(gang, gang.status.model_copy(update={"stop": more}), rule="stop", why=why)
    is_over = planned.verdict == MISSED or _have_all_ended(gang, planned)
    if is_over or gang.alarm.has_passed(_limit(planned)):
        return _after_time(gang, planned)
    unheard = _unheard(gang, planned)
    lead = lead_seconds(len(gang.members))
    if unheard and gang.alarm.has_passed(planned.since + HEAR_SHARE * lead):
        names = [m.rank for m in unheard]
        return _missed(gang, planned, f"the ending pods of ranks {names} could not be told in time")
    untold = untold_of_stop(gang)
    if untold and gang.alarm.has_passed(planned.since + lead):
        # Each would stop where it hears of it: an operator that comes back says no more.
        return _missed(gang, planned, f"ranks {untold[:8]} could not be told in time")
    awaited = [f for m in gang.members if (f := failures.fault_of(gang, m)) is not None]
    if not awaited:
        return None  # the ordinary rules go on beside it
    actions = tuple(directive_patches(gang))
    return Plan(rule="stop", why=f"step {planned.step} is awaited", actions=actions)


def _joined(gang: Gang, planned: PlannedStop) -> list[int]:
    """Ranks that were told of the step and whose pods are ending now: their ends, too, are to be
    expected, and the others are given the time to save."""
    return [
        one.member.rank
        for one in leaving(gang)
        if one.is_ending
        and one.member.rank not in planned.ranks
        and one.member.report is not None
        and one.member.report.stop_step == planned.step
    ]


def _is_gone(gang: Gang, member: Member, planned: PlannedStop) -> bool:
    """Its pod's end was expected and has come. It may have been done there before the others; one
    that shows how it ended must have ended well."""
    if member.rank not in planned.ranks:
        return False
    if member.pod is None or not member.pod.is_terminal:
        return member.pod is None
    end = member.ended_trainer(gang.attempt)
    if end is None or end.exit_code is None:
        return end is not None and was_told_by(end.signal, member)
    number = end.signal or exits.from_returncode(end.exit_code).signal
    return end.exit_code == 0 or was_told_by(number, member)


def is_awaited(gang: Gang) -> bool:
    """A stop step was recorded, and there is hope that all ranks save there."""
    asked = gang.status.asked_stop
    if asked is None or asked.verdict == MISSED or _other_faults(gang):
        return False
    if has_stopped(gang, asked):
        return False
    return not gang.alarm.has_passed(_limit(asked))


def _limit(asked: PlannedStop) -> float:
    return (asked.until if asked.until is not None else asked.since) + 1.0


def has_stopped(gang: Gang, planned: PlannedStop) -> bool:
    """Every rank has ended with 0, or every rank that writes saves has one of that step: whoever
    has not ended yet waits for nothing but its own end."""
    staying = [m for m in gang.members if not _is_gone(gang, m, planned)]
    reports = [m.report for m in staying]
    ends = [m.ended_trainer(gang.attempt) for m in staying]
    if all(end is not None and end.exit_code == 0 for end in ends):
        return not any(r is not None and r.settling for r in reports)
    step = planned.step if planned.step is not None else 0
    if not any((r.progress.step or 0) >= step for r in reports if r is not None):
        return False  # what an older attempt had saved beyond it says nothing
    running = [
        r.checkpoint for r, end in zip(reports, ends, strict=True) if r is not None and end is None
    ]
    saves = [r.checkpoint for r in reports if r is not None and r.checkpoint.last_saved_at]
    may_write = not gang.spec.shared_directory and not all(v.last_saved_at for v in running)
    if may_write and not gang.alarm.has_passed(_limit(planned)):
        return False  # such a rank may be writing its first one, and not one that never saves
    return bool(saves) and all(
        v.last_saved_step is not None and v.last_saved_step >= step for v in saves
    )


def _have_all_ended(gang: Gang, planned: PlannedStop) -> bool:
    """However they did, and nobody looks for what they saved any more."""
    staying = [m for m in gang.members if not _is_gone(gang, m, planned)]
    return all(
        m.ended_trainer(gang.attempt) is not None and not (m.report and m.report.settling)
        for m in staying
    )


def _after_time(gang: Gang, planned: PlannedStop) -> Plan | None:
    ended = [
        m.rank
        for m in gang.members
        if m.ended_trainer(gang.attempt) is not None or _is_gone(gang, m, planned)
    ]
    if ended:
        missed = f"only ranks {ended[:8]} ended, and no save of step {planned.step} was finished"
        return _move(gang, planned, missed=missed)
    if planned.verdict == MISSED:
        return None
    steps = {m.rank: m.report.progress.step for m in gang.members if m.report is not None}
    told = ", ".join(f"rank {rank} at {step}" for rank, step in sorted(steps.items())[:8])
    return _missed(gang, planned, f"not all ranks had saved at step {planned.step} in time: {told}")


def _missed(gang: Gang, planned: PlannedStop, why: str) -> Plan:
    message = f"{why}. The newest finished save counts"
    missed = planned.model_copy(update={"verdict": MISSED, "message": message})
    note = Note(type="Warning", reason=Reason.STOP_MISSED, message=message)
    status = gang.status.model_copy(update={"stop": missed})
    return record(gang, status, rule="stop", why=message, notes=(note,))


def _move(gang: Gang, planned: PlannedStop, *, missed: str | None = None) -> Plan:
    """The next attempt: ranks that leave get new pods, the others go on in theirs."""
    faults = _losses(gang, planned)
    size = growth.after_stop(gang, planned.cause) if not faults else None
    cause = Reason(planned.cause) if size is None else Reason.SCALED_UP
    cause = _CAUSES.get(cause, cause)
    text = missed or _reached(gang, planned)
    why = f"{faults[0].message}; {text}" if faults else f"{text}, and nothing stands against it"
    status: Status = attempts.next_attempt(
        gang,
        Cause(
            reason=cause,
            charge=Charge.INFRASTRUCTURE if faults else Charge.INTENT,
            message=why,
            fault=faults[0] if faults else None,
            is_paced=False,
            size=size,
            is_by_itself=cause not in _CAUSES.values(),
        ),
        faults,
    ).model_copy(update={"left_nodes": next_left_nodes(gang, [f.rank for f in faults])})
    notes = [Note(type="Normal", reason=cause, message=why)]
    if missed is not None:
        notes.insert(0, Note(type="Warning", reason=Reason.STOP_MISSED, message=missed))
    return record(
        gang,
        status,
        rule="stop",
        why=why,
        notes=tuple(notes),
        evidence={"step": planned.step, "leaving": [f.rank for f in faults], "missed": missed},
    )


def _reached(gang: Gang, planned: PlannedStop) -> str:
    ends = [m.ended_trainer(gang.attempt) for m in gang.members if not _is_gone(gang, m, planned)]
    if all(ends):
        return f"all ranks stopped by step {planned.step}"
    return f"every rank that saves has a save of step {planned.step} or later"


def _losses(gang: Gang, planned: PlannedStop) -> tuple[Fault, ...]:
    going = {one.member.rank: (one.reason, one.why) for one in leaving(gang)}
    for member in gang.members:
        if _is_gone(gang, member, planned):
            why = planned.message.partition(";")[0]
            going[member.rank] = (Reason(planned.cause), why)
    return tuple(
        fault_at(
            gang.members[rank],
            reason=reason,
            at=gang.now,
            order=BY_POD,
            is_pod_lost=True,
            message=why,
        )
        for rank, (reason, why) in sorted(going.items())
    )


# --- who has heard, and what else is wrong ---


def _unheard(gang: Gang, planned: PlannedStop) -> list[Member]:
    """Ending pods that have not said that their trainer was told."""
    return [
        one.member
        for one in leaving(gang)
        if one.is_ending
        and one.member.rank in planned.ranks
        and (one.member.report is None or one.member.report.stop_step != planned.step)
        and one.member.ended_trainer(gang.attempt) is None
    ]


def _other_faults(gang: Gang) -> list[Fault]:
    """All but the ends that a stop comes before."""
    asked = gang.status.asked_stop
    return [
        fault
        for member in gang.members
        if (fault := failures.fault_of(gang, member)) is not None
        and not is_awaited_end(fault, member)
        and not (asked is not None and _is_gone(gang, member, asked))
    ]
