"""Multiplies a learning rate everywhere it is remembered: the optimizer and its schedulers.

Must never touch a schedule's shape: only its heights.
"""

from __future__ import annotations

from typing import Any, Optional

_OF_GROUPS = ("lr", "initial_lr", "max_lr", "min_lr")
_OF_SCHEDULERS = ("base_lrs", "_last_lr", "min_lrs", "max_lrs")


def of(optimizer: Any) -> Optional[float]:
    """The learning rate of the first group; None where there is none."""
    groups = getattr(optimizer, "param_groups", None)
    if not groups or "lr" not in groups[0]:
        return None
    return float(groups[0]["lr"])


def multiply(factor: float, *, optimizer: Any, schedulers: Any) -> None:
    """Learning rates of every group, and base, peak and floor of each scheduler."""
    for group in getattr(optimizer, "param_groups", ()):
        for name in _OF_GROUPS:
            if name in group:
                group[name] = group[name] * factor
    for scheduler in schedulers:
        for name in _OF_SCHEDULERS:
            rates = getattr(scheduler, name, None)
            if isinstance(rates, list):
                setattr(scheduler, name, [rate * factor for rate in rates])
        if isinstance(getattr(scheduler, "eta_min", None), (int, float)):
            scheduler.eta_min *= factor
        multiply(factor, optimizer=None, schedulers=getattr(scheduler, "_schedulers", ()))
