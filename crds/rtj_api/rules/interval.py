"""How far apart saves should lie: the interval at which lost work and saving cost the least.

Formulas and test vectors: `failures-and-formulas` C1-C3, C6 and C8. Times in one unit throughout,
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


def mtti_fraction(*, mtti: float, fraction: float = 0.1) -> float:
    """The playbook's rule, M/10: for where the stall of a save is not known (C4)."""
    return mtti * fraction


def clamped(
    interval: float,
    *,
    stall: float = 0.0,
    durable_latency: float = 0.0,
    step: float = 0.0,
    budget: float | None = None,
    longest: float = math.inf,
) -> float:
    """`interval`, never shorter than a step or than a save needs to become durable (one save in
    flight at a time), nor so short that stalls take more than the share `budget` of the time;
    never longer than `longest` (C8)."""
    paid = stall * (1 - budget) / budget if budget else 0.0
    return min(longest, max(interval, durable_latency, step, paid))


def recommended(
    *,
    stall: float,
    mtti: float,
    durable_latency: float = 0.0,
    step: float = 0.0,
    longest: float = math.inf,
) -> float:
    """Daly's interval within its clamps."""
    best = daly(stall=stall, mtti=mtti)
    return clamped(best, durable_latency=durable_latency, step=step, longest=longest)


def steps_of(interval: float, *, step: float) -> int:
    """The interval in whole steps of `step` each, at least one."""
    return max(1, round(interval / step))


def overhead(*, interval: float, stall: float, mtti: float, down: float = 0.0) -> float:
    """Share of the time that saves, lost work and recoveries of `down` each cost, to first order
    (C6)."""
    return stall / interval + interval / (2 * mtti) + down / mtti


def series_mtti(*, nodes: float, per_node_day: float) -> float:
    """M in minutes of nodes in series, each failing `per_node_day` times a day (C1)."""
    return 24 * 60 / (nodes * per_node_day)


def interruption_mean(
    *, uptime: float, interruptions: int, prior_mtti: float, prior_weight: float = 1.0
) -> float:
    """M from what was seen: (k0·M0 + uptime) / (k0 + n), a Gamma prior (C2)."""
    return (prior_weight * prior_mtti + uptime) / (prior_weight + interruptions)
