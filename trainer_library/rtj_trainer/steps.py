"""What is known of each step, told as it is made and compared where it is made a second time.

Must never stop the trainer: a difference is said, and the sidecar's rules decide what follows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from rtj_trainer import comparing
from rtj_trainer.telling import Told

log = logging.getLogger("rtj_trainer")


class Steps:
    """The records of one process. `registered`: names of what survives, for explanations."""

    def __init__(self, lines: Told, *, registered: Sequence[str]) -> None:
        self._lines, self._registered = lines, registered
        self._before: Mapping[int, Mapping[str, Any]] = {}
        self._again: list[Mapping[str, Any]] = []
        self._ended_at = time.monotonic()
        self.loss: Optional[float] = None

    def compare_beyond(self, step: int) -> None:
        """The steps after it were recorded before, and are made again now."""
        known = self._lines.before()
        self._before = {number: record for number, record in known.items() if number > step}

    def made(self, **told: Any) -> None:
        """A step and what is known of it; None is left out."""
        told["step_seconds"] = round(time.monotonic() - self._ended_at, 6)
        record = {name: value for name, value in told.items() if value is not None}
        self.loss = record.get("loss")
        if self._before:
            self._compare(record)
        self._lines.tell(record)

    def ended(self) -> None:
        """From here on the time is the next step's."""
        self._ended_at = time.monotonic()

    def _compare(self, record: dict[str, Any]) -> None:
        self._again.append(record)
        found = comparing.difference(self._before, self._again, registered=self._registered)
        count = comparing.compared(self._before, self._again)
        is_last = count >= comparing.COMPARED or record["step"] >= max(self._before)
        if found is not None:
            log.warning("the resume is not exact: %s", found)
            record["resumed"] = f"differs: {found}"
        elif is_last and count:
            exact = comparing.is_bitwise(self._before, self._again)
            how = "bit for bit" if exact else "nearly"
            record["resumed"] = f"{count} steps made twice are {how} as before"
            log.info("%s", record["resumed"])
        if found is not None or is_last:
            self._before, self._again = {}, []
