"""The end of each attempt's output, in the store, so that it outlives the pod.

Whoever ended the trainer: itself, a stop, a prepare of the next attempt, a fault of another rank.
That is why it belongs to no directive and no directive cancels it. Must never hold anything up for
longer than `HOLD_SECONDS`: nothing depends on a log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import StoreProblem

TAIL_BYTES = 1 << 20
KEPT = 4  # unsent tails held in memory where the store is away; the oldest gives way
HOLD_SECONDS = 5.0
MIN_BACK_OFF, MAX_BACK_OFF = 1.0, 60.0


class KeptLogs:
    """Belongs to the event loop's thread. `path`: trainer.log, its older half beside it."""

    def __init__(self, station: Station, *, path: Path) -> None:
        self._at = station
        self._path = path
        self._going: dict[int, asyncio.Task[None]] = {}

    def keep(self, attempt: int) -> None:
        """The trainer of that attempt has ended."""
        while len(self._going) >= KEPT:
            oldest = min(self._going)
            log.warning("the log of attempt %d was not taken by the store: dropped", oldest)
            self._going.pop(oldest).cancel()
        if attempt in self._going:
            self._going[attempt].cancel()
        task = asyncio.create_task(self._send(attempt))
        self._going[attempt] = task
        task.add_done_callback(lambda done: self._forget(attempt, done))

    async def away(self) -> None:
        """Until all are in the store, or HOLD_SECONDS are over."""
        if self._going:
            await asyncio.wait(list(self._going.values()), timeout=HOLD_SECONDS)

    def _forget(self, attempt: int, done: asyncio.Task[None]) -> None:
        if self._going.get(attempt) is done:
            del self._going[attempt]

    async def _send(self, attempt: int) -> None:
        # At once: the next trainer writes to the same file.
        text = await asyncio.to_thread(tail_of, self._path)
        back_off = MIN_BACK_OFF
        while not await self._put(attempt, text):
            await asyncio.sleep(back_off)
            back_off = min(MAX_BACK_OFF, 2 * back_off)

    async def _put(self, attempt: int, text: str) -> bool:
        run = self._at.run
        if run is None:
            return False
        put: Callable[[str, str], None] = run.moving.put_text
        with contextlib.suppress(StoreProblem):
            await asyncio.to_thread(put, f"logs/{attempt}/{self._at.site.config.rank}.txt", text)
            return True
        return False


def tail_of(path: Path) -> str:
    """The last MiB of the log and of its older half; empty where neither is there."""
    content = b""
    for part in (path.with_name(path.name + ".1"), path):
        with contextlib.suppress(OSError):
            content += part.read_bytes()
    return content[-TAIL_BYTES:].decode("utf-8", "replace")
