"""One save at a time goes to the disk in the background; what fails is told and never raised.

The next save waits for the one before (back-pressure), so that host memory holds one copy and the
disk is never behind by more than one. The thread is no daemon: a process that ends finishes its
save first.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import Callable, Optional

log = logging.getLogger("rtj_trainer")


@dataclass(frozen=True)
class Costs:
    """Sums over this process: saves finished and failed, seconds that the trainer stood still for
    them, seconds and bytes of writing; `last_stall` and `last_error` are of the newest."""

    saves: int = 0
    failed: int = 0
    stall_seconds: float = 0.0
    last_stall: float = 0.0
    write_seconds: float = 0.0
    written_bytes: int = 0
    last_error: str = ""


class Writer:
    """Runs one `task` after another; each returns the bytes that it wrote."""

    def __init__(self) -> None:
        self._thread: Optional[threading.Thread] = None
        self.costs = Costs()
        self.is_failed = False

    @property
    def idle(self) -> bool:
        """Nothing is being written."""
        return self._thread is None or not self._thread.is_alive()

    def wait(self) -> None:
        """Until nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def begin(self, name: str, task: Callable[[], int]) -> None:
        """Starts the task once the one before has ended."""
        self.wait()
        self._thread = threading.Thread(
            target=self._run, args=(name, task), name="rtj-trainer-writer", daemon=False
        )
        self._thread.start()

    def stalled(self, seconds: float) -> None:
        """The trainer stood still so long for a save."""
        self.costs = replace(
            self.costs, stall_seconds=self.costs.stall_seconds + seconds, last_stall=seconds
        )

    def fail(self, name: str, error: BaseException) -> None:
        """A save is not to be had; the trainer goes on, with the one before as its newest."""
        self.is_failed = True
        said = f"{type(error).__name__}: {error}"
        self.costs = replace(self.costs, failed=self.costs.failed + 1, last_error=said)
        log.warning("%s was NOT saved (%s); the save before it stays the newest", name, said)

    def _run(self, name: str, task: Callable[[], int]) -> None:
        began = time.monotonic()
        try:
            size = task()
        except BaseException as error:  # DCP's own is no Exception
            self.fail(name, error)
            return
        self.is_failed = False
        self.costs = replace(
            self.costs,
            saves=self.costs.saves + 1,
            write_seconds=self.costs.write_seconds + time.monotonic() - began,
            written_bytes=self.costs.written_bytes + size,
        )
