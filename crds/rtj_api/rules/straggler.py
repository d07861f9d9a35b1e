"""A rank that is slower than the others, by what each tells of its own work in a step. Pure.

In a gang all ranks end a step together, so only a time without the waiting for others tells who is
slow: `step_seconds` of the progress file. What is not told is not guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import median

RATIO = 1.5  # of the median of the ranks
LEFT_RATIO = 1.25  # a rank that was slow is so until it falls below: no flapping at the limit
LEAST_RANKS = 3  # of two nobody can say which is the slow one
LEAST_SECONDS = 0.01  # of difference: below it is the clock
WINDOW_STEPS = 32  # that a rank's time is the median of: rtj_sidecar.trainer.progress
SLOW_STEPS = 3 * WINDOW_STEPS  # throughout which a rank is slow before anything is done about it


def stragglers(
    seconds: Mapping[int, float], *, known: Collection[int] = frozenset()
) -> tuple[int, ...]:
    """Ranks whose work in a step takes longer than one and a half times the median; by rank.

    `known`: ranks that were slow before, for which one and a quarter is enough.
    """
    if len(seconds) < LEAST_RANKS:
        return ()
    middle = median(seconds.values())
    limits = {True: _limit(middle, LEFT_RATIO), False: _limit(middle, RATIO)}
    return tuple(sorted(rank for rank, took in seconds.items() if took > limits[rank in known]))


def _limit(middle: float, ratio: float) -> float:
    return max(ratio * middle, middle + LEAST_SECONDS)


def slowness(seconds: Mapping[int, float], rank: int) -> float:
    """That rank's time in medians of the ranks; 0 where it told none."""
    middle = median(seconds.values()) if seconds else 0.0
    return seconds.get(rank, 0.0) / middle if middle > 0 else 0.0
