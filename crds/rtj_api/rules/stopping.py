"""One step at which all ranks save and end, where there is time for it: from what the ranks report.

A rank that ends earlier than the others leaves them stuck in a collective, and nothing is saved.
So the step lies ahead of every rank by more than it takes to tell all of them, and it is asked for
only if that step, its save and its upload fit into the time that is left. Must never guess a step
that is not told, and never ask for what some rank cannot be told. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

# Until the last rank of a few has read the step: two rounds of directives and reports.
LEAD_SECONDS = 4.0
TOLD_A_SECOND = 50.0  # … and of many, each by two requests: a busy API server takes 100 a second
LEAD_STEPS = 1
SPARE_SECONDS = 2.0
SAVE_TIMES = 1.5  # of what saves took: one at an unusual moment may wait for a disk
# Nothing was saved yet. Not more: to ask in vain costs a moment, not to ask what was trained.
UNKNOWN_SECONDS = 5.0
PATIENCE_TIMES, PATIENCE_SECONDS = 1.5, 6.0  # who has not saved by then does not obey
SIGNAL_SECONDS = 5.0  # for a trainer that gets its SIGTERM where its pod's own grace is the shorter
HEARD_SECONDS = 3.0  # of that grace are over before it is known, or lie too close to its end
SIGNS_PER_SECOND = 2.0  # what is printed is read so often; see `first_step_after`

_ASSUMED = " (assumed: none was measured)"


class StopVerdict(StrEnum):
    AGREED = "Agreed"
    FINISH_LAST = "FinishLast"  # nothing more is asked for; what was saved is still shipped
    TOO_LATE = "TooLate"  # not even that fits


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPace:
    """Of one rank: the newest step it told of, how old that word is, the seconds of a step.
    `is_reachable`: it can be told something now."""

    rank: int
    step: int | None = None
    age: float = 0.0
    pace: float | None = None
    is_reachable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCosts:
    """Of the slowest rank; None: not measured. `pending`: until what is saved already is shipped,
    0 where all is durable."""

    save: float | None = None
    upload: float | None = None
    pending: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPlan:
    """`step` and `last_for` only if agreed: for so many seconds the trainers may go on."""

    verdict: StopVerdict
    why: str
    step: int | None = None
    last_for: float | None = None


def plan_stop(
    ranks: Sequence[RankPace], *, left: float, costs: SaveCosts, ships: bool = True
) -> StopPlan:
    """`left`: seconds until the first of them has to be gone. `ships`: the save has to be in the
    store by then; else its pods stay until it is."""
    trouble = _trouble(ranks)
    if trouble is not None:
        return _as_it_is(left, costs, why=trouble)
    known = [(r.step, r.age, r.pace) for r in ranks if r.step is not None and r.pace is not None]
    slowest = max(pace for _, _, pace in known)
    lead = lead_seconds(len(ranks))
    step = max(first_step_after(step, age=age, pace=pace, lead=lead) for step, age, pace in known)
    behind = min(step for step, _, _ in known)
    reach = (step - behind) * slowest
    save = UNKNOWN_SECONDS if costs.save is None else SAVE_TIMES * costs.save
    upload = 0.0 if not ships else UNKNOWN_SECONDS if costs.upload is None else costs.upload
    need = reach + save + upload + SPARE_SECONDS
    parts = [
        f"{reach:.1f} s to step {step} from {behind} at {slowest:.3g} s a step (of which "
        f"{lead:.1f} s to tell {_counted(len(ranks))})",
        f"{save:.1f} s to save" + (_ASSUMED if costs.save is None else ""),
    ]
    if ships:
        parts.append(f"{upload:.1f} s to ship it" + (_ASSUMED if costs.upload is None else ""))
    parts.append(f"{SPARE_SECONDS:.0f} s to spare")
    sum_of = f"{' + '.join(parts)} = {need:.1f} s"
    if need > left:
        return _as_it_is(left, costs, why=f"{sum_of}, and {left:.1f} s are left")
    return StopPlan(
        verdict=StopVerdict.AGREED,
        why=f"{sum_of} of the {left:.1f} s that are left",
        step=step,
        last_for=min(
            left - upload - SPARE_SECONDS / 2, PATIENCE_TIMES * (reach + save) + PATIENCE_SECONDS
        ),
    )


def lead_seconds(ranks: int) -> float:
    """From the decision until the last of so many ranks has been told: ending pods first, the
    others when those have said that they heard it. How late the reports of a gang are is in each
    step's age, not here."""
    return LEAD_SECONDS + ranks / TOLD_A_SECOND


def first_step_after(step: int, *, age: float, pace: float, lead: float = LEAD_SECONDS) -> int:
    """The first step that this rank cannot have reached before it is told: it goes on since its
    word (`age` seconds old) and while the others are told (`lead` seconds), and may be a little
    faster than it was. `pace`: seconds a step."""
    ahead = (age + 1 / SIGNS_PER_SECOND + lead) / max(pace, 1e-6)
    return step + math.ceil(1.1 * ahead) + LEAD_STEPS


def seconds_to_signal(grace: float) -> float:
    """From a pod's deletion with that grace until its trainer is to be signalled: as late as leaves
    it some seconds to save in, half of what there is where that is little."""
    left = max(0.0, grace - HEARD_SECONDS)
    return left - min(SIGNAL_SECONDS, left / 2)


def _trouble(ranks: Sequence[RankPace]) -> str | None:
    if not ranks:
        return "there are no ranks"
    unheard = [r.rank for r in ranks if not r.is_reachable]
    if unheard:
        return f"{_named(unheard)} cannot be reached now, so not all would stop at one step"
    untold = [r.rank for r in ranks if r.step is None]
    if untold:
        return f"the step of {_named(untold)} is not known: let it write RTJ_PROGRESS_FILE"
    unpaced = [r.rank for r in ranks if r.pace is None]
    if unpaced:
        return f"the pace of {_named(unpaced)} is not known yet"
    return None


def _counted(ranks: int) -> str:
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


def _named(ranks: Sequence[int]) -> str:
    text = ", ".join(map(str, ranks[:8]))
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


def _as_it_is(left: float, costs: SaveCosts, *, why: str) -> StopPlan:
    if costs.pending > max(left, 0.0):
        return StopPlan(
            verdict=StopVerdict.TOO_LATE,
            why=f"{why}; the save that is on its way needs {costs.pending:.1f} s more and "
            f"{left:.1f} s are left: the newest durable one counts",
        )
    tail = f"; the last save is shipped within {costs.pending:.1f} s" if costs.pending else ""
    return StopPlan(verdict=StopVerdict.FINISH_LAST, why=why + tail)
