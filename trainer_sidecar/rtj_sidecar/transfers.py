"""What is on its way just now, and how far: for whoever waits for it.

Any thread counts, the loop's thread tells. Must never decide anything: a transfer that does not
move is the business of whoever began it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rtj_api.wire import TransferKind, TransferView

from rtj_sidecar.stores.base import Progress

# The rate is that of about so long: shorter jumps, longer tells of another network than now's.
RATE_SECONDS = 10.0
_SAMPLE_SECONDS = 0.5


@dataclass(slots=True)
class Transfer:
    """One under way. `samples`: (time, bytes done), the oldest about RATE_SECONDS old."""

    kind: TransferKind
    name: str
    total: int
    began_at: float  # wall clock, for people
    done: int = 0
    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def count(self, more: int, *, now: float) -> None:
        self.done += more
        if not self.samples or now - self.samples[-1][0] >= _SAMPLE_SECONDS:
            self.samples.append((now, self.done))
        while len(self.samples) > 2 and now - self.samples[1][0] >= RATE_SECONDS:
            self.samples.popleft()

    def view(self, *, now: float) -> TransferView:
        begun, before = self.samples[0]
        seconds = now - begun
        rate = max(0.0, (self.done - before) / seconds) if seconds >= _SAMPLE_SECONDS else None
        left = max(0, self.total - self.done)
        return TransferView(
            kind=self.kind,
            name=self.name,
            bytes_done=max(0, min(self.done, self.total)),
            bytes_total=self.total,
            bytes_per_second=rate,
            eta_seconds=left / rate if rate else None,
            began_at=self.began_at,
        )


class Transfers:
    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._now = clock, now
        self._lock = threading.Lock()
        self._under_way: list[Transfer] = []

    @contextlib.contextmanager
    def under_way(
        self, kind: TransferKind, name: str, total: int, *, also: Progress | None = None
    ) -> Iterator[Progress]:
        """While it lasts it is told; what it gives counts the bytes, and tells `also` of them."""
        one = Transfer(kind, name, total, self._now())
        one.count(0, now=self._clock())
        with self._lock:
            self._under_way.append(one)

        def count(more: int) -> None:
            with self._lock:
                one.count(more, now=self._clock())
            if also is not None:
                also(more)

        try:
            yield count
        finally:
            with self._lock:
                self._under_way.remove(one)

    def views(self) -> list[TransferView]:
        """In the order in which they began; what has nothing to move is left out."""
        with self._lock:
            now = self._clock()
            return [one.view(now=now) for one in self._under_way if one.total > 0]
