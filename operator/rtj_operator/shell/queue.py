"""The keyed queue: each job is looked at by one worker at a time, and never forgotten.

kopf neither retries nor de-duplicates what an event handler does, so this does. A key is waiting,
active, or both (something happened while it was worked on: it runs again). Failures back off per
key, and a key whose passes are costly is taken less often (see `pacing`). All times are those of
the injected clock. Must never drop a key that was added, and must never know what a key means.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rtj_operator.shell.pacing import Pace

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class QueueCounters:
    """Totals since the start, for metrics."""

    adds: int = 0
    retries: int = 0
    done: int = 0
    wait_seconds: float = 0.0  # sum over taken keys: from ready to taken
    work_seconds: float = 0.0  # sum over ended passes


@dataclass(slots=True)
class KeyQueue(Generic[K]):
    """`add`, `add_at`, `get`, then exactly one of `done` or `retry` for each key got."""

    clock: Callable[[], float] = time.monotonic
    backoff_base: float = 0.05
    backoff_max: float = 30.0
    counters: QueueCounters = field(default_factory=QueueCounters)
    on_add: Callable[[], None] = lambda: None
    on_take: Callable[[float], None] = lambda _: None  # seconds from ready to taken
    pace: Pace[K] = field(default_factory=Pace)
    _ready: dict[K, float] = field(default_factory=dict)  # key -> since when; in order
    _active: dict[K, float] = field(default_factory=dict)  # key -> since when
    _dirty: dict[K, tuple[float, bool]] = field(default_factory=dict)  # added while active: urgent
    _due: dict[K, float] = field(default_factory=dict)  # earliest wish
    _heap: list[tuple[float, int, K]] = field(default_factory=list)  # may hold outdated wishes
    _failures: dict[K, int] = field(default_factory=dict)
    _order: itertools.count[int] = field(default_factory=itertools.count)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, key: K, *, urgent: bool = False) -> None:
        """Look at `key` as soon as its pace allows and a worker is free; again if it is being
        worked on. `urgent`: the gang waits for it."""
        self.counters.adds += 1
        self.on_add()
        self._make_ready(key, urgent=urgent)
        self._changed.set()

    def add_at(self, key: K, when: float) -> None:
        """Look at `key` at `when`, or earlier if an earlier wish is known."""
        known = self._due.get(key)
        if known is not None and known <= when:
            return
        self._due[key] = when
        heapq.heappush(self._heap, (when, next(self._order), key))
        self._changed.set()

    def add_after(self, key: K, seconds: float) -> None:
        self.add_at(key, self.clock() + seconds)

    def take(self) -> K | None:
        """The next key that is due, now active; None if there is none. Its wish is forgotten:
        whoever works on it says anew when to look again."""
        self._promote()
        if not self._ready:
            return None
        key = next(iter(self._ready))
        now = self.clock()
        waited = now - self._ready.pop(key)
        self.counters.wait_seconds += waited
        self.on_take(waited)
        self._active[key] = now
        self._due.pop(key, None)
        return key

    async def get(self) -> K:
        """The next key, waiting for one."""
        while True:
            key = self.take()
            if key is not None:
                if self._ready:
                    self._changed.set()  # another worker may take the next
                return key
            self._changed.clear()
            delay = self.seconds_to_next()
            try:
                async with asyncio.timeout(delay):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def spent(self, key: K, seconds: float) -> None:
        """Looking at `key`, which is active, took so long: what follows on it is paced by that."""
        self.pace.spent(key, seconds, now=self.clock())

    def done(self, key: K) -> None:
        """The pass went well: the key's back-off starts anew."""
        self._failures.pop(key, None)
        self._finish(key)

    def retry(self, key: K, *, after: float | None = None) -> float:
        """The pass failed: look again after the back-off, or `after` seconds if that is longer.

        Hints that came during the pass are merged into that look: a failing API server must not
        be hammered. Returns the delay in seconds.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        backoff = min(self.backoff_base * 2.0 ** min(failures, 30), self.backoff_max)
        delay = max(backoff, after or 0.0)
        self.counters.retries += 1
        self._dirty.pop(key, None)
        self._finish(key)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The object is gone: drop a wish for later, before `done`. Hints stay."""
        self._due.pop(key, None)
        self.pace.forget(key)

    def seconds_to_next(self) -> float | None:
        """Until the earliest wish; None if nothing is planned."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return max(self._heap[0][0] - self.clock(), 0) if self._heap else None

    @property
    def depth(self) -> int:
        return len(self._ready)

    @property
    def planned(self) -> int:
        return len(self._due)

    def oldest_seconds(self) -> float:
        """Age of the oldest change that no worker has taken yet."""
        waiting = [*self._ready.values(), *(since for since, _ in self._dirty.values())]
        return self.clock() - min(waiting) if waiting else 0.0

    def longest_active_seconds(self) -> float:
        return self.clock() - min(self._active.values()) if self._active else 0.0

    def _make_ready(self, key: K, *, urgent: bool = False, since: float | None = None) -> None:
        now = self.clock()
        if key in self._active:
            known, was_urgent = self._dirty.get(key, (now, False))
            self._dirty[key] = known, urgent or was_urgent
            return
        wait = 0.0 if key in self._ready else self.pace.wait(key, now=now, urgent=urgent)
        if wait > 0:
            self.add_at(key, now + wait)
        else:
            self._ready.setdefault(key, now if since is None else since)

    def _promote(self) -> None:
        while (delay := self.seconds_to_next()) is not None and delay <= 0:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            self._make_ready(key)

    def _finish(self, key: K) -> None:
        self.counters.done += 1
        self.counters.work_seconds += self.clock() - self._active.pop(key)
        hint = self._dirty.pop(key, None)
        if hint is not None:
            since, urgent = hint
            self._make_ready(key, urgent=urgent, since=since)
        self._changed.set()
