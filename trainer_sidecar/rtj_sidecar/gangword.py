"""What the ranks of this attempt have told rank 0: what they pinned, sent, still write, wait for.

Memory and conclusions only. Must never take a rank that has not said anything for one that has
ended, has nothing, or writes nothing.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Collection

from rtj_api.wire import Directive, Phase

from rtj_sidecar.messages import Seen, SeenSave, Unfinished
from rtj_sidecar.runs.records import ShipRecord
from rtj_sidecar.station import Station
from rtj_sidecar.unfinished import Spell, Told

WORDS = 8  # of a rank, by which its clock is known
ON_THE_WAY_SECONDS = 5.0  # that a word may have been: less says nothing of a clock


class GangWord:
    """Each rank's last word. Belongs to the event loop's thread."""

    def __init__(self, station: Station) -> None:
        self._at = station
        self.said: dict[int, Seen] = {}
        self.usual: frozenset[int] = frozenset()  # who writes a save, by the newest durable one
        self._writers: set[int] = set()  # who told of one of its own since the go
        self._unfinished: dict[int, tuple[Spell, ...]] = {}
        self._ahead: dict[int, deque[float]] = {}  # of a rank's clock, at each of its last words
        self.has_latecomers = False  # a save was named without a rank that writes, too

    def hear(self, seen: Seen) -> bool:
        """Whether it is a word on this attempt. Raises ValueError for one of another gang."""
        at = self._at
        if seen.job_uid != at.site.config.job_uid:
            raise ValueError(f"job {seen.job_uid} is not {at.site.config.job_uid}")
        if seen.attempt < at.attempt:
            return False  # A zombie, or a rank that has not heard of this attempt yet.
        self.said[seen.rank] = seen
        if seen.told_at is not None:
            lately = self._ahead.setdefault(seen.rank, deque(maxlen=WORDS))
            lately.append(time.time() - seen.told_at)
        self._hear_unfinished(seen)
        if any(save.attempt == seen.attempt for save in seen.saves):
            self._writers.add(seen.rank)
        return True

    def by_own_clock(self, rank: int, save: SeenSave) -> SeenSave:
        """A save of that rank, seen at a time of this pod's clock: theirs may be minutes apart. The
        word that was on its way for the shortest time tells best how far."""
        ahead = min(self._ahead.get(rank, ()), default=0.0)
        if abs(ahead) < ON_THE_WAY_SECONDS:
            return save
        return save.model_copy(update={"seen_at": save.seen_at + ahead})

    def expect_as_usual(self, ranks: Collection[int], *, of: int | None) -> None:
        """Who wrote the newest durable save, of a gang of that size (None: unknown). One of another
        size says nothing of this gang: its ranks may be gone, or new ones may write."""
        directive = self._at.directive
        is_other = directive is not None and of not in (None, directive.world_size)
        self.usual = frozenset() if is_other else frozenset(ranks)

    @property
    def waited_for(self) -> frozenset[int]:
        """Who is waited for before a save gets its name; empty where nothing is known yet.

        A rank whose word came late once, so that a save was named without it, writes all the same:
        named again without it, its pod would be given another rank's file of that name."""
        is_known = self.usual or self.has_latecomers
        return self.usual | self._writers if is_known else self.usual

    def told(self) -> dict[int, Told]:
        """Each rank's last word on what it has; silent ranks are absent."""
        return {
            rank: Told(sys.maxsize)
            if self._has_ended(seen)
            else Told(seen.answered, self._unfinished.get(rank, ()))
            for rank, seen in self.said.items()
            if seen.attempt == self._at.attempt
        }

    def has_unfinished(self, rank: int) -> bool:
        """Whether that rank has something unfinished, by its last word."""
        return bool(self._unfinished.get(rank))

    def has_any_unfinished(self) -> bool:
        """Whether any rank has something unfinished, by its last word."""
        return any(self._unfinished.values())

    def _hear_unfinished(self, seen: Seen) -> None:
        """What is told on stays as old as it is."""
        what: list[Unfinished | None] = list(seen.unfinished or ())
        if seen.unfinished is None and seen.is_writing:
            what = [None]  # an older sidecar
        known = {spell.what: spell for spell in self._unfinished.get(seen.rank, ())}
        now = time.monotonic()
        self._unfinished[seen.rank] = tuple(known.get(one) or Spell(one, now) for one in what)

    def sent(self, name: str) -> set[int]:
        """Ranks that have told that their part of this save is in the store."""
        return {rank for rank, seen in self.said.items() if name in seen.parts}

    def holders(self, name: str) -> list[str]:
        """Where the sidecars answer that have pinned files of this save."""
        return [seen.url for seen in self.said.values() if seen.url and name in seen.pinned]

    def pinned_by_others(self) -> set[str]:
        """Names that some other rank of this attempt has pinned."""
        own = self._at.site.config.rank
        return {name for rank, seen in self.said.items() if rank != own for name in seen.pinned}

    def forget_ends(self) -> None:
        """At the go: no rank's last word on the attempt before is its last on this one."""
        self._writers.clear()
        for rank, seen in self.said.items():
            self.said[rank] = seen.model_copy(update={"final": False})

    def all_final(self) -> bool:
        """Whether every rank has looked at its directory since its trainer of before ended."""
        directive = self._at.directive
        size = directive.world_size if directive is not None else 1
        new = set(directive.replaced) if directive is not None else set()
        return all(
            rank in new  # an empty pod has nothing to tell
            or (
                rank in self.said
                and self._has_ended(self.said[rank])
                and self.said[rank].attempt == self._at.attempt
            )
            for rank in range(size)
        )

    def _has_ended(self, seen: Seen) -> bool:
        """Whether nothing more comes of its trainer. What a rank said in prepare of the trainer
        before, and was heard late or was its only word, says nothing of the one that runs now."""
        at = self._at
        is_now = at.link.told_to_go() < at.attempt or seen.went is None or seen.went >= at.attempt
        return seen.final and is_now

    def others_open(self) -> frozenset[str] | None:
        """What they have open for writing, by their supervisors' word; None where one is silent."""
        told = self._others()
        if told is None or any(seen.open_paths is None for seen in told):
            return None
        return frozenset(path for seen in told for path in seen.open_paths or ())

    def others_have_ended(self) -> bool:
        """Whether no other pod's trainer of this attempt runs; a replaced one's may."""
        directive = self._at.directive
        told = self._others()
        if told is None or directive is None or directive.replaced:
            return False
        return all(self._has_ended(seen) for seen in told)

    def _others(self) -> list[Seen] | None:
        at = self._at
        size = at.directive.world_size if at.directive is not None else 1
        ranks = [rank for rank in range(size) if rank != at.site.config.rank]
        told = [self.said[rank] for rank in ranks if rank in self.said]
        has_all = len(told) == len(ranks) and all(seen.attempt == at.attempt for seen in told)
        return told if has_all else None

    def without(self, ship: ShipRecord) -> list[int]:
        """Ranks whose files of a save are lost: a new pod that has no pin of a save of an older
        attempt, and at a stop a rank that has no pod."""
        directive = self._at.directive
        if directive is not None and is_stop(directive):
            # Its last word, of the attempt before, may still be known here.
            heard = {rank for rank, seen in self.said.items() if seen.attempt == self._at.attempt}
            absent = set(directive.replaced) - heard
            if absent & {*ship.expected, *ship.asked}:
                return sorted(absent)
        if ship.fence == self._at.fence:
            return []

        def has_lost(seen: Seen) -> bool:
            holds = ship.name in seen.pinned or ship.name in seen.parts
            waits = any(save.facts.root_key == ship.root_key for save in seen.saves)
            return seen.attempt == self._at.attempt and not holds and not waits

        return [r for r in ship.expected if r in self.said and has_lost(self.said[r])]


def is_stop(directive: Directive | None) -> bool:
    """Whether the gang is being stopped: who has no pod by now gets none."""
    return directive is not None and directive.phase is Phase.STOP
