"""How long a call to a store goes on trying: decided here alone, whatever a client library does.

Must never try again what was refused for good, and never outlive its caller's cancel event by more
than the call that is under way.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from rtj_sidecar.stores.base import Cancelled, OnWait, StoreProblem, check_cancel

LONGEST_WAIT_S = 8.0
TELL_AFTER_S = 5.0

T = TypeVar("T")


class Retrying:
    """Calls that are tried until they are done, refused, or their patience is over."""

    def __init__(self, *, on_wait: OnWait | None) -> None:
        self._on_wait = on_wait
        self._told = False

    def call(
        self,
        attempt: Callable[[], T],
        *,
        patience_s: float,
        cancel: threading.Event | None = None,
    ) -> T:
        """What `attempt` returns. It is called again after each StoreProblem that is transient.

        A call that began is let to its own timeout, so this may last one timeout longer.
        """
        began, wait = time.monotonic(), 0.1
        while True:
            check_cancel(cancel)
            try:
                result = attempt()
            except StoreProblem as problem:
                pause, waited = wait * random.uniform(0.5, 1.0), time.monotonic() - began
                if not problem.transient or waited + pause > patience_s:
                    raise
                if waited > TELL_AFTER_S:
                    self._tell(problem)
            else:
                if self._told:
                    self._tell(None)
                return result
            wait = min(wait * 2, LONGEST_WAIT_S)
            if cancel is None:
                time.sleep(pause)
            elif cancel.wait(pause):
                raise Cancelled

    def _tell(self, problem: StoreProblem | None) -> None:
        self._told = problem is not None
        if self._on_wait is not None:
            self._on_wait(problem)
