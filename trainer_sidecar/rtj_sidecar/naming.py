"""Which save the holder names next. Pure: arrival order and a monotonic time are given.

Ranks tell what they saw finish. Files of the same root, or of the same layout and step, belong to
one save of the gang. A save is named once every rank that usually writes is heard, or after a
grace; once a newer one is named an older one never is, for the order of names is the lineage.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rtj_sidecar.messages import SeenSave

MAX_OPEN = 2


@dataclass(frozen=True, slots=True)
class Heard:
    """One save of one rank, as the holder heard of it. `arrival` counts, `at` is monotonic."""

    rank: int
    save: SeenSave
    arrival: int
    at: float


@dataclass(frozen=True, slots=True)
class Group:
    """One save of the gang: by rank, the generation it saw."""

    by_rank: Mapping[int, Heard]

    @property
    def arrival(self) -> int:
        return min(heard.arrival for heard in self.by_rank.values())

    @property
    def first_at(self) -> float:
        return min(heard.at for heard in self.by_rank.values())

    @property
    def last_at(self) -> float:
        return max(heard.at for heard in self.by_rank.values())

    @property
    def lead(self) -> SeenSave:
        """What the lowest rank saw: the group's facts."""
        return self.by_rank[min(self.by_rank)].save

    @property
    def generations(self) -> dict[int, str]:
        return {rank: heard.save.fingerprint for rank, heard in self.by_rank.items()}


@dataclass(frozen=True, slots=True)
class Naming:
    """`name`: to be named now. `skipped`: never to be named. `wake_at`: look again then."""

    name: Group | None = None
    skipped: tuple[Group, ...] = ()
    wake_at: float | None = None


def same_save(one: SeenSave, other: SeenSave) -> bool:
    """Whether what two ranks saw belongs to one save of the gang."""
    a, b = one.facts, other.facts
    if one.attempt != other.attempt:
        return False
    if a.step is not None and b.step is not None:
        return a.step == b.step and (a.root_key == b.root_key or a.layout == b.layout)
    return a.root_key == b.root_key


def groups(heard: Sequence[Heard]) -> list[Group]:
    """Oldest arrival first. Two generations of one rank never share a group."""
    found: list[dict[int, Heard]] = []
    for one in sorted(heard, key=lambda h: h.arrival):
        place = next(
            (
                group
                for group in found
                if one.rank not in group
                and any(same_save(one.save, h.save) for h in group.values())
            ),
            None,
        )
        if place is None:
            found.append({one.rank: one})
        else:
            place[one.rank] = one
    return [Group(group) for group in found]


def next_naming(
    *,
    heard: Sequence[Heard],
    open_ships: int,
    usual: Collection[int],
    world_size: int,
    now: float,
    grace: float,
    final: bool = False,
    lagging_since: float | None = None,
) -> Naming:
    """What to do with the saves that have no name yet.

    `usual`: ranks that wrote the last save; without any knowledge all ranks are waited for.
    `final`: nothing more will be heard (trainers ended, all ranks told), so nobody is waited for.
    `lagging_since`: since when (monotonic) a named save waits for some rank's part, None where
    none does. What the last rank told after that waits too: that rank's line would come to it
    only later, and by then a newer save may have finished.
    """
    waiting = groups(heard)
    if not waiting:
        return Naming()
    if open_ships >= MAX_OPEN:
        return Naming()
    expected = set(usual) or set(range(world_size))

    def is_ready(group: Group) -> bool:
        return final or expected <= set(group.by_rank) or now - group.first_at >= grace

    if lagging_since is not None and not final:
        waiting = [group for group in waiting if group.last_at <= lagging_since]
        if not waiting:
            return Naming()
    ready = [group for group in waiting if is_ready(group)]
    if not ready:
        return Naming(wake_at=min(group.first_at for group in waiting) + grace)
    # In order while the store keeps up; under back-pressure only the newest counts, and weights
    # alone do not count for a newest save that could be resumed from.
    whole = [group for group in ready if group.lead.facts.full_state is not False]
    chosen = ready[0] if len(ready) <= MAX_OPEN - open_ships else (whole or ready)[-1]
    older = tuple(g for g in waiting if g.arrival < chosen.arrival)
    return Naming(name=chosen, skipped=older)
