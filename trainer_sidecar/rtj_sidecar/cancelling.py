"""Work in a thread that ends with the task that waits for it, not some time after.

A task is cancelled at once and a thread cannot be: so what it does is told to stop, and the next of
its kind waits until it has. Must never let two of a kind run side by side.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")

_LOOK_S = 0.05


class AnyOf:
    """As a threading.Event that is set as soon as one of these is: to be read only."""

    def __init__(self, *events: threading.Event) -> None:
        self._events = events

    def is_set(self) -> bool:
        return any(event.is_set() for event in self._events)

    def wait(self, timeout: float | None = None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
            if left <= 0:
                return False
            self._events[0].wait(left)
        return True


class OneAtATime:
    """Calls `work(cancel=…)` in a thread; belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._running: asyncio.Future[Any] | None = None

    async def call(self, work: Callable[..., T], *, closing: threading.Event) -> T:
        """What it returns. Cancelled: the work is told so, and ends behind."""
        if self._running is not None:
            await asyncio.wait({self._running})
        stop = threading.Event()
        cancel = cast(threading.Event, AnyOf(stop, closing))
        running = asyncio.ensure_future(asyncio.to_thread(work, cancel=cancel))
        running.add_done_callback(_heard)
        self._running = running
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            stop.set()
            raise


def _heard(future: asyncio.Future[Any]) -> None:
    """What a cancelled work still has to say interests nobody any more."""
    if not future.cancelled():
        future.exception()
