"""How much a series of numbers moves by itself: its noise, robust to trend and spikes. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import median

LEAST_FOR_MEAN = 24  # values
FAR_APART, WANDERS = 8, 1.8  # steps; times as far: 2.8 for a mean of very many, 1 for none
AVERAGED = 50.0
NEIGHBOURS = 4  # to each side


def noise_of(values: Sequence[float]) -> float:
    """A standard deviation, from the steps between neighbours; 0 for fewer than three values.

    A series that falls steadily is not taken for a noisy one, nor one with a few spikes. The 80th
    percentile of the steps, which is 1.2816 standard deviations of a normal one: their median
    would call a series that jumps between two values noiseless. Values that are not finite are
    passed over.
    """
    known = [value for value in values if math.isfinite(value)]
    if len(known) < 3:
        return 0.0
    steps = [b - a for a, b in itertools.pairwise(known)]
    centre = median(steps)
    spread = sorted(abs(step - centre) for step in steps)[int(0.8 * len(steps))]
    return spread / 1.2816 / math.sqrt(2)


def raw_noise_of(values: Sequence[float]) -> float:
    """As `noise_of`; of a series that is a moving mean, as loggers show it, that of what it is the
    mean of, for a mean that begins anew moves by as much.

    A mean is told by its wandering: over eight steps it moves much further than over one, which a
    series of independent noise does not, beyond its trend. How much is averaged cannot be told from
    so few values: fifty, as usual smoothing factors of 0.9 to 0.99 do.
    """
    known = [value for value in values if math.isfinite(value)]
    noise = noise_of(known)
    if len(known) < LEAST_FOR_MEAN:
        return noise
    one, far = (_spread(_moves(known, apart)) for apart in (1, FAR_APART))
    if far < WANDERS * one or one == 0.0:
        return noise
    return max(noise, AVERAGED * _spread(_beside(_moves(known, 1))))


def _moves(values: Sequence[float], apart: int) -> list[float]:
    return [b - a for a, b in zip(values, values[apart:], strict=False)]


def _spread(moves: Sequence[float]) -> float:
    """A standard deviation about the median, robust; see `noise_of`."""
    centre = median(moves)
    return sorted(abs(move - centre) for move in moves)[int(0.8 * len(moves))] / 1.2816


def _beside(moves: Sequence[float]) -> list[float]:
    """Each without the median of its neighbours: what bends slowly, as a loss that falls ever less,
    is no noise."""
    return [
        move - median(moves[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1])
        for at, move in enumerate(moves)
    ]
