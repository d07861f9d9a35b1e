"""Which save the holder names next. Pure: arrival order and a monotonic time are given.

Ranks tell what they saw finish. Files of the same root, or of the same layout and step, belong to
one save of the gang. A save is named once every rank that usually writes is heard, or after a
grace; once a newer one is named an older one never is, for the order of names is the lineage.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from rtj_api.wire import Candidate

from rtj_sidecar.checkpoints.resume_state import has_of
from rtj_sidecar.messages import SeenSave
from rtj_sidecar.runs.labels import labelled
from rtj_sidecar.runs.records import SaveFacts, ShipRecord
from rtj_sidecar.runs.unfit import said_against
from rtj_sidecar.unfinished import Told, has_nothing, is_one_save, nearest

MAX_OPEN = 2


@dataclass(frozen=True, slots=True)
class Heard:
    """One save of one rank, as the holder heard of it. `arrival` counts, `at` is monotonic."""

    rank: int
    save: SeenSave
    arrival: int
    at: float
    question: int = 0  # asked of every rank when this was heard


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
    def begun_at(self) -> float:
        """Monotonic: when the first of its ranks began to write it, as far as they tell."""
        return min(heard.at - heard.save.writing_seconds for heard in self.by_rank.values())

    @property
    def question(self) -> int:
        return max(heard.question for heard in self.by_rank.values())

    @property
    def lead(self) -> SeenSave:
        """What the lowest rank saw."""
        return self.by_rank[min(self.by_rank)].save

    @property
    def facts(self) -> SaveFacts:
        """The lowest rank's, with the labels that the ranks know together."""
        return labelled([heard.save.facts for _, heard in sorted(self.by_rank.items())])

    @property
    def generations(self) -> dict[int, str]:
        return {rank: heard.save.fingerprint for rank, heard in self.by_rank.items()}


@dataclass(frozen=True, slots=True)
class Naming:
    """`name`: to be named now. `silent`: who may have a share of it, and has not said anything.
    `skipped`: never to be named. `wake_at`: look again then."""

    name: Group | None = None
    silent: tuple[int, ...] = ()
    skipped: tuple[Group, ...] = ()
    wake_at: float | None = None


def same_save(one: SeenSave, other: SeenSave) -> bool:
    """Whether what two ranks saw belongs to one save of the gang."""
    return one.attempt == other.attempt and is_one_save(one.facts, other.facts)


def _kind(save: SeenSave) -> Hashable:
    """All that `same_save` asks of it."""
    return save.attempt, save.facts.step, save.facts.root_key, save.facts.layout


def groups(heard: Sequence[Heard]) -> list[Group]:
    """Oldest arrival first. Two generations of one rank never share a group."""
    found: list[dict[int, Heard]] = []
    kinds: list[dict[Hashable, SeenSave]] = []  # of each group: a thousand ranks saw a few
    for one in sorted(heard, key=lambda h: h.arrival):
        alike = [
            group
            for group, known in zip(found, kinds, strict=True)
            if any(same_save(one.save, save) for save in known.values())
        ]
        place = next((group for group in alike if one.rank not in group), None)
        if place is not None and one.save.facts.step is None:
            place = _nearest(one, alike)
        if place is None:
            found.append({one.rank: one})
            kinds.append({_kind(one.save): one.save})
        else:
            place[one.rank] = one
            at = next(index for index, group in enumerate(found) if group is place)
            kinds[at].setdefault(_kind(one.save), one.save)
    return [Group(group) for group in found]


def as_candidate(ship: ShipRecord, group: Group, *, required: Sequence[str]) -> Candidate:
    """The save that has just got its name, as one to begin from: not durable yet."""
    facts = group.facts
    return Candidate(
        name=ship.name,
        step=ship.step,
        epoch=ship.epoch,
        loss=facts.loss,
        bytes=sum(heard.save.bytes for heard in group.by_rank.values()),
        durable=False,
        full_state=facts.full_state,
        has=has_of(facts.facts),
        **said_against(facts.facts, required=required),
        world_size=ship.world_size,
        layout=ship.layout,
        needs=sorted({*ship.expected, *ship.asked}),
        written_at=ship.named_at,
    )


def said_nothing(told: Mapping[int, Told], rank: int, group: Group) -> bool:
    """Whether that rank has said, since it was asked, that it has none of it and writes none."""
    question, begun_at = group.question, group.begun_at
    return has_nothing(told, rank, group.lead.facts, question=question, begun_at=begun_at)


def _nearest(one: Heard, alike: Sequence[dict[int, Heard]]) -> dict[int, Heard] | None:
    """Of saves under one name that tell no step, the one that was seen finished when this was:
    ranks that save at paces of their own have others in between. None: none of them."""
    moments = {at: min(h.save.seen_at for h in group.values()) for at, group in enumerate(alike)}
    mine = [at for at in moments if one.rank not in alike[at]]
    seen = {at: moments[at] for at in mine}
    at = nearest(one.save.seen_at, seen, among=list(moments.values()))
    return None if at is None else alike[at]


def next_naming(
    *,
    heard: Sequence[Heard],
    open_ships: int,
    usual: Collection[int],
    world_size: int,
    now: float,
    grace: float,
    longest: float | None = None,
    told: Mapping[int, Told] | None = None,
    final: bool = False,
    lagging_since: float | None = None,
) -> Naming:
    """What to do with the saves that have no name yet.

    `usual`: ranks that wrote the last save; without any knowledge all ranks are waited for: at
    least `grace` seconds, and up to `longest` for those that have not told that they have nothing.
    `told`: each rank's last word, see `said_nothing`.
    `final`: nothing more will be heard (trainers ended, all ranks told), so nobody is waited for.
    `lagging_since`: since when (monotonic) a named save waits for some rank's part, None where
    none does. What the last rank told after that waits too: that rank's line would come to it
    only later, and by then a newer save may have finished. So does what came after such a save.
    """
    if open_ships >= MAX_OPEN:
        return Naming()
    waiting = groups(heard)
    if not waiting:
        return Naming()
    expected = set(usual) or set(range(world_size))

    longest = grace if longest is None else longest
    words = told or {}

    def is_ready(group: Group) -> bool:
        missing = expected - set(group.by_rank)
        if final or not missing or now - group.first_at >= longest:
            return True
        have_nothing = all(said_nothing(words, rank, group) for rank in missing)
        return have_nothing and now - group.first_at >= grace

    def looked_at(group: Group) -> float:
        return group.first_at + (grace if now - group.first_at < grace else longest)

    if lagging_since is not None and not final:
        waiting = list(takewhile(lambda group: group.last_at <= lagging_since, waiting))
        if not waiting:
            return Naming()
    ready = [group for group in waiting if is_ready(group)]
    if not ready:
        return Naming(wake_at=min(looked_at(group) for group in waiting))
    # In order while the store keeps up; under back-pressure only the newest counts, and weights
    # alone do not count for a newest save that could be resumed from.
    whole = [group for group in ready if group.lead.facts.full_state is not False]
    chosen = ready[0] if len(ready) <= MAX_OPEN - open_ships else (whole or ready)[-1]
    older = tuple(g for g in waiting if g.arrival < chosen.arrival)
    silent = expected - set(chosen.by_rank) if chosen.lead.attempt else set()
    silent = {rank for rank in silent if not said_nothing(words, rank, chosen)}
    return Naming(name=chosen, silent=tuple(sorted(silent)), skipped=older)
