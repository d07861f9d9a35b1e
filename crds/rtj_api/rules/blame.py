"""Who is to blame for a fault, from its sign and from those like it since the last durable work.

The three-way test: does the trouble follow the step (its data), the save that was resumed, or the
node? Nothing is told apart by one fault, so the first restart changes nothing; then one factor is
changed a restart, and after three restarts the answer is what is left. A pure function of what
status remembers, so that an operator that comes back goes on with the same test. Must never
condemn a save: it only proposes to try an older one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rtj_api.reasons import Charge
from rtj_api.rules.origins import BELIEVED, MOST_BELIEVED, Origin, charge_of
from rtj_api.rules.overrides import FailureAction
from rtj_api.status_trouble import Incident

MOST_RESTARTS = 3  # of one test
SOON_STEPS = 20  # after resuming: the save is asked before the node
SAME_STEPS = 1
SAME_SHARE_OUT_OF_MEMORY = 0.05  # a leak does not hit the very same step
SAME_SECONDS, SAME_SHARE_OF_TIME = 10.0, 0.1  # where no step was seen
NETWORK_SECONDS = 300.0
EVICTION_SECONDS = 3600.0
EVICTED = "Evicted"
OUT_OF_MEMORY = "OutOfMemory"


class Factor(StrEnum):
    """What a restart does otherwise than the one before it, to see whether the trouble stays."""

    NODE = "Node"
    SAVE = "Save"


class End(StrEnum):
    FAIL = "fail"
    HOLD = "hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What to do about a fault. `vary`: what the restart changes. `suspect`: the save to pass over.
    `withdrawn`: an older save failed alike, so no save is suspect any more. `end`: no restart.
    `why`: one sentence for people; empty where nothing is known beyond the fault itself."""

    charge: Charge
    vary: Factor | None = None
    suspect: str | None = None
    withdrawn: bool = False
    end: End | None = None
    why: str = ""


def diagnose(
    now: Incident,
    *,
    origin: Origin,
    before: Sequence[Incident],
    can_roll_back: bool,
    believed: int = 0,
    can_move: bool = True,
) -> Diagnosis:
    """The diagnosis of `now`, with the faults since the last durable work `before` it, oldest
    first. `can_roll_back`: there is a usable save older than the one it resumed from. `believed`:
    restarts since then that were free for a sign's word, of whatever kind. `can_move`: there is
    another node to try."""
    alike = [i for i in before if i.alike == now.alike]
    if now.alike.startswith(EVICTED):
        return _evicted(now, alike)
    alike = [i for i in alike if i.started]
    charge = charge_of(origin)
    if charge != Charge.USER and len(alike) >= BELIEVED:
        why = (
            f"Faults of this kind ({now.alike}) were free {BELIEVED} times without a newly durable "
            "step; they follow the job, so they use its budget from here on"
        )
        return Diagnosis(charge=Charge.USER, why=why)
    if charge != Charge.USER and believed >= MOST_BELIEVED:
        return doubted(believed)
    if origin in (Origin.NODE, Origin.NETWORK) and not can_move:
        return Diagnosis(charge=charge)
    if origin == Origin.NODE:
        why = f"Its sign points at node {now.node or '?'}, so the rank moves to another"
        return Diagnosis(charge=charge, vary=Factor.NODE, why=why)
    if origin == Origin.NETWORK:
        return _network(now, alike, charge)
    if origin == Origin.CHECKPOINT:
        return _unreadable(now, alike, charge, can_roll_back=can_roll_back)
    if origin == Origin.PASSING or not alike:
        return Diagnosis(charge=charge)
    return _tested(now, alike, origin=origin, can_roll_back=can_roll_back, can_move=can_move)


def doubted(believed: int) -> Diagnosis:
    """Nothing is free for ever without durable work, whatever names are given to it."""
    why = (
        f"Faults of several kinds were free {believed} times without a newly durable step; they "
        "follow the job, so they use its budget from here on"
    )
    return Diagnosis(charge=Charge.USER, why=why)


def by_rule(now: Incident, action: FailureAction, *, can_roll_back: bool) -> Diagnosis:
    """What a rule of the user's wants. Their word is believed as often as it is said."""
    match action:
        case FailureAction.COUNT:
            return Diagnosis(charge=Charge.USER)
        case FailureAction.IGNORE:
            return Diagnosis(charge=Charge.INFRASTRUCTURE)
        case FailureAction.AVOID_NODE:
            why = f"The rank moves to another node than {now.node or 'this one'}"
            return Diagnosis(charge=Charge.INFRASTRUCTURE, vary=Factor.NODE, why=why)
        case FailureAction.FAIL_JOB:
            return Diagnosis(charge=Charge.USER, end=End.FAIL, why="That rule ends the job")
    if now.save is None or not can_roll_back:
        return Diagnosis(charge=Charge.USER, why="No older save is left to begin from")
    why = _suspicion(now, count=1)
    return Diagnosis(charge=Charge.CHECKPOINT, vary=Factor.SAVE, suspect=now.save, why=why)


def _evicted(now: Incident, alike: Sequence[Incident]) -> Diagnosis:
    """The kubelet gave a cause. Twice within an hour without durable progress, and it is not the
    node's bad luck any more."""
    lately = [i for i in alike if now.at - i.at <= EVICTION_SECONDS]
    if not lately or Charge(now.charge) == Charge.USER:
        return Diagnosis(charge=Charge(now.charge))
    why = (
        f"Evicted for the same cause {len(lately) + 1} times within an hour without a newly "
        "durable step, so this restart uses the job's budget: match resources.requests to its use"
    )
    return Diagnosis(charge=Charge.USER, why=why)


def _network(now: Incident, alike: Sequence[Incident], charge: Charge) -> Diagnosis:
    again = [i for i in alike if i.node == now.node and now.at - i.at <= NETWORK_SECONDS]
    if not again or now.node is None:
        return Diagnosis(charge=charge)
    why = f"The second within five minutes on node {now.node}, so the rank moves to another"
    return Diagnosis(charge=charge, vary=Factor.NODE, why=why)


def _unreadable(
    now: Incident, alike: Sequence[Incident], charge: Charge, *, can_roll_back: bool
) -> Diagnosis:
    """The trainer could not use the save that it was given; if it made a step, it could."""
    if now.step is not None or now.save is None:
        return Diagnosis(charge=Charge.USER)
    if {i.save for i in alike if i.step is None} - {now.save}:
        return _withdrawn([*alike, now])
    if can_roll_back:
        return Diagnosis(
            charge=charge, vary=Factor.SAVE, suspect=now.save, why=_suspicion(now, count=1)
        )
    return Diagnosis(charge=Charge.USER)


def _tested(
    now: Incident,
    alike: Sequence[Incident],
    *,
    origin: Origin,
    can_roll_back: bool,
    can_move: bool,
) -> Diagnosis:
    """The second fault alike or a later one, of the job's own budget."""
    user, count = Charge.USER, len(alike) + 1
    same_step = all(_is_same_step(i, now) for i in alike)
    same_place = same_step or all(_is_same_offset(i, now) for i in alike)
    if origin == Origin.PROGRAM:
        if not _is_same_step(alike[-1], now):
            return Diagnosis(charge=user)
        return Diagnosis(charge=user, end=End.FAIL, why=_program(now, count=count))
    every = [*alike, now]
    varied = {i.varied for i in every}
    is_withdrawn = Factor.SAVE in varied and len({i.save for i in every}) > 1
    tried = varied | (_varied_by_chance(every) if same_place else set())
    left = [f for f in _order(now, alike, origin) if f not in tried]
    if Factor.NODE in left and not can_move:
        left.remove(Factor.NODE)
    if Factor.SAVE in left and not (same_place and now.save is not None and can_roll_back):
        left.remove(Factor.SAVE)
    if left and count <= MOST_RESTARTS:
        if left[0] == Factor.SAVE:
            why = _suspicion(now, count=count)
            return Diagnosis(charge=user, vary=Factor.SAVE, suspect=now.save, why=why)
        also = "; an older save failed alike, so no save is suspect" if is_withdrawn else ""
        why = (
            f"{_times(count)}{_at(now)}{also}: the next try is on another node than "
            f"{now.node or 'this one'}"
        )
        return Diagnosis(charge=user, vary=Factor.NODE, withdrawn=is_withdrawn, why=why)
    if not same_place or count < MOST_RESTARTS or (not is_withdrawn and _may_pass(every, origin)):
        return Diagnosis(charge=user, withdrawn=is_withdrawn)
    if is_withdrawn and not (same_step and now.step is not None):
        return _withdrawn(every)
    is_step = now.step is not None and same_step
    text = _step(every) if is_step else _program(now, count=count)
    return Diagnosis(charge=user, withdrawn=is_withdrawn, end=End.FAIL, why=text)


def _may_pass(every: Sequence[Incident], origin: Origin) -> bool:
    """Before the first step a trainer may miss what is elsewhere and comes back, such as a server
    of data; the budget, with its back-off, gives it minutes. A step that fails is its own doing."""
    return origin == Origin.OPEN and all(i.step is None for i in every)


def _varied_by_chance(every: Sequence[Incident]) -> set[str]:
    """Factors that differed among faults at one place, whatever for."""
    nodes = {i.node for i in every if i.node is not None}
    saves = {i.save for i in every}
    return {f for f, seen in ((Factor.NODE, nodes), (Factor.SAVE, saves)) if len(seen) > 1}


def _order(now: Incident, alike: Sequence[Incident], origin: Origin) -> list[Factor]:
    if origin == Origin.PLACE:
        return [Factor.NODE]
    soon = all(_is_soon(i) for i in [*alike, now])
    return [Factor.SAVE, Factor.NODE] if soon else [Factor.NODE, Factor.SAVE]


def _is_soon(incident: Incident) -> bool:
    return incident.step is None or incident.step - (incident.from_step or 0) <= SOON_STEPS


def _is_same_step(a: Incident, b: Incident) -> bool:
    if a.step is None or b.step is None:
        return a.step is b.step and _is_same_time(a, b)
    near = SAME_STEPS
    if b.alike == OUT_OF_MEMORY:
        near = max(near, int(SAME_SHARE_OUT_OF_MEMORY * max(a.step, b.step)))
    return abs(a.step - b.step) <= near


def _is_same_time(a: Incident, b: Incident) -> bool:
    """Neither made a step that was seen: they ended as long after their starts."""
    if a.ran_seconds is None or b.ran_seconds is None:
        return False
    near = max(SAME_SECONDS, SAME_SHARE_OF_TIME * max(a.ran_seconds, b.ran_seconds))
    return abs(a.ran_seconds - b.ran_seconds) <= near


def _is_same_offset(a: Incident, b: Incident) -> bool:
    """As many steps after what they resumed from."""
    if a.step is None or b.step is None:
        return _is_same_step(a, b)
    return abs((a.step - (a.from_step or 0)) - (b.step - (b.from_step or 0))) <= SAME_STEPS


def _times(count: int) -> str:
    restarts = "a restart" if count == 2 else f"{count - 1} restarts"
    return f"{count} faults alike, {restarts} between them" if count > 1 else "One fault"


def _at(now: Incident) -> str:
    return ", before the first step" if now.step is None else f", after step {now.step}"


def _from(every: Sequence[Incident]) -> str:
    """`on 2 nodes and from 3 beginnings`."""
    nodes = sorted({i.node for i in every if i.node is not None})
    saves = {i.save for i in every}
    where = f"on {len(nodes)} nodes" if len(nodes) > 1 else f"on node {', '.join(nodes)}"
    origins = f"from {len(saves)} beginnings" if len(saves) > 1 else "from one beginning"
    return f"{where} and {origins}" if nodes else origins


def _suspicion(now: Incident, *, count: int) -> str:
    return f"{_times(count)}{_at(now)}: save {now.save} is suspect and the one before it is tried"


def _withdrawn(every: Sequence[Incident]) -> Diagnosis:
    why = (
        f"{_times(len(every))}, {_from(every)}: no save is to blame, so none is suspect any more. "
        "Look at what changed in image, command or data"
    )
    return Diagnosis(charge=Charge.USER, withdrawn=True, end=End.HOLD, why=why)


def _program(now: Incident, *, count: int) -> str:
    return (
        f"{_times(count)}{_at(now)} ({now.alike}): it does not pass by itself, so it is not tried "
        "again"
    )


def _step(every: Sequence[Incident]) -> str:
    steps = [i.step for i in every if i.step is not None]
    return (
        f"{_times(len(every))}, {_from(every)}, each time after step {every[-1].step}: it follows "
        f"the step. Look at the data of steps {min(steps)} to {max(steps) + 1}"
    )
