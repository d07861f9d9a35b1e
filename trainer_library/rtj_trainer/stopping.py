"""Signals that ask the trainer to stop: noted when they come, obeyed at the end of a step.

Must never do more in a handler than to note the signal: the trainer may be anywhere.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable
from typing import Any

from rtj_trainer.contract import Told, read_stop

_MOST_SECONDS_TO_BE_ASKED = 600.0


class Stopped(SystemExit):
    """The run ends as it was asked to, and is not finished. Its code is 0, or 1 where the last
    save failed."""


class Signals:
    """Notes SIGTERM and the like from now on; `asked` is the first one's name, "" before."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.asked = ""
        self._owner = os.getpid()
        if threading.current_thread() is not threading.main_thread():
            return
        for number in numbers:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, self._note)

    def _note(self, number: int, _frame: Any) -> None:
        if os.getpid() == self._owner:
            self.asked = self.asked or signal.Signals(number).name
            return
        # A process that the trainer forked, a loader's worker: as without us.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def wait_to_be_asked(told: Told, signals: Signals) -> None:
    """Under a supervisor code 0 means the end of training, unless it asked for the end: a rank
    that stops only because another one was asked waits until it is asked as well. Raises Stopped
    with code 1 where nobody asks."""
    if told.attempt is None or told.stop_file is None:
        return
    until = time.monotonic() + _MOST_SECONDS_TO_BE_ASKED
    while not signals.asked and read_stop(told.stop_file) is None:
        if time.monotonic() > until:
            raise Stopped(1)
        time.sleep(0.05)
