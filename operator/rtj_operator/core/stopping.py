"""One stop step for all ranks before a pod of the gang is gone, where there is time for it.

Decided once an attempt, recorded, then said: first to pods that are ending, which only hear what is
pushed to them; to the others when those have it. Then the gang has until the recorded time; a pod's
end is no fault before that. Whatever else goes wrong ends the wait, and the ordinary rules go on.
Must never be needed for a save that is finished already, nor name two steps in one attempt. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Charge, Reason
from rtj_api.rules import exits
from rtj_api.rules.stopping import LEAD_SECONDS, RankPace, SaveCosts, StopVerdict, plan_stop
from rtj_api.status import PlannedStop, Status

from rtj_operator.core import attempts, failures, judges, successes
from rtj_operator.core.attempts import Cause
from rtj_operator.core.conditions import is_training
from rtj_operator.core.converge import directive_patches
from rtj_operator.core.directives import untold_of_stop
from rtj_operator.core.faults import BY_POD, Fault, fault_at
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.leaving import Leaving, is_awaited_end, is_heard_too_early, leaving
from rtj_operator.core.nodes import is_heard
from rtj_operator.core.plan import Note, Plan
from rtj_operator.core.recording import moment_of, record

HEAR_SECONDS = 3.0  # in which an ending pod has to say that it heard its stop step
MISSED = "Missed"
_NOTES = {
    StopVerdict.AGREED: ("Normal", Reason.STOP_AGREED),
    StopVerdict.FINISH_LAST: ("Warning", Reason.LAST_SAVE_COUNTS),
    StopVerdict.TOO_LATE: ("Warning", Reason.STOP_TOO_LATE),
}


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
    if not going or not is_training(gang) or _other_faults(gang):
        return None
    early = [one for one in going if is_heard_too_early(gang, one)]
    if early:
        return Plan(rule="stop", why=f"{early[0].why}; the API server may say more")
    first = min(going, key=lambda one: (one.left, one.member.rank))
    if _is_decided(gang, first, going):
        return None
    planned = planned_for(gang, cause=first.reason, why=first.why, left=first.left, going=going)
    return record(
        gang,
        gang.status.model_copy(update={"stop": planned}),
        rule="stop",
        why=planned.message,
        notes=(note_of(planned),),
        evidence={"verdict": planned.verdict, "step": planned.step, "left": first.left},
    )


def _is_decided(gang: Gang, first: Leaving, going: tuple[Leaving, ...]) -> bool:
    """This very trouble was looked at in this attempt, and nothing could be asked for."""
    before = gang.status.stop
    if before is None or before.attempt != gang.attempt:
        return False
    ranks = [one.member.rank for one in going]
    return before.cause == first.reason and before.ranks == ranks


def planned_for(
    gang: Gang,
    *,
    cause: Reason,
    why: str,
    left: float,
    going: tuple[Leaving, ...] = (),
    ships: bool = True,
) -> PlannedStop:
    """What is decided, with the sum that it rests on."""
    found = plan_stop(_paces(gang), left=left, costs=_costs(gang), ships=ships)
    now = moment_of(gang)
    text = f"all ranks save and end at step {found.step}"
    if found.step is None:
        text = "no stop step is asked for"
    return PlannedStop(
        attempt=gang.attempt,
        verdict=found.verdict,
        cause=cause,
        ranks=[one.member.rank for one in going],
        step=found.step,
        since=now,
        until=None if found.last_for is None else now + round(found.last_for, 3),
        message=f"{why}; {text}: {found.why}",
    )


def note_of(planned: PlannedStop) -> Note:
    kind, reason = _NOTES[StopVerdict(planned.verdict)]
    return Note(type=kind, reason=reason, message=planned.message)


def _paces(gang: Gang) -> list[RankPace]:
    return [_pace(gang, member) for member in gang.members]


def _pace(gang: Gang, member: Member) -> RankPace:
    report, view, pod = member.report, member.view, member.pod
    if report is None or view is None or pod is None or not is_heard(gang, pod):
        return RankPace(rank=member.rank, is_reachable=False)
    progress = report.progress
    since_heard = gang.now - (view.received_at if view.received_at is not None else gang.now)
    # By the pod's clock until it was sent, by ours from then on.
    told_at = progress.updated_at if progress.updated_at is not None else report.sent_at
    return RankPace(
        rank=member.rank,
        step=progress.step if progress.source != "checkpoint" else None,
        age=max(0.0, report.sent_at - told_at) + max(0.0, since_heard),
        pace=progress.pace_seconds or None,
        is_reachable=report.can_stop and not gang.through_store,
    )


def _costs(gang: Gang) -> SaveCosts:
    views = [m.report.checkpoint for m in gang.members if m.report is not None]
    saves = [v.writing_seconds for v in views if v.writing_seconds is not None]
    saves += [v.stall_seconds / v.stalls for v in views if v.stalls]
    uploads = [v.upload_seconds for v in views if v.upload_seconds is not None]
    pending = [
        v.pending_bytes / v.upload_bytes * v.upload_seconds
        for v in views
        if v.pending_bytes and v.upload_bytes and v.upload_seconds is not None
    ]
    advice = gang.status.interval  # has the figures of the attempts before
    known_save = advice.writing_seconds if advice is not None else None
    known_upload = advice.durable_latency_seconds if advice is not None else None
    return SaveCosts(
        save=max(saves, default=known_save),
        upload=max(uploads, default=known_upload),
        pending=max(pending, default=0.0),
    )


# --- what follows ---


def _follow(gang: Gang, planned: PlannedStop) -> Plan | None:
    others = _other_faults(gang)
    if others:
        return None  # the ordinary rules: nothing is awaited any more
    if has_stopped(gang, planned):
        return _move(gang, planned)
    is_over = planned.verdict == MISSED or _have_all_ended(gang, planned)
    if is_over or gang.alarm.has_passed(_limit(planned)):
        return _after_time(gang, planned)
    unheard = _unheard(gang, planned)
    if unheard and gang.alarm.has_passed(planned.since + HEAR_SECONDS):
        names = [m.rank for m in unheard]
        return _missed(gang, planned, f"the ending pods of ranks {names} could not be told in time")
    untold = untold_of_stop(gang)
    if untold and gang.alarm.has_passed(planned.since + LEAD_SECONDS):
        # Each would stop where it hears of it: an operator that comes back says no more.
        return _missed(gang, planned, f"ranks {untold[:8]} could not be told in time")
    awaited = [f for m in gang.members if (f := failures.fault_of(gang, m)) is not None]
    if not awaited:
        return None  # the ordinary rules go on beside it
    actions = tuple(directive_patches(gang))
    return Plan(rule="stop", why=f"step {planned.step} is awaited", actions=actions)


def _is_gone(gang: Gang, member: Member, planned: PlannedStop) -> bool:
    """Its pod's end was expected and has come. It may have been done there before the others; one
    that shows how it ended must have ended well."""
    if member.rank not in planned.ranks:
        return False
    if member.pod is None or not member.pod.is_terminal:
        return member.pod is None
    end = member.ended_trainer(gang.attempt)
    if end is None or end.exit_code is None:
        return end is not None and judges.was_told_by(end.signal, member)
    number = end.signal or exits.from_returncode(end.exit_code).signal
    return end.exit_code == 0 or judges.was_told_by(number, member)


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
    cause = Reason(planned.cause)
    if cause == Reason.SUSPENDING:
        cause = Reason.RESUMED_BY_USER
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
        ),
        faults,
    )
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
        return f"all ranks stopped at step {planned.step}"
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
