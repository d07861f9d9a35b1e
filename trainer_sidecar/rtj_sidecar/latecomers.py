"""Shares of a save that come after it was named without them: that save is not whole.

A pod of such a rank that is made anew would be given another rank's files for its own. Must never
take a save of its own for a share: a rank may save more than the gang does, under other names.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from rtj_sidecar.messages import SeenSave
from rtj_sidecar.naming import Group, same_save

KEPT = 64


@dataclass(frozen=True, slots=True)
class Late:
    """A rank's share of the save `name`, `seconds` after the first word of that save."""

    name: str
    rank: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Named:
    name: str | None
    lead: SeenSave
    ranks: frozenset[int]
    first_at: float
    was_guess: bool


class Latecomers:
    """What was named lately, and whose shares of it came too late. Of the event loop's thread."""

    def __init__(self) -> None:
        self._named: deque[_Named] = deque(maxlen=KEPT)
        self._waiting: list[Late] = []
        self.longest = 0.0  # seconds: the latest that any share of this gang came

    def named(self, name: str | None, group: Group, *, was_guess: bool) -> None:
        """`name`: None where it was seen to be torn, and got none. `was_guess`: nothing was known
        yet of which ranks write."""
        one = _Named(name, group.lead, frozenset(group.by_rank), group.first_at, was_guess)
        self._named.append(one)

    def hear(self, rank: int, save: SeenSave) -> bool:
        """Whether what a rank tells of for the first time is a share that came too late."""
        for one in reversed(self._named):
            if rank in one.ranks or not same_save(one.lead, save):
                continue
            # Later on, files of the same step elsewhere may well be another save.
            if not one.was_guess and one.lead.facts.root_key != save.facts.root_key:
                continue
            seconds = time.monotonic() - one.first_at
            self.longest = max(self.longest, seconds)
            if one.name is not None:
                self._waiting.append(Late(one.name, rank, seconds))
            return True
        return False

    def missed(self, name: str, rank: int) -> None:
        """That rank had told of its share, and the record of the name was made without it."""
        self._waiting.append(Late(name, rank, self.longest))

    def take(self) -> list[Late]:
        """Those that nothing was done about yet; what fails is to be given back."""
        taken, self._waiting = self._waiting, []
        return taken

    def give_back(self, late: Late) -> None:
        self._waiting.append(late)
