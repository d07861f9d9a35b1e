"""How much a series of numbers moves by itself: its noise, robust to trend and spikes. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import median


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
