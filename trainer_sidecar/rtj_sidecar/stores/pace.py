"""How fast a process may send: one bucket of bytes that all its uploads share.

Only uploads: nobody waits for one while it trains, whereas a restore that is slowed down is lost
time of the whole gang. Must never let idle time be saved up: a limit is one also after a pause.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rtj_sidecar.stores.base import Cancelled

# What goes in one piece: a fraction of a second's worth, so that the wire sees no bursts.
_PIECE_S = 0.25
_LEAST, _MOST = 16 << 10, 8 << 20
# A part is on its way for about so long: what a crash in its middle costs.
_PART_S = 8.0
LEAST_PART = 5 << 20  # S3's, of all parts but the last


def _wait(seconds: float, cancel: threading.Event | None) -> bool:
    """Whether it was cancelled meanwhile."""
    if cancel is None:
        time.sleep(seconds)
        return False
    return cancel.wait(seconds)


class Pace:
    """At most `bytes_per_second`, in the order in which threads ask. Thread-safe."""

    def __init__(
        self,
        bytes_per_second: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float, threading.Event | None], bool] = _wait,
    ) -> None:
        self._rate = bytes_per_second
        self._piece = max(_LEAST, min(_MOST, int(bytes_per_second * _PIECE_S)))
        self._clock = clock
        self._wait = wait
        self._free_at = clock()
        self._lock = threading.Lock()

    def take(self, wanted: int, *, cancel: threading.Event | None = None) -> int:
        """How many of `wanted` bytes may be sent now, at least one: returns when they may.

        Raises Cancelled.
        """
        count = min(wanted, self._piece)
        with self._lock:
            now = self._clock()
            begin = max(now, self._free_at)
            self._free_at = begin + count / self._rate
        if begin > now and self._wait(begin - now, cancel):
            raise Cancelled
        return count

    def take_all(self, wanted: int, *, cancel: threading.Event | None = None) -> None:
        """Returns when so many bytes may have been sent. Raises Cancelled."""
        while wanted > 0:
            wanted -= self.take(wanted, cancel=cancel)

    def part_size(self, usual: int) -> int:
        """A part that takes some seconds, where the usual one would take minutes."""
        return max(min(usual, LEAST_PART), min(usual, int(self._rate * _PART_S)))
