"""How far apart saves should lie: the interval at which lost work and saving cost the least.

Formulas and test vectors: `failures-and-formulas` C3 and C8. Times in one unit throughout,
whichever it is. Pure.
"""

from __future__ import annotations

import math


def young(*, stall: float, mtti: float) -> float:
    """Young's interval √(2·C·M): stall C of one save, mean time M between interruptions."""
    return math.sqrt(2 * stall * mtti)


def daly(*, stall: float, mtti: float) -> float:
    """Daly's interval, good also where the stall is no small part of M; M itself from C ≥ 2M on."""
    if stall >= 2 * mtti:
        return mtti
    ratio = math.sqrt(stall / (2 * mtti))
    return young(stall=stall, mtti=mtti) * (1 + ratio / 3 + stall / (2 * mtti) / 9) - stall


def recommended(
    *,
    stall: float,
    mtti: float,
    durable_latency: float = 0.0,
    step: float = 0.0,
    longest: float = math.inf,
) -> float:
    """Daly's interval, never shorter than a step or than a save needs to become durable (one
    save in flight at a time), never longer than `longest`."""
    return min(longest, max(daly(stall=stall, mtti=mtti), durable_latency, step))


def interruption_mean(
    *, uptime: float, interruptions: int, prior_mtti: float, prior_weight: float = 1.0
) -> float:
    """M from what was seen: (k0·M0 + uptime) / (k0 + n), a Gamma prior (C2)."""
    return (prior_weight * prior_mtti + uptime) / (prior_weight + interruptions)
