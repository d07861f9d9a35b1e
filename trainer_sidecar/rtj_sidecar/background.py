"""What a directive still has running behind it, until the next one ends it.

Work that fails in a way nobody foresaw is told in the report and done again, for nothing else would
ever do it: a fence that is not claimed, saves that are never named. Must never let a task outlive
the directive that it was begun for unnoticed (see `cancel`), nor an error pass in silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rtj_api.reasons import Reason

from rtj_sidecar.station import Station, log

MIN_BACK_OFF, MAX_BACK_OFF = 1.0, 30.0
KEY = "background"


class Background:
    """Belongs to the event loop's thread."""

    def __init__(self, station: Station) -> None:
        self._at = station
        self._behind: set[asyncio.Task[None]] = set()

    def start(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """`work()` may be done again from its beginning at any time."""
        task = asyncio.create_task(self._until_done(work))
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
        return task

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        reporter, back_off = self._at.reporter, MIN_BACK_OFF
        while True:
            try:
                await work()
            except Exception as error:
                log.exception("behind attempt %d", self._at.attempt)
                reporter.degrade(
                    KEY,
                    Reason.INTERNAL_ERROR,
                    f"rank {self._at.site.config.rank}: {type(error).__name__}: {error}. What this "
                    "sidecar was about to do for the attempt is not done; it is tried again. Its "
                    "log has the details",
                )
                await asyncio.sleep(back_off)
                back_off = min(MAX_BACK_OFF, 2 * back_off)
                continue
            reporter.heal(KEY)
            return

    def cancel(self) -> None:
        """What an older directive still had running behind it."""
        for task in list(self._behind):
            task.cancel()
        self._at.reporter.heal(KEY)
