"""Whether what the ranks told of one save is all of it, before it gets a name.

A save that has a name may be chosen before it is durable: its ranks then give each other what they
have, and nobody looks whether that is all. Where its layout cannot tell, the ranks' last save does:
who wrote files of the same kinds then writes them now. Must never refuse what neither can tell.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rtj_sidecar.checkpoints.types import GateResult, PartFiles
from rtj_sidecar.naming import Group, Heard, Naming, groups, said_nothing
from rtj_sidecar.opening import union_gate
from rtj_sidecar.unfinished import Told, writing

_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Shape:
    """The kinds of paths, numbers apart, that each rank wrote of a save, as a hash of them: it is
    recorded with every save. `world`: its pods."""

    world: int
    kinds: Mapping[int, str]

    def is_half(self, other: Shape) -> bool:
        """Whether `other` is the same work of fewer ranks."""
        same = all(self.kinds.get(rank) == kinds for rank, kinds in other.kinds.items())
        return same and self.world == other.world and len(other.kinds) < len(self.kinds)


def shape_of(group: Group, *, world: int) -> Shape:
    """Without companions and aliases, which come and go."""
    kinds = {}
    for rank, heard in group.by_rank.items():
        facts = heard.save.facts.facts
        beside = {*(facts.get("companions") or ()), *(facts.get("aliases") or ())}
        paths = (path for path in heard.save.paths if path not in beside)
        forms = sorted({_DIGITS.sub("#", path) for path in paths})
        kinds[rank] = hashlib.sha256("\0".join(forms).encode(errors="replace")).hexdigest()[:16]
    return Shape(world, kinds)


def next_shape(known: Shape | None, shape: Shape) -> Shape | None:
    """What is known after a save of that shape got its name. Where fewer ranks than before wrote
    alike and it got one, that is how they save now."""
    if len(shape.kinds) > 1:
        return shape
    return None if known is not None and known.is_half(shape) else known


@dataclass(frozen=True, slots=True)
class Whole:
    """`torn`: what was passed over, and why. `waits`: shares that ranks which wrote the save before
    have nothing of, or that lack what a rank may still be writing, oldest first."""

    naming: Naming
    torn: tuple[tuple[Group, str], ...] = ()
    waits: tuple[Group, ...] = ()

    @property
    def older(self) -> tuple[Group, ...]:
        """Of what was passed over: it can get no name after the newer one that is named now."""
        name = self.naming.name
        passed = (*self.waits, *(group for group, _ in self.torn))
        return tuple(g for g in passed if name is not None and g.arrival < name.arrival)


def next_whole(
    next_of: Callable[[Sequence[Heard]], Naming],
    heard: Sequence[Heard],
    *,
    world: int,
    procs: int,
    is_counted: bool,
    has_ended: bool,
    last: Shape | None = None,
    told: Mapping[int, Told] | None = None,
) -> Whole:
    """`next_of` what was heard, without what is torn: that gets no record at all, for whoever came
    next would find it there, and no mark beside it if this holder died in between.

    `last`: what the ranks wrote of their last save, see `next_shape`. Once trainers have ended
    (`has_ended`) what is a half by it is torn, unless its layout proves that it is whole; before,
    it waits: see `_is_habit`. `is_counted`: `procs` is each pod's number of processes, and not only
    the least that it has. `told`: each rank's last word; what it has unfinished may be what is
    missing."""
    words = told or {}
    left, torn, waits = list(heard), list[tuple[Group, str]](), list[Group]()
    while True:
        naming = next_of(left)
        group = naming.name
        if group is None:
            return Whole(naming, tuple(torn), tuple(waits))
        made_by = None if group.lead.attempt == 0 else world
        union = _union(group, world=made_by, procs=procs)
        why = union.detail if union is not None and union.passed is False else None
        half = _why_half(group, last=last, world=world)
        if half is not None and has_ended and why is None:
            # One rank may have ended before the last save, which then is whole without it. As many
            # ranks' files as there are processes at least prove nothing.
            proved = _union(group, world=made_by if is_counted else None, procs=procs)
            half = None if proved is not None and proved.passed else half
        if why is None and has_ended:
            why = half
        if why is not None and not has_ended and _others_write(group, words):
            waits.append(group)
        elif why is not None:
            torn.append((group, why))
        elif half is not None and not _is_habit(group, heard, last=last, told=words):
            waits.append(group)
        else:
            return Whole(naming, tuple(torn), tuple(waits))
        left = [one for one in left if one not in group.by_rank.values()]


def _others_write(group: Group, told: Mapping[int, Told]) -> bool:
    may_write = writing(told, group.lead.facts, begun_at=group.begun_at)
    return not set(may_write) <= set(group.by_rank)


def _is_habit(
    group: Group, heard: Sequence[Heard], *, last: Shape | None, told: Mapping[int, Told]
) -> bool:
    """Whether the gang saves in this way now: the same ranks have finished another save since, and
    the others have said after that one that they have nothing unfinished.

    A rank that is silent may be dead in the middle of its share, and one that has only answered
    may be late: what was named without them would be begun from, once they are gone."""
    missing = set(last.kinds if last is not None else ()) - set(group.by_rank)
    since = [
        other
        for other in groups(heard)
        if other.arrival > group.arrival and set(other.by_rank) == set(group.by_rank)
    ]
    return any(
        other.question > 0 and all(said_nothing(told, rank, other) for rank in missing)
        for other in since
    )


def _union(group: Group, *, world: int | None, procs: int) -> GateResult | None:
    """Whether it is whole by its layout's own rules, as for a commit; None where nobody can tell.

    `world`: pods that made it, None where that is unknown. A sidecar of the version before tells
    no sizes: then the commit judges.
    """
    told = [(rank, heard.save) for rank, heard in sorted(group.by_rank.items())]
    if any(len(save.sizes) != len(save.paths) for _, save in told):
        return None
    parts = [
        PartFiles(
            rank=rank,
            files=dict(zip(save.paths, save.sizes, strict=True)),
            facts=save.facts.facts,
        )
        for rank, save in told
    ]
    return union_gate(group.lead.facts.layout, parts, world, procs=procs)


def _why_half(group: Group, *, last: Shape | None, world: int) -> str | None:
    if last is None or not last.is_half(shape_of(group, world=world)):
        return None
    missing = sorted(set(last.kinds) - set(group.by_rank))
    return f"rank {missing[0]}, which wrote a share of the save before, has none of it"
