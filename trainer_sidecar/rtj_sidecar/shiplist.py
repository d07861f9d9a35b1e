"""The list of saves that rank 0 tells every rank: which are open, and what became of the others.

Bounded, and versioned for the long poll. Must never forget an open save, and never tell two
contents under one version.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection

from rtj_sidecar.messages import OpenShip, SeenSave, Ships
from rtj_sidecar.runs.records import SaveFacts, ShipRecord
from rtj_sidecar.unfinished import is_one_save
from rtj_sidecar.waits import happens

KEPT = 64


class ShipList:
    """`fence()`: the one held now; `wake()` is called whenever the list says something new;
    `holders(name)`: where files of a save can be had, as known at that moment."""

    def __init__(
        self,
        *,
        fence: Callable[[], int | None],
        wake: Callable[[], None],
        holders: Callable[[str], list[str]] = lambda name: [],
    ) -> None:
        self._fence = fence
        self._holders = holders
        self._wake = wake
        self.open: dict[str, OpenShip] = {}
        self._opened: dict[str, float] = {}
        self._durable: deque[str] = deque(maxlen=KEPT)
        self._left: frozenset[str] = frozenset()  # durable, on a line that was left
        self._dropped: deque[str] = deque(maxlen=KEPT)
        self._skipped: deque[str] = deque(maxlen=KEPT)
        self._refused: deque[str] = deque(maxlen=KEPT)
        self._version = int(time.time() * 1000)
        self._question = self._version  # else an answer to a holder before would answer this one's
        self._changed = asyncio.Event()

    # --- what is told ---

    async def ships(self, *, since: int | None, wait: float) -> Ships:
        deadline = time.monotonic() + wait
        while since == self._version and (left := deadline - time.monotonic()) > 0:
            await happens(self._changed, seconds=left)
        return self.now()

    def now(self) -> Ships:
        return Ships(
            fence=self._fence(),
            version=self._version,
            question=self._question,
            ships=list(self.open.values()),
            durable=list(self._durable),
            left=sorted(self._left),
            dropped=list(self._dropped),
            skipped=list(self._skipped),
            ignored=list(self._refused),
            holders={name: self._holders(name) for name in list(self._durable)[-2:]},
        )

    def ask(self) -> int:
        """Ask every rank what it has, as its next look finds it; the number of the question."""
        self._question += 1
        self.tell()
        return self._question

    @property
    def known_names(self) -> set[str]:
        """Saves of this run that are on their way, durable, or dropped by name."""
        return {*self.open, *self._durable, *self._dropped}

    def open_for(self, name: str) -> float:
        """Seconds since that save was opened here."""
        return time.monotonic() - self._opened.get(name, 0)

    def lagging_since(self, sent: Callable[[str], Collection[int]]) -> float | None:
        """Since when (monotonic) the oldest save waits whose expected ranks have not all sent
        their part; None where all have. `sent`: who has sent it, by the save's name."""
        waiting = [n for n, ship in self.open.items() if set(ship.record.expected) - set(sent(n))]
        return min((self._opened[name] for name in waiting), default=None)

    def awaiting(self, rank: int, save: SeenSave, *, but: Collection[str]) -> OpenShip | None:
        """The open save that this share of that rank belongs to by its record, oldest first, where
        nobody has said yet which generation it is there; none of the names in `but`."""
        for name, ship in self.open.items():
            record = ship.record
            facts = SaveFacts(root_key=record.root_key, layout=record.layout, step=record.step)
            is_unknown = rank in record.expected and rank not in ship.generations
            if name in but or not is_unknown or record.made_in != save.attempt:
                continue
            if is_one_save(facts, save.facts):
                return ship
        return None

    def names_generation(self, rank: int, fingerprint: str) -> bool:
        """Whether an open save is known to be what that rank tells of."""
        return any(ship.generations.get(rank) == fingerprint for ship in self.open.values())

    def knows_generation(self, ship: OpenShip, rank: int, fingerprint: str) -> None:
        """What that rank has of an open save, told after it got its name."""
        known = {**ship.generations, rank: fingerprint}
        self.open[ship.record.name] = ship.model_copy(update={"generations": known})
        self.tell()

    # --- what became of saves ---

    def add(self, ship: OpenShip) -> None:
        self.open[ship.record.name] = ship
        self._opened[ship.record.name] = time.monotonic()

    def became_durable(self, name: str) -> None:
        if name not in self.open:
            # Its line was left while its commit was on its way: a branch, never the newest.
            self._left |= {name}
        self.forget(name)
        self._durable.append(name)
        self.tell()

    def was_dropped(self, name: str) -> None:
        self.forget(name)
        self._dropped.append(name)
        self.tell()

    def skipped(self, fingerprints: Collection[str]) -> None:
        """A newer save goes first; the list is not told yet."""
        self._skipped.extend(fingerprints)

    def refused(self, fingerprints: Collection[str]) -> None:
        """Their trainer had not loaded what it was given; the list is not told yet."""
        self._refused.extend(fingerprints)

    def skipped_again(self, fingerprints: Collection[str]) -> None:
        """A rank still waits for saves that are long decided: the list it is told is bounded, and
        after a long outage more were skipped at once than it holds."""
        new = [each for each in fingerprints if each not in self._skipped][: KEPT // 2]
        if new:
            self._skipped.extend(new)
            self.tell()

    # --- after a restart, an older fence, a roll-back ---

    def reopen(self, ships: list[ShipRecord]) -> None:
        """Go on with saves that were named before: after a restart, or by an older fence."""
        for record in ships:
            if record.name in self._dropped:
                self._dropped.remove(record.name)  # on a line that was taken up again
            if record.name not in self.open:
                self.open[record.name] = OpenShip(record=record)
                self._opened[record.name] = time.monotonic()
        self.tell()

    def close_all_but(self, names: set[str]) -> None:
        """Forget open ships that can no longer be committed."""
        for name in [name for name in self.open if name not in names]:
            self.forget(name)
        self.tell()

    def knows_as_durable(self, names: list[str]) -> None:
        self._left -= set(names)
        for name in names:
            if name not in self._durable:
                self._durable.append(name)
        self.tell()

    def knows_as_dropped(self, names: list[str]) -> None:
        """Oldest first; as many as the list holds."""
        for name in names[-KEPT:]:
            if name not in self._dropped:
                self._dropped.append(name)
        self.tell()

    def begin_line(self, durable: list[str]) -> None:
        """Only these saves (oldest first) are before what comes; none: a start from nothing."""
        before = [name for name in self._durable if name not in durable] if durable else []
        self._durable = deque([*before, *durable], maxlen=KEPT)
        self._left = frozenset(before)
        self.tell()

    def forget(self, name: str) -> None:
        self.open.pop(name, None)
        self._opened.pop(name, None)

    def tell(self) -> None:
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()
        self._wake()
