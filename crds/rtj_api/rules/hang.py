"""When a gang hangs: it makes no step, prints nothing and saves nothing, for far longer than ever.

Limits come from the job's own pace, and from how its processes stand: one that a signal has stopped
goes on by nobody's doing; one that does nothing may wait for something; one that works, writes or
waits for a disk may be at anything, such as a silent evaluation or a slow save. All ranks must
stand: one that still works may be what the others wait for. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

KEPT = 200  # times between signs of a step: C15
LEAST = 5  # of them, before a pace is known: the first steps compile
TIMES = 3.0  # of the slowest usual step
STOPPED_SECONDS, STOPPED_UNKNOWN_SECONDS = 6.0, 30.0
# Half a minute is the floor of C15: a wait that comes for the first time is no hang at once.
STILL_SECONDS, STILL_UNKNOWN_SECONDS = 30.0, 600.0
SURVIVED_TIMES = 2.0  # of the longest stillness that ended by itself
WORKING_SECONDS, WORKING_UNKNOWN_SECONDS = 1800.0, 7200.0
WORKING_TIMES = 10.0
LONGEST_TIMES = 3.0  # of the longest time without a step, saves and evaluations included
# Words of a stack that stand for waiting in a collective operation.
_COLLECTIVE = (
    "all_reduce",
    "allreduce",
    "all_gather",
    "allgather",
    "reduce_scatter",
    "broadcast",
    "barrier",
    "all_to_all",
    "ncclgroup",
    "synchronize",
    "processgroup",
    "gloo",
)


class Standing(StrEnum):
    """How a rank's processes stand while it gives no sign."""

    STOPPED = "Stopped"  # by a signal
    STILL = "Still"  # no processor, no bytes
    WORKING = "Working"  # or it waits for a disk, saves, or nobody can say


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Of one rank, or of a gang: seconds. `usual`: the 99th percentile of the time between signs of
    a step, saves apart; None while it is not known. `longest`: of all. `survived`: the longest
    stillness that ended by itself."""

    usual: float | None = None
    longest: float = 0.0
    survived: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A rank without a sign since `since`. `fell_at`: when its processes fell still."""

    standing: Standing
    since: float
    pace: Pace
    fell_at: float | None = None
    stacks: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """It is one from `since` + `limit` on, unless somebody gives a sign. `rank`: the culprit."""

    rank: int
    since: float
    limit: float
    why: str


def p99(values: Sequence[float]) -> float:
    """The nearest rank; the largest of fewer than a hundred."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)]


def of_gang(paces: Sequence[Pace]) -> Pace:
    """Usually one rank prints: its pace is everybody's."""
    known = [pace.usual for pace in paces if pace.usual is not None]
    return Pace(
        usual=max(known, default=None),
        longest=max((pace.longest for pace in paces), default=0.0),
        survived=max((pace.survived for pace in paces), default=0.0),
    )


def limit_of(standing: Standing, pace: Pace) -> float:
    """Seconds without a sign from which it is a hang."""
    usual = pace.usual
    if standing is Standing.STOPPED:
        return STOPPED_UNKNOWN_SECONDS if usual is None else max(STOPPED_SECONDS, TIMES * usual)
    if standing is Standing.STILL:
        least = STILL_UNKNOWN_SECONDS if usual is None else max(STILL_SECONDS, TIMES * usual)
        return max(least, SURVIVED_TIMES * pace.survived)
    least = WORKING_UNKNOWN_SECONDS if usual is None else WORKING_SECONDS
    return max(least, WORKING_TIMES * (usual or 0.0), LONGEST_TIMES * pace.longest)


def hanging(stalls: Mapping[int, Stall | None], *, timeout: float | None = None) -> Hang | None:
    """`stalls`: of every rank, None where it gives signs. None where the gang can go on.

    `timeout`: a person's own limit, whatever they are about.
    """
    if not stalls:
        return None
    told = {rank: stall for rank, stall in stalls.items() if stall is not None}
    pace = of_gang([stall.pace for stall in told.values()])
    stopped = {r: s for r, s in told.items() if s.standing is Standing.STOPPED}
    if stopped:
        rank = min(stopped, key=lambda r: (stopped[r].since, r))
        limit = timeout or limit_of(Standing.STOPPED, pace)
        return Hang(
            rank=rank,
            since=stopped[rank].since,
            limit=limit,
            why="its processes are stopped by a signal, and nobody let them go on",
        )
    if len(told) < len(stalls):
        return None
    is_still = all(s.standing is Standing.STILL for s in told.values())
    limit = timeout or limit_of(Standing.STILL if is_still else Standing.WORKING, pace)
    rank, why = culprit(told)
    return Hang(rank=rank, since=max(s.since for s in told.values()), limit=limit, why=why)


def culprit(stalls: Mapping[int, Stall]) -> tuple[int, str]:
    """The rank that is not in the collective where the others wait for it, and how that is known.

    By their stacks; else the one that stands otherwise than all others; else who fell still first:
    the others still came as far as the collective.
    """
    ranks = sorted(stalls)
    if len(ranks) == 1:
        return ranks[0], "it makes no step"
    outside = [r for r in ranks if stalls[r].stacks and not in_collective(stalls[r].stacks)]
    inside = [r for r in ranks if in_collective(stalls[r].stacks)]
    if len(outside) == 1 and inside:
        return outside[0], "the other ranks wait in a collective operation, and it is not in it"
    for standing in Standing:
        odd = [r for r in ranks if stalls[r].standing is standing]
        if len(odd) == 1 and len(ranks) > 2:
            word = "does nothing" if standing is Standing.STILL else "is at something"
            return odd[0], f"it alone {word}; the other ranks wait for it"
    first = min(ranks, key=lambda r: (stalls[r].fell_at or stalls[r].since, r))
    return first, "it fell still first; the other ranks went on until they had to wait for it"


def in_collective(stacks: Sequence[str]) -> bool:
    return any(word in line.lower() for line in stacks for word in _COLLECTIVE)
