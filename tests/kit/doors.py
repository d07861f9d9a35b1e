"""What goes wrong between the simulated operator and its API server, at each hint, read or write.

Hints are lost, repeated or late, reads are stale, writes are refused, lost or not answered, and the
operator dies before or after any of them.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from kit.simulated import Crash, ServerError


@dataclass
class Doors:
    """Between operator and API server: what is lost, late, twice, refused or cut off by a crash.
    Each number is the chance at each hint, read or write."""

    draw: random.Random
    lost: float = 0.1
    twice: float = 0.05
    stale: float = 0.05
    failing: float = 0.02
    crash: float = 0.02
    counts: Counter[str] = field(default_factory=Counter)

    def _happens(self, what: str, chance: float) -> bool:
        happens = self.draw.random() < chance
        self.counts[what] += happens
        return happens

    def drops_hint(self) -> bool:
        return self._happens("lost hint", self.lost)

    def repeats_hint(self) -> bool:
        return self._happens("repeated hint", self.twice)

    def reads_stale(self) -> str | None:
        """What is as it was some passes ago: all, or the pods, or the reports alone."""
        if not self._happens("stale read", self.stale):
            return None
        return self.draw.choice(["all", "pods", "reports"])

    def before_write(self, what: str) -> None:
        if self._happens("operator dies before a write", self.crash):
            raise Crash(what)
        if self._happens("5xx before a write", self.failing):
            raise ServerError(what)

    def after_write(self, what: str) -> None:
        """It was carried out, and the answer is lost; so is what the operator knew, or not."""
        if self._happens("operator dies after a write", self.crash):
            raise Crash(f"{what}'s answer")
        if self._happens("lost answer", self.failing):
            raise ServerError(f"the answer to {what}")


DOOR_FAULTS = {
    "lost hint": "a watch event that should have caused a pass is lost",
    "repeated hint": "one comes without a change, or twice",
    "stale read": "a pass sees all, the pods alone or the reports alone as they were up to three "
    "passes ago: hints and reads out of order",
    "5xx before a write": "the API server refuses a write with 5xx",
    "lost answer": "a write is carried out, and the answer is 5xx",
    "operator dies before a write": "and comes back with nothing",
    "operator dies after a write": "before it hears that it was done",
}
