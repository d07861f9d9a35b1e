"""Shares of a save that come after it was named without them: that save is not whole.

A pod of such a rank that is made anew would be given another rank's files for its own. Must never
take a save of its own for a share: a rank may save more than the gang does, under other names.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rtj_sidecar.messages import SeenSave
from rtj_sidecar.naming import Group
from rtj_sidecar.runs.records import SaveFacts
from rtj_sidecar.unfinished import is_one_save, nearest

KEPT = 64


@dataclass(frozen=True, slots=True)
class Known:
    """A save that has its name, or (`name` None) was seen to be torn and got none; `ranks` have a
    share of it.

    `was_guess`: nothing was known then of which ranks write. `first_at`: monotonic, of its first
    word, `seen_at`: when it was seen finished (Unix seconds); None where only the record tells of
    it."""

    name: str | None
    attempt: int
    facts: SaveFacts
    ranks: frozenset[int]
    was_guess: bool
    first_at: float | None = None
    seen_at: float | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """A rank's share of the save `name`, `seconds` after the first word of that save, if known;
    `fingerprint`: of its generation there, None where that rank waits for no answer."""

    name: str | None
    rank: int
    seconds: float | None
    fingerprint: str | None

    @property
    def why(self) -> str:
        when = "" if self.seconds is None else f" {self.seconds:.1f} s after the first word of it"
        return (
            f"rank {self.rank} told of its share of this save{when}, after it had been named "
            "without it: it is not whole. The saves after it wait for that rank"
        )


def known_of(group: Group, *, name: str | None, was_guess: bool) -> Known:
    lead = group.lead
    ranks = frozenset(group.by_rank)
    seen_at = min(heard.save.seen_at for heard in group.by_rank.values())
    return Known(name, lead.attempt, lead.facts, ranks, was_guess, group.first_at, seen_at)


class Latecomers:
    """What was named lately, and whose shares of it came too late. Of the event loop's thread."""

    def __init__(self) -> None:
        self._known: deque[Known] = deque(maxlen=KEPT)
        self.longest = 0.0  # seconds: the latest that any share of this gang came

    def named(self, one: Known) -> None:
        self._known.append(one)

    def learn(self, recorded: Sequence[Known]) -> None:
        """What the records tell, oldest first; what was seen here is known better."""
        here = {one.name for one in self._known}
        new = [one for one in recorded if one.name not in here]
        self._known = deque([*new, *self._known], maxlen=KEPT)

    def hear(self, rank: int, save: SeenSave, *, attempt: int) -> Late | None:
        """Whether what a rank tells of for the first time is a share that came too late. In a later
        `attempt` than its own that says nothing of how long this gang's shares take."""
        alike = [
            one
            for one in reversed(self._known)
            if one.attempt == save.attempt and is_one_save(one.facts, save.facts)
        ]
        for one in alike if save.facts.step is not None else _at_that_time(alike, save):
            if rank in one.ranks:
                continue
            # Later on, files of the same step elsewhere may well be another save.
            if not one.was_guess and one.facts.root_key != save.facts.root_key:
                continue
            seconds = None if one.first_at is None else time.monotonic() - one.first_at
            if save.attempt == attempt:
                self.longest = max(self.longest, seconds or 0.0)
            return Late(one.name, rank, seconds, save.fingerprint)
        return None


def _at_that_time(alike: Sequence[Known], save: SeenSave) -> list[Known]:
    """Of saves under one name that tell no step: the one that this may be a share of. A rank that
    saves less often than the others writes the same name later, and spoils none of theirs."""
    seen = {at: one.seen_at for at, one in enumerate(alike) if one.seen_at is not None}
    if not seen:
        return list(alike)
    at = nearest(save.seen_at, seen, among=list(seen.values()))
    return [] if at is None else [alike[at]]
