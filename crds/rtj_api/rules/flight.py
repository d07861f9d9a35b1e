"""Who is missing in a collective operation, by what PyTorch's flight recorder wrote at each rank.

A rank that waits in an operation has it open; the culprit is the one that has not even begun it, or
that began another. Of a rank without a record nothing is known. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# Each rank hands in as much as all others in these, so that a difference is a fault.
_ALIKE = ("all_reduce", "allreduce", "broadcast", "all_gather_base", "_all_gather_base", "barrier")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A collective operation that a rank began and that has not ended. `seq`: its number in the
    group. `sizes`: of what goes in, as PyTorch writes them."""

    seq: int
    op: str = ""
    sizes: str = ""

    @property
    def text(self) -> str:
        return f"{self.op or 'an operation'} (number {self.seq}{self.sizes and f', {self.sizes}'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One process group at one process. `begun`, `ended`: numbers of the last operations, 0 for
    none. `open`: the first that has not ended; None: it waits in none."""

    name: str
    begun: int
    ended: int
    open: Call | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """What one process had recorded. `process`: its rank in the whole job, several to a pod."""

    process: int
    groups: Sequence[Group] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """`rank`: of the pod; None where the ranks differ and nobody can say which is wrong.
    `is_mismatch`: it is in another operation, which is a fault of the program."""

    rank: int | None
    why: str
    is_mismatch: bool = False


def missing(flights: Mapping[int, Sequence[Flight]]) -> Missing | None:
    """`flights`: by the pod's rank. None where the records name nobody."""
    waiting = {
        (rank, one.process): one.groups
        for rank, told in flights.items()
        for one in told
        if any(group.open is not None for group in one.groups)
    }
    for name in sorted({g.name for groups in waiting.values() for g in groups if g.open}):
        found = _absent(name, flights, waiting=waiting)
        if found is not None:
            return found
    for name in sorted({g.name for groups in waiting.values() for g in groups if g.open}):
        found = _otherwise(name, flights)
        if found is not None:
            return found
    return None


def _absent(
    name: str,
    flights: Mapping[int, Sequence[Flight]],
    *,
    waiting: Mapping[tuple[int, int], Sequence[Group]],
) -> Missing | None:
    """Who has not begun the operation that others of the group are in, and waits in none itself:
    one that waits in another group is a victim of whoever is missing there."""
    calls = [(call, key) for key, call in _open(name, flights)]
    if not calls:
        return None
    first = min(call.seq for call, _ in calls)
    behind = [
        (rank, process, group)
        for rank, process, group in _members(name, flights)
        if group.begun < first and (rank, process) not in waiting
    ]
    ranks = {rank for rank, _, _ in behind}
    if len(ranks) != 1:
        return None
    rank, process, group = behind[0]
    call = next(call for call, _ in calls if call.seq == first)
    return Missing(
        rank=rank,
        why=f"by the flight recorder processes {sorted(p for _, (_, p) in calls)[:8]} wait in "
        f"{call.text} of group {name}, and process {process} of rank {rank} has begun none after "
        f"number {group.begun}",
    )


def _otherwise(name: str, flights: Mapping[int, Sequence[Flight]]) -> Missing | None:
    """Operations of one number that differ in kind, or in size where they may not."""
    calls = list(_open(name, flights))
    first = min((call.seq for _, call in calls), default=None)
    kinds: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for key, call in calls:
        if call.seq == first and call.op:
            sizes = call.sizes if any(word in call.op for word in _ALIKE) else ""
            kinds.setdefault((call.op, sizes), []).append(key)
    if len(kinds) < 2:
        return None
    told = "; ".join(
        f"{op}{sizes and f' {sizes}'} at ranks {sorted({rank for rank, _ in keys})[:8]}"
        for (op, sizes), keys in sorted(kinds.items())[:4]
    )
    why = f"by the flight recorder operation {first} of group {name} is not the same: {told}"
    lone = [keys for keys in kinds.values() if len({rank for rank, _ in keys}) == 1]
    is_clear = len(kinds) == 2 and len(lone) == 1
    return Missing(rank=lone[0][0][0] if is_clear else None, why=why, is_mismatch=True)


def _members(
    name: str, flights: Mapping[int, Sequence[Flight]]
) -> Iterator[tuple[int, int, Group]]:
    for rank, told in sorted(flights.items()):
        for one in told:
            for group in one.groups:
                if group.name == name:
                    yield rank, one.process, group


def _open(
    name: str, flights: Mapping[int, Sequence[Flight]]
) -> Iterator[tuple[tuple[int, int], Call]]:
    for rank, process, group in _members(name, flights):
        if group.open is not None:
            yield (rank, process), group.open
