"""Where a value lies in a drawing, and at which round values the axes are marked. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class Axis:
    """Linear; `low` lies at pixel `begin`, `high` at `end`."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        span = self.high - self.low
        return self.begin + (self.end - self.begin) * ((value - self.low) / span if span else 0.5)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values between `low` and `high`."""
        span = self.high - self.low
        if span <= 0:
            return [self.low]
        rough = span / about
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough)
        first = math.ceil(self.low / step)
        count = math.floor(self.high / step + 1e-9) - first + 1
        return [step * (first + index) for index in range(count)]

    def times(self, about: int = 6) -> list[tuple[float, str]]:
        """Round moments, Unix seconds, and their words in UTC."""
        span = self.high - self.low
        days = 86400 * max(1, math.ceil(span / about / 86400))
        step = next((each for each in _STEPS if span / each <= about), days)
        form = "%H:%M:%S" if step < 60 else "%H:%M" if span < 2 * 86400 else "%m-%d %H:%M"
        first = math.ceil(self.low / step) * step
        found: list[tuple[float, str]] = []
        at = float(first)
        while at <= self.high:
            found.append((at, datetime.fromtimestamp(at, UTC).strftime(form)))
            at += step
        return found


def around(values: list[float], *, share: float = 0.06) -> tuple[float, float]:
    """Lowest and highest with some air; never an empty span."""
    low, high = min(values), max(values)
    air = (high - low) * share or abs(high) * share or 1.0
    return low - air, high + air
