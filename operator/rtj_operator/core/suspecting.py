"""Suspect saves: passed over until an older one got past the same point, or failed alike.

A save is never condemned for what a trainer did: it is suspect first; proved bad only by an older
one that gets further; free of suspicion when the older one fails as well, and then the job holds,
for a wrong image must not eat the history. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from rtj_api.reasons import Reason
from rtj_api.rules.suspicion import has_got_past, point_beyond
from rtj_api.status import Beginnings, Status, Suspicion, WantedBeginning

from rtj_operator.core import attempts, diagnosing, steering
from rtj_operator.core.diagnosing import Case
from rtj_operator.core.gang import Gang
from rtj_operator.core.plan import Note, Plan
from rtj_operator.core.recording import record

_FREED = "suspicion withdrawn"


def why_passed_over(status: Status, *, proved: bool) -> dict[str, str]:
    """By name: why a save is not tried: another goes first, or it is proved bad."""
    outcome = "an older one got past that point" if proved else "an older one is tried first"
    return {
        s.name: f"suspect since attempt {s.attempt} ({s.alike}{s.where}); {outcome}"
        for s in status.suspicions
        if s.is_proved == proved
    }


def is_freed(wish: WantedBeginning) -> bool:
    """Nobody asked for it: its suspicion was withdrawn."""
    return wish.asked.startswith(_FREED)


def without_suspicion(gang: Gang) -> Gang:
    """The gang once no save is suspect any more: the next start is from the newest of them, by
    name, for the attempt from the older one has made a branch of it."""
    status = gang.status
    freed = [s for s in status.suspicions if not s.is_proved]
    update: dict[str, object] = {"suspicions": [s for s in status.suspicions if s.is_proved]}
    if freed and steering.wanted(gang) is None:
        wanted = WantedBeginning(
            value=freed[0].name,
            asked=f"{_FREED} after attempt {status.attempt}",
        )
        known = status.beginnings.model_dump()
        update["beginnings"] = Beginnings.model_validate({**known, "wanted": wanted.model_dump()})
    return replace(gang, status=status.model_copy(update=update))


def hold(gang: Gang, case: Case) -> Plan:
    """No save is to blame and no restart helps: a person is needed. A changed spec or a request
    goes on from the newest save."""
    text = (
        f"{case.fault.message}. Correct it and apply the job's spec, or request a restart, or a "
        'search among older saves: resumable-training.dev/request: {"id": "1", "action": "bisect"}'
    )
    free = without_suspicion(gang)
    held = attempts.next_hold(free, reason=Reason.DETERMINISTIC_FAILURE, message=text)
    held = held.model_copy(update={"budgets": diagnosing.with_case(held.budgets, case)})
    notes = [Note(type="Warning", reason=Reason.DETERMINISTIC_FAILURE, message=text)]
    notes += cleared(gang.status, held)
    return record(
        gang, held, rule="fault", why=text, notes=tuple(notes), evidence=case.fault.evidence
    )


def _freed(suspicion: Suspicion) -> Note:
    text = f"save {suspicion.name} is not suspect any more: an older one failed alike"
    return Note(type="Normal", reason=Reason.CHECKPOINT_CLEARED, message=text)


def cleared(before: Status, after: Status) -> tuple[Note, ...]:
    """An event for each save that is suspect no longer, and for each that is now."""
    now = {s.name for s in after.suspicions}
    was = {s.name for s in before.suspicions}
    freed = [_freed(s) for s in before.suspicions if s.name not in now]
    new = [
        Note(
            type="Warning",
            reason=Reason.CHECKPOINT_SUSPECT,
            message=f"save {s.name} is suspect: {s.alike}{s.where}; the one before it is tried",
        )
        for s in after.suspicions
        if s.name not in was
    ]
    return (*freed, *new)


def proved(gang: Gang) -> Plan | None:
    """An older save has got past the point at which a suspect one failed: that one was bad. Its
    mark in the store is rank 0's affair, which sees the same."""
    status, resume = gang.status, gang.status.resume
    if not status.suspicions or not status.is_started or resume is None or gang.through_store:
        return None
    zero = gang.rank_zero.report
    if zero is None or zero.attempt != gang.attempt:
        return None
    bad = [
        s
        for s in status.suspicions
        if not s.is_proved
        and s.name != resume.name
        and has_got_past(point_beyond(s.past_step, alike=s.alike), zero)
    ]
    if not bad:
        return None
    made = zero.checkpoint.last_durable_name
    notes = tuple(
        Note(
            type="Warning",
            reason=Reason.CHECKPOINT_POISON,
            message=f"save {s.name} is bad: the older {resume.name or 'start from nothing'} got "
            f"past the point where it failed ({s.alike}{s.where}); {made} is durable",
        )
        for s in bad
    )
    known = [s.model_copy(update={"is_proved": s.is_proved or s in bad}) for s in status.suspicions]
    return record(
        gang,
        status.model_copy(update={"suspicions": known}),
        rule="proved",
        why=notes[0].message,
        notes=notes,
        evidence={"bad": [s.name for s in bad], "durable": made},
    )
