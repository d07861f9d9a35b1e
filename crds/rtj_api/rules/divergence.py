"""A loss that leaves the numbers or explodes: what more steps cannot mend, so they are not made.

One bad value is none: mixed precision skips a step whose gradients overflow, and a batch may be an
outlier. Must never be asked about gradient norms, which overflow in every loss scaler's search.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from rtj_api.rules.noise import noise_of

NOT_FINITE = 2  # in a row
EXPLODED = 3  # in a row
HISTORY = 16  # finite losses before an explosion can be told from a beginning
KEPT = 96  # steps that are looked at
NEAR = 8  # of these the newest are its centre
WIDTH = 20.0  # standard deviations of its own noise above it
TIMES = 1.0  # and so many times itself above it


class Kind(StrEnum):
    NOT_FINITE = "NotFinite"
    EXPLODED = "Exploded"


@dataclass(frozen=True, slots=True)
class Divergence:
    """`step`: of the first bad loss; None where its line told none."""

    kind: Kind
    step: int | None
    message: str


def diverged(losses: Sequence[tuple[int | None, float]]) -> Divergence | None:
    """Whether the newest of these (step, loss), in order, are bad all in a row.

    Several of one step, as ranks, micro batches or an evaluation tell them, are one, the best of
    them. Exploded: each of the last three lies above what came before them by 20 of its standard
    deviations and by its own size. A loss near 0 is judged by its noise alone.
    """
    losses = _one_a_step(losses)[-KEPT:]
    tail = losses[-NOT_FINITE:]
    if len(tail) == NOT_FINITE and not any(math.isfinite(loss) for _, loss in tail):
        step = _first(losses)
        return Divergence(
            Kind.NOT_FINITE,
            step,
            f"the loss is not a finite number{_since(step)}",
        )
    before = [loss for _, loss in losses[:-EXPLODED] if math.isfinite(loss)]
    if len(before) < HISTORY:
        return None
    centre = median(before[-NEAR:])
    limit = centre + max(WIDTH * noise_of(before), TIMES * abs(centre))
    last = losses[-EXPLODED:]
    if any(math.isfinite(loss) and loss <= limit for _, loss in last):
        return None
    step = last[0][0]
    shown = next((f"{loss:.6g}" for _, loss in reversed(last) if math.isfinite(loss)), "no number")
    return Divergence(
        Kind.EXPLODED,
        step,
        f"the loss exploded{_since(step)}: it was {centre:.6g} and is {shown}",
    )


def _one_a_step(losses: Sequence[tuple[int | None, float]]) -> list[tuple[int | None, float]]:
    found: list[tuple[int | None, float]] = []
    for step, loss in losses:
        if step is None or not found or found[-1][0] != step:
            found.append((step, loss))
        elif not math.isfinite(found[-1][1]) or loss < found[-1][1]:
            found[-1] = (step, loss)
    return found


def _first(losses: Sequence[tuple[int | None, float]]) -> int | None:
    """Where the run of losses that are not finite, which the last one ends, began."""
    step = None
    for at, loss in reversed(losses):
        if math.isfinite(loss):
            break
        step = at
    return step


def _since(step: int | None) -> str:
    return f" since step {step}" if step is not None else ""
