"""The loss that a progress bar shows: it stays there until the trainer sets another.

A bar is drawn anew at each step, with whatever was set last: `loss=nan`, set once, stands in a
hundred lines. Only what changes is news; and what stands for far longer than this bar's words ever
did before has been set again. Must never be asked about lines that are printed. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

LEAST = 8  # changes of what is shown, before it is known how often it is set
TIMES = 3  # of the most steps that it stood before


@dataclass(frozen=True, slots=True)
class Shown:
    """By one bar of one attempt. `at`: the step in which `loss` was first shown. `longest`: steps
    for which a loss stood until another came."""

    loss: float | None = None
    at: int = 0
    longest: int = 0
    changes: int = 0

    def with_line(self, step: int, loss: float) -> tuple[Shown, bool]:
        """Whether this line says something new of the loss."""
        if self.loss is None or step < self.at:
            return replace(self, loss=loss, at=step), True
        if not _is_same(self.loss, loss):
            stood = step - self.at if math.isfinite(self.loss) else 0
            longest = max(self.longest, stood)
            return Shown(loss, step, longest, self.changes + 1), True
        is_known = self.changes >= LEAST and self.longest > 0
        if math.isfinite(loss) or not is_known or step - self.at <= TIMES * self.longest:
            return self, False
        return replace(self, at=step), True


def _is_same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
