"""Signals that ask the trainer to stop: noted when they come, obeyed at the end of a step.

Must never do more in a handler than to note the signal: the trainer may be anywhere.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional

from rtj_trainer.contract import Told, read_stop

_MOST_SECONDS_TO_BE_ASKED = 600.0


class Stopped(SystemExit):
    """The run ends as it was asked to, and is not finished. Its code is 0, or 1 where the last
    save failed."""


class Signals:
    """Notes SIGTERM and the like from now on; `asked` is the first one's name, "" before. One that
    the script handles by itself is left to it; `heard` are those that are noted."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.asked = ""
        self.heard: tuple[int, ...] = ()
        self._numbers = tuple(numbers)
        self._before: dict[int, Any] = {}
        self._owner = os.getpid()
        self.listen()

    def listen(self) -> None:
        """From now on, also in place of an earlier run of this process."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._numbers:
            current = signal.getsignal(number)
            earlier = getattr(current, "__self__", None)
            if isinstance(earlier, Signals) and earlier is not self:
                earlier.release()
                current = signal.getsignal(number)
            if current in (signal.SIG_DFL, signal.default_int_handler):
                self._before[number] = current
                signal.signal(number, self._note)
        self.heard = tuple(self._before)

    def release(self) -> None:
        """What the signals do is what they did before: a run that is finished has no more steps
        to obey them at."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, before in self._before.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, before)
        self._before = {}

    def _note(self, number: int, _frame: Any) -> None:
        if os.getpid() == self._owner:
            self.asked = self.asked or signal.Signals(number).name
            return
        # A process that the trainer forked, a loader's worker: as without us.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


class _Deaf:
    """A `worker_init_fn` that calls the script's own. A signal to the whole process group reaches
    the workers, too; without them there is no next step to stop after."""

    def __init__(self, then: Optional[Callable[[int], Any]], numbers: Sequence[int]) -> None:
        self._then, self._numbers = then, tuple(numbers)

    def __call__(self, worker: int) -> None:
        for number in self._numbers:
            # The loader ends a worker that hangs by SIGTERM: the second one is obeyed.
            deaf = _obey_the_next if number == signal.SIGTERM else signal.SIG_IGN
            signal.signal(number, deaf)
        if self._then is not None:
            self._then(worker)


def deaf(then: Optional[Callable[[int], Any]], numbers: Sequence[int]) -> Any:
    """A `worker_init_fn` whose workers do not end by these signals; `then` itself where there are
    none."""
    return _Deaf(then, numbers) if numbers else then


def _obey_the_next(number: int, _frame: Any) -> None:
    signal.signal(number, signal.SIG_DFL)


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
