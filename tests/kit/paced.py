"""An upload limit by a clock of the test's own: time passes only where somebody waits for it."""

from __future__ import annotations

import threading

from rtj_sidecar.stores.pace import Pace


class Clock:
    """Time passes only where a thread waits for its turn."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.lock = threading.Lock()

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float, cancel: threading.Event | None) -> bool:
        with self.lock:
            self.now += seconds
        return cancel is not None and cancel.is_set()


def pace(rate: int, clock: Clock) -> Pace:
    return Pace(rate, clock=clock, wait=clock.wait)
