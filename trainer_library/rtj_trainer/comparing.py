"""Steps made twice, before a fault and after the resume, compared where they are made. Pure.

The same machine, kernels and state give the same bits. What differs points to the part that was
not brought back: a learning rate to the scheduler, samples to the loader, the first loss to the
model or the random states, the second one to the optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Optional

COMPARED = 8  # steps after a resume
CLOSE = 1e-3  # relative: sums in another order, not another training
_EXACT = ("batch_hash", "samples", "lr")
_NOISY = ("loss", "grad_norm")


def difference(
    before: Mapping[int, Mapping[str, Any]],
    now: Sequence[Mapping[str, Any]],
    *,
    registered: Sequence[str],
) -> Optional[str]:
    """The first thing that differs and what explains it, in one sentence; None if nothing does.

    `before`: records of the first pass by step; `now`: of this pass, in order.
    """
    pairs = [(before[r["step"]], r) for r in now if r.get("step") in before]
    for number, (old, new) in enumerate(pairs):
        for name in _EXACT:
            if _both(old, new, name) and old[name] != new[name]:
                return _said(name, old, new, _cause(name, number, registered))
        for name in _NOISY:
            if _both(old, new, name) and not _is_close(old[name], new[name]):
                return _said(name, old, new, _cause(name, number, registered))
    return None


def compared(before: Mapping[int, Any], now: Sequence[Mapping[str, Any]]) -> int:
    """Steps that both passes told."""
    return sum(1 for record in now if record.get("step") in before)


def is_bitwise(before: Mapping[int, Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> bool:
    """Every loss and gradient norm told twice is the very same number."""
    pairs = [(before[r["step"]], r) for r in now if r.get("step") in before]
    return all(
        old[name] == new[name] or (old[name] != old[name] and new[name] != new[name])
        for old, new in pairs
        for name in _NOISY
        if _both(old, new, name)
    )


def _both(old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> bool:
    return old.get(name) is not None and new.get(name) is not None


def _is_close(old: float, new: float) -> bool:
    if not (math.isfinite(old) and math.isfinite(new)):
        return math.isnan(old) == math.isnan(new) and (math.isnan(old) or old == new)
    return abs(old - new) <= CLOSE * max(abs(old), abs(new))


def _cause(name: str, number: int, registered: Sequence[str]) -> str:
    def lacks(part: str) -> bool:
        return not any(part in known for known in registered)

    if name == "lr":
        if lacks("sched"):
            return "no scheduler was registered: Run(scheduler=...)"
        return "the scheduler was not brought back as it was: is it stepped before restore()?"
    if name in ("batch_hash", "samples"):
        return "the data goes on elsewhere: does the script iterate over run.batches()?"
    if lacks("model"):
        return "no model was registered: Run(model=...)"
    if number == 0 and name == "loss":
        return "weights, random states or the batch differ: is something missing in Run(...)?"
    if lacks("optim"):
        return "no optimizer was registered: Run(optimizer=...)"
    return "the optimizer, a scaler or an average may be missing in Run(...)"


def _said(name: str, old: Mapping[str, Any], new: Mapping[str, Any], cause: str) -> str:
    return f"step {new['step']}: {name} is {new[name]!r}, and was {old[name]!r}; {cause}"
