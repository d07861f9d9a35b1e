"""A rank that is slower than the others, by what each tells of its own work in a step. Pure.

In a gang all ranks end a step together, so only a time without the waiting for others tells who is
slow: `step_seconds` of the progress file. What is not told is not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

RATIO = 1.5  # of the median of the ranks
LEAST_RANKS = 3  # of two nobody can say which is the slow one
LEAST_SECONDS = 0.01  # of difference: below it is the clock


def stragglers(seconds: Mapping[int, float]) -> tuple[int, ...]:
    """Ranks whose work in a step takes longer than one and a half times the median; by rank."""
    if len(seconds) < LEAST_RANKS:
        return ()
    middle = median(seconds.values())
    limit = max(RATIO * middle, middle + LEAST_SECONDS)
    return tuple(sorted(rank for rank, taken in seconds.items() if taken > limit))
