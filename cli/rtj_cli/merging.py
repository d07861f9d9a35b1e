"""Lines of many ranks as one stream by time, each with its rank and attempt. Pure.

`kubectl logs --timestamps` begins each line with its time in RFC 3339 with nanoseconds. Clocks of
nodes differ, so the order between ranks is only as good as those.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rtj_api import contract
from rtj_api.status import AttemptRecord, format_time, parse_time

from rtj_cli.jobs import Raw


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """`at`: Unix seconds. `rank` -1: a spare's."""

    at: float
    rank: int
    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """A pod whose log is read."""

    pod: str
    rank: int
    container: str


def sources(pods: Iterable[Raw], *, rank: int | None, container: str | None) -> list[Source]:
    """`container` None: the one that trains. `rank` None: all, spares too. By rank."""
    found = []
    for pod in pods:
        told = (pod["metadata"].get("labels") or {}).get(contract.LABEL_RANK)
        number = int(told) if told is not None and told.isdigit() else contract.NO_RANK
        if rank is None or number == rank:
            name = container or trainer_of(pod)
            found.append(Source(str(pod["metadata"]["name"]), number, name))
    return sorted(found, key=lambda source: (source.rank, source.pod))


def trainer_of(pod: Raw) -> str:
    """The container that runs under the supervisor."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    for each in containers:
        if (each.get("command") or [None])[0] == contract.SUPERVISE:
            return str(each["name"])
    return contract.CONTAINER_TRAINER


def stamped(text: str, *, rank: int, before: float = 0.0) -> Line:
    """A line of `kubectl logs --timestamps`; one without a time has that of the line before."""
    stamp, _, rest = text.rstrip("\n").partition(" ")
    try:
        return Line(float(parse_time(_micros(stamp))), rank, rest)
    except ValueError:
        return Line(before, rank, text.rstrip("\n"))


def _micros(stamp: str) -> str:
    """Python reads six digits of a second, Kubernetes writes nine."""
    whole, dot, rest = stamp.partition(".")
    digits = rest.rstrip("Z")
    if not dot:
        return stamp
    if not digits.isdigit():
        raise ValueError(stamp)
    return f"{whole}.{digits[:6].ljust(6, '0')}+00:00"


def lines_of(text: Iterable[str], *, rank: int) -> Iterator[Line]:
    before = 0.0
    for each in text:
        line = stamped(each, rank=rank, before=before)
        before = line.at
        yield line


def merged(streams: Iterable[Iterable[Line]]) -> Iterator[Line]:
    """By time; the lines of one rank stay in their order."""
    return heapq.merge(*streams, key=lambda line: line.at)


def attempt_at(at: float, records: Sequence[AttemptRecord]) -> int | None:
    """The attempt that was the newest at that time; None before those that status still has."""
    found = [record.attempt for record in records if record.recorded_at <= at]
    return found[-1] if found else None


def prefixed(line: Line, *, attempt: int | None, ranks: int, times: bool = False) -> str:
    """`[1 #3] text`; with the rank's digits filled up so that lines are under each other."""
    width = len(str(max(0, ranks - 1)))
    rank = "s" if line.rank == contract.NO_RANK else str(line.rank)
    head = f"[{rank.rjust(width)}" + ("" if attempt is None else f" #{attempt}") + "]"
    if times:
        head = f"{format_time(line.at)} {head}"
    return f"{head} {line.text}"
