"""The loss that the trainer reports: how it lay when a save was made, and whether it lies so again.

A save records a band, the recent loss and its noise. After a resume from it the first losses are
compared. That is a finding for whoever decides, and must never decide anything itself: a changed
batch or another learning rate moves a loss with nothing wrong. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from rtj_api.rules.noise import noise_of
from rtj_api.wire import LossCheck, LossState

LOSS_BAND = "loss_band"
KEPT = 64
LEAST = 8  # losses from which a band is made
NEAR = 8  # of these the newest are its centre
FIRST = 4  # losses after a resume that are compared
WIDTH = 6.0  # of the noise: one false alarm in many thousand resumes, where noise is normal
LEAST_WIDTH = 0.02  # of the centre: a loss that is printed with two digits has no noise


@dataclass(frozen=True, slots=True)
class Losses:
    """As they came in one attempt, by source: a progress file is exact, a log line is advice.

    `first` are those after the start; known only where it was followed from there on.
    """

    file: tuple[float, ...] = ()
    log: tuple[float, ...] = ()
    first_file: tuple[float, ...] = ()
    first_log: tuple[float, ...] = ()
    from_start: bool = False

    def with_log(self, loss: float | None) -> Losses:
        if loss is None:
            return self
        return replace(
            self, log=(*self.log, loss)[-KEPT:], first_log=(*self.first_log, loss)[:FIRST]
        )

    def with_file(self, loss: float | None) -> Losses:
        if loss is None:
            return self
        return replace(
            self, file=(*self.file, loss)[-KEPT:], first_file=(*self.first_file, loss)[:FIRST]
        )

    @property
    def first(self) -> tuple[float, ...]:
        if not self.from_start:
            return ()
        return self.first_file or self.first_log

    def band(self) -> dict[str, float] | None:
        """The fact `loss_band` of a save: {loss, noise, samples}; None where too few are known.

        `noise` is a standard deviation, see `rules.noise`.
        """
        known = [loss for loss in self.file or self.log if math.isfinite(loss)]
        if len(known) < LEAST:
            return None
        return {
            "loss": round(median(known[-NEAR:]), 9),
            "noise": round(noise_of(known), 9),
            "samples": float(len(known)),
        }


def check(band: Mapping[str, object] | None, first: Sequence[float]) -> LossCheck | None:
    """None while too few losses have come. One that is not finite is outside of every band."""
    expected, noise = _number(band, "loss"), _number(band, "noise")
    if any(not math.isfinite(loss) for loss in first):
        return LossCheck(
            state=LossState.OUTSIDE, expected=expected, noise=noise, samples=len(first)
        )
    if len(first) < FIRST:
        return None
    seen = median(first)
    if expected is None or noise is None:
        return LossCheck(state=LossState.UNKNOWN, seen=seen, samples=len(first))
    width = max(WIDTH * noise, LEAST_WIDTH * abs(expected))
    state = LossState.WITHIN if abs(seen - expected) <= width else LossState.OUTSIDE
    return LossCheck(state=state, expected=expected, noise=noise, seen=seen, samples=len(first))


def _number(band: Mapping[str, object] | None, key: str) -> float | None:
    value = band.get(key) if band is not None else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]
