"""How soon a key may be looked at again, by what looking at it has cost.

A pass over a gang of a thousand reads a thousand pods, and a thousand sidecars have something to
say: without a limit such a job would be looked at without pause. So each key has a purse of time:
it fills by a share of every second, a pass takes out what it cost. While there is something in it
a hint is followed at once, so a small gang never waits. What is urgent may go into debt, a little.
Every wait has an end: MAX_WAIT_SECONDS. Must never lose a hint, only say when to follow it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SHARE = 0.2  # of each second, for one key
SAVED_SECONDS = 1.0  # a purse holds no more than that
DEBT_SECONDS = 0.2  # what is urgent may start down to here
MAX_WAIT_SECONDS = 2.0
_NOTHING = 0.001  # seconds: not worth a timer


@dataclass(slots=True)
class Pace(Generic[K]):
    """All times are monotonic seconds given by the caller."""

    share: float = SHARE
    saved: float = SAVED_SECONDS
    debt: float = DEBT_SECONDS
    max_wait: float = MAX_WAIT_SECONDS
    _purses: dict[K, tuple[float, float]] = field(default_factory=dict)  # balance, at; not full

    def spent(self, key: K, seconds: float, *, now: float) -> None:
        """A look at `key` that ended `now` took `seconds`."""
        balance = self._balance(key, now) - max(seconds, 0.0)
        self._purses[key] = max(balance, -self.max_wait * self.share), now

    def wait(self, key: K, *, now: float, urgent: bool) -> float:
        """Seconds until `key` may be looked at; 0: now."""
        balance = self._balance(key, now)
        if balance >= self.saved:
            self._purses.pop(key, None)
        missing = (-self.debt if urgent else 0.0) - balance
        seconds = missing / self.share
        return seconds if seconds > _NOTHING else 0.0

    def forget(self, key: K) -> None:
        self._purses.pop(key, None)

    def _balance(self, key: K, now: float) -> float:
        balance, at = self._purses.get(key, (self.saved, now))
        return min(balance + (now - at) * self.share, self.saved)

    def __len__(self) -> int:
        return len(self._purses)
