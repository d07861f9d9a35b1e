"""How far apart saves should lie: the interval at which lost work and saving cost the least.

Formulas and test vectors: `failures-and-formulas` C1-C3, C6, C8 and C9. Times in one unit
throughout, whichever it is. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_TINY = 1e-12  # of C/M: below it Young's formula is as exact as the numbers
_STEPS, _NEAR = 60, 1e-13


def young(*, stall: float, mtti: float) -> float:
    """Young's interval √(2·C·M): stall C of one save, mean time M between interruptions."""
    return math.sqrt(2 * stall * mtti)


def daly(*, stall: float, mtti: float) -> float:
    """Daly's interval, good also where the stall is no small part of M; M itself from C ≥ 2M on."""
    if stall >= 2 * mtti:
        return mtti
    ratio = math.sqrt(stall / (2 * mtti))
    return young(stall=stall, mtti=mtti) * (1 + ratio / 3 + stall / (2 * mtti) / 9) - stall


def exact(*, stall: float, mtti: float) -> float:
    """The optimum where faults come at random: M·(1 + W₀(−e^(−C/M−1))), W₀ being Lambert's (C3).

    Found as the share u of M in (0, 1) with u + ln(1 − u) = −C/M, by Newton's steps from above,
    where they converge from one side; the same u as W₀ + 1, without its loss of digits near −1/e.
    0 where a save costs nothing, M where it costs many times M.
    """
    cost = stall / mtti
    if cost <= 0:
        return 0.0
    if cost < _TINY:
        return young(stall=stall, mtti=mtti)
    # 1 − e^(−1−C/M) lies above u: there the function is −e^(−1−C/M) below its zero.
    share = min(math.sqrt(2 * cost), -math.expm1(-1 - cost))
    if share >= 1:
        return mtti
    for _ in range(_STEPS):
        error = share + math.log1p(-share) + cost
        after = share + error * (1 - share) / share
        if abs(after - share) <= _NEAR * share:
            break
        share = after
    return mtti * share


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """Intervals of the saves that stay in the pods, and of those that outlive them."""

    local: float
    durable: float


def tiers(
    *, local_stall: float, durable_stall: float, mtti: float, local_loss_share: float
) -> Tiers:
    """Each tier's own optimum: only the share p of the faults that lose the local copies needs a
    durable save, so that one sees a fault every M/p (C9, with the exact formula)."""
    return Tiers(
        local=exact(stall=local_stall, mtti=mtti),
        durable=exact(stall=durable_stall, mtti=mtti / local_loss_share),
    )


def share_seen(*, losses: int, faults: int, prior: float = 0.25, weight: float = 1.0) -> float:
    """p from what was seen, with the share that DLRover's operators report as a prior (C9): about
    three faults in four leave the pods as they are."""
    return (weight * prior + losses) / (weight + faults)


def full_state_bytes(parameters: float) -> float:
    """Bytes of a full state in mixed precision with Adam: 12 for each parameter (the playbook)."""
    return 12 * parameters


def needed_bandwidth(*, size: float, seconds: float) -> float:
    """Bytes per second that make `size` bytes durable within `seconds`."""
    return size / seconds


def mtti_fraction(*, mtti: float, fraction: float = 0.1) -> float:
    """The playbook's rule, M/10: for where the stall of a save is not known (C4)."""
    return mtti * fraction


def clamped(
    interval: float,
    *,
    durable_latency: float = 0.0,
    step: float = 0.0,
    longest: float = math.inf,
) -> float:
    """`interval`, never shorter than a step, nor than a save takes (one save in flight at a time);
    never longer than `longest` (C8). Its budget for stalls is left out: it makes the interval
    longer than the optimum, which weighs stalls against lost work already."""
    return min(longest, max(interval, durable_latency, step))


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
