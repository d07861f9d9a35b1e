"""Of which saves of the gang a rank may still be writing a share.

Pure. A rank may hold a file open for as long as it trains (events, a scratch file), and such a file
must keep nobody's save from being durable. Must never take a share that is being written for none:
the save would be begun from without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rtj_sidecar.checkpoints.types import FoundSave
from rtj_sidecar.messages import Unfinished
from rtj_sidecar.runs.records import SaveFacts

BEFORE_SECONDS = 15.0
"""The ranks of a gang begin one save within these: what was begun earlier is no share of it."""


@dataclass(frozen=True, slots=True)
class Spell:
    """What a rank has unfinished, and since when (monotonic) the holder knows of it. `what` None:
    an older sidecar, which says only that there is something."""

    what: Unfinished | None
    heard_at: float


@dataclass(frozen=True, slots=True)
class Told:
    """A rank's last word. `answered`: the newest question that it knew when it looked."""

    answered: int
    unfinished: tuple[Spell, ...] = ()


def unfinished_of(found: FoundSave, *, since: float) -> Unfinished:
    """As it is told. The step of a name that is used again is known only when it is finished."""
    step = None if found.reused_path else found.step
    return Unfinished(root_key=found.root_key, layout=found.layout, step=step, since=since)


def is_one_save(a: SaveFacts | Unfinished, b: SaveFacts | Unfinished) -> bool:
    """Of one attempt."""
    if a.step is not None and b.step is not None:
        return a.step == b.step and (a.root_key == b.root_key or a.layout == b.layout)
    return a.root_key == b.root_key


K = TypeVar("K")


def nearest(moment: float, seen: Mapping[K, float], *, among: Sequence[float]) -> K | None:
    """Which of several saves under one name, that tell no step, a share belongs to that was seen
    finished at `moment`: the nearest of `seen`. None where that is further away than half of the
    shortest time between two of them all (`among`): then it belongs to one that is not told yet.

    Unix seconds of the ranks' own clocks: nothing else tells such saves apart."""
    if not seen:
        return None
    best = min(seen, key=lambda key: abs(seen[key] - moment))
    ordered = sorted(among)
    gaps = [later - earlier for earlier, later in itertools.pairwise(ordered)]
    is_far = bool(gaps) and 2 * abs(seen[best] - moment) > min(gaps)
    return None if is_far else best


def is_named_share(what: Unfinished, facts: SaveFacts) -> bool | None:
    """Whether it is a share of that save by its name; None where its name does not tell."""
    return None if what.step is None else is_one_save(what, facts)


def may_be_share(spell: Spell, facts: SaveFacts, *, begun_at: float) -> bool:
    """Whether it may be a share of a save of these facts, which was begun then (monotonic)."""
    if spell.what is None:
        return True
    told = is_named_share(spell.what, facts)
    return spell.heard_at > begun_at - BEFORE_SECONDS if told is None else told


def has_nothing(
    told: Mapping[int, Told], rank: int, facts: SaveFacts, *, question: int, begun_at: float
) -> bool:
    """Whether that rank has said, after `question`, that it has no share of such a save and writes
    none. A rank that has said nothing has not."""
    word = told.get(rank)
    if word is None or word.answered < question:
        return False
    return not any(may_be_share(spell, facts, begun_at=begun_at) for spell in word.unfinished)


def writing(told: Mapping[int, Told], facts: SaveFacts, *, begun_at: float) -> Sequence[int]:
    """Ranks that may be writing a share of such a save."""
    return [
        rank
        for rank, word in sorted(told.items())
        if any(may_be_share(spell, facts, begun_at=begun_at) for spell in word.unfinished)
    ]
