"""What a directive still has running behind it, until the next one ends it.

Must never let a task outlive the directive that it was begun for unnoticed: see `cancel`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


class Background:
    """Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._behind: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
        return task

    def cancel(self) -> None:
        """What an older directive still had running behind it."""
        for task in list(self._behind):
            task.cancel()
