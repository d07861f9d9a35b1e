"""Roll-back by bisection, where a person asks for it: the newest save that trains on.

Half of the saves in question are ruled out a restart: a save is good when training gets a stated
number of steps beyond it, bad when a fault of the job's own comes first. What was asked for uses
no budget. Must never condemn a save unless an older one was good. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from rtj_api.reasons import Charge, Reason
from rtj_api.rules.blame import SOON_STEPS
from rtj_api.status import (
    MAX_BISECTED,
    MAX_SUSPICIONS,
    Beginnings,
    Bisection,
    Status,
    Suspicion,
    WantedBeginning,
)

from rtj_operator.core import attempts, diagnosing
from rtj_operator.core.attempts import Cause
from rtj_operator.core.faults import Fault
from rtj_operator.core.gang import Gang
from rtj_operator.core.plan import Note, Plan
from rtj_operator.core.recording import record


def begun(gang: Gang, *, request_id: str) -> Bisection | str:
    """The bisection that a request begins; else why there is nothing to look for."""
    zero = gang.rank_zero.report if gang.members else None
    if zero is None or not zero.listed:
        return (
            "rank 0's sidecar is needed to list the saves: ask again with another id once it is "
            "there; where a hold has freed the pods, request a restart first"
        )
    usable = [c for c in zero.candidates if diagnosing.may_serve(c)][:MAX_BISECTED]
    if len(usable) < 2:
        return "fewer than two usable saves are there: name one by the action resume-from"
    own = [i for i in gang.status.budgets.incidents if i.started and i.charge == Charge.USER]
    ran = [
        i.step - (i.from_step or 0) for i in own if i.step is not None and i.alike == own[-1].alike
    ]
    oldest_first = usable[::-1]
    return Bisection(
        id=request_id,
        saves=[c.name for c in oldest_first],
        steps=[c.step or 0 for c in oldest_first],
        bad=len(usable) - 1,
        run_steps=max(ran, default=SOON_STEPS) + 1,
    )


def with_trial(status: Status, found: Bisection) -> Status:
    """The status whose next start is from the save under trial."""
    return _beginning(status, found, found.saves[found.trial]).model_copy(
        update={"bisection": found}
    )


def _beginning(status: Status, found: Bisection, name: str) -> Status:
    wanted = WantedBeginning(value=name, asked=_asked(found, name))
    known = {**status.beginnings.model_dump(), "wanted": wanted.model_dump(), "accepted": True}
    return status.model_copy(update={"beginnings": Beginnings.model_validate(known)})


def _asked(found: Bisection, name: str) -> str:
    return f"bisection {found.id}: {name}"


def _is_tried(gang: Gang, found: Bisection) -> bool:
    """The attempt that runs stems from the save under trial."""
    asked = _asked(found, found.saves[found.trial])
    return gang.status.is_started and asked in gang.status.beginnings.acted


def passed(gang: Gang) -> Plan | None:
    """A bisection that a person asked for: training got far enough beyond the save under trial, so
    that one is good and a newer one is tried; the newest good one trains on."""
    found = gang.status.bisection
    if found is None or gang.through_store or not _is_tried(gang, found):
        return None
    text = _why_good(gang, found)
    if text is None:
        return None
    return _next(gang, found.model_copy(update={"good": found.trial}), text=text, fault=None)


def _why_good(gang: Gang, found: Bisection) -> str | None:
    """Training got far enough beyond the save under trial; None while it did not."""
    step = diagnosing.step_of_attempt(gang, is_sure=True)
    if step is None or step < found.steps[found.trial] + found.run_steps:
        return None
    name = found.saves[found.trial]
    return f"bisection {found.id}: {name} is good, training from it made step {step}"


def failed(gang: Gang, first: Fault, faults: tuple[Fault, ...]) -> Plan | None:
    """The job's own fault came before the save under trial was far enough: that one is bad. Where
    both are heard at once it was far enough, and is good."""
    found = gang.status.bisection
    if found is None or first.charge != Charge.USER or not _is_tried(gang, found):
        return None
    good = _why_good(gang, found)
    if good is not None:
        told = found.model_copy(update={"good": found.trial})
        text = f"{good}; then {first.message}"
        return _next(gang, told, text=text, fault=first, faults=faults)
    text = f"bisection {found.id}: {found.saves[found.trial]} is bad: {first.message}"
    told = found.model_copy(update={"bad": found.trial})
    return _next(gang, told, text=text, fault=first, faults=faults)


def _next(
    gang: Gang,
    found: Bisection,
    *,
    text: str,
    fault: Fault | None,
    faults: tuple[Fault, ...] = (),
) -> Plan:
    if found.bad - found.good > 1:
        status = with_trial(gang.status, found)
        return _restart(gang, status, text=text, fault=fault, faults=faults)
    over = gang.status.model_copy(update={"bisection": None})
    if found.good < 0:
        message = f"{text}. No save of {len(found.saves)} trains on, so none is to blame"
        held = attempts.next_hold(
            replace(gang, status=over), reason=Reason.DETERMINISTIC_FAILURE, message=message
        )
        note = Note(type="Warning", reason=Reason.DETERMINISTIC_FAILURE, message=message)
        return record(gang, held, rule="bisection", why=message, notes=(note,))
    best, bad = found.saves[found.good], found.saves[found.bad :]
    over = over.model_copy(update={"suspicions": _with_proved(over, found, bad)})
    text = f"{text}. The newest good save is {best}; bad are {', '.join(bad[:MAX_SUSPICIONS])}"
    if fault is None:
        note = Note(type="Warning", reason=Reason.CHECKPOINT_POISON, message=text)
        return record(gang, over, rule="bisection", why=text, notes=(note,))
    status = _beginning(over, found.model_copy(update={"id": f"{found.id}, its end"}), best)
    return _restart(
        gang, status, text=text, fault=fault, faults=faults, reason=Reason.CHECKPOINT_POISON
    )


def _with_proved(status: Status, found: Bisection, bad: list[str]) -> list[Suspicion]:
    proved = [
        Suspicion(
            name=name,
            is_proved=True,
            attempt=status.attempt,
            alike=f"bisection {found.id}"[:128],
        )
        for name in bad[:MAX_SUSPICIONS]
    ]
    kept = [s for s in status.suspicions if s.name not in bad]
    return [*kept, *proved][-MAX_SUSPICIONS:]


def _restart(
    gang: Gang,
    status: Status,
    *,
    text: str,
    fault: Fault | None,
    faults: tuple[Fault, ...],
    reason: Reason = Reason.BEGINNING_CHANGED,
) -> Plan:
    cause = Cause(
        reason=Reason.BEGINNING_CHANGED,
        charge=Charge.INTENT,
        message=text,
        fault=fault,
        is_paced=False,
    )
    following = attempts.next_attempt(replace(gang, status=status), cause, faults)
    note = Note(type="Warning", reason=reason, message=text)
    return record(gang, following, rule="bisection", why=text, notes=(note,))
