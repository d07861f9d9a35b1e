"""What a step means when the number of ranks changes: global batch, accumulation, learning rate.

Pure. The batch of a step is kept by accumulating more or fewer parts where that divides; where it
does not, the batch changes, and the policy says what becomes of the learning rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

POLICIES = ("none", "linear", "sqrt")


@dataclass(frozen=True)
class Size:
    """A gang: `world` ranks, `batch` samples of a loader's batch, `accumulation` batches a step."""

    world: int
    batch: int
    accumulation: int = 1

    @property
    def global_batch(self) -> int:
        """Samples of one step of the whole gang."""
        return self.world * self.batch * self.accumulation


@dataclass(frozen=True)
class Change:
    """`before` became `after`; `factor` is what the learning rate is multiplied by."""

    before: Size
    after: Size
    factor: float
    policy: str

    def said(self) -> str:
        """One sentence for people."""
        what = (
            f"{self.before.world} ranks became {self.after.world}: a step takes "
            f"{self.after.global_batch} samples in {self.after.accumulation} parts of each rank"
        )
        if self.before.global_batch == self.after.global_batch:
            return f"{what}, as before"
        return (
            f"{what}, not {self.before.global_batch}; "
            f"learning rate x {self.factor:g} (policy {self.policy})"
        )


def check(policy: str) -> None:
    """Raises ValueError for a policy that is unknown."""
    if policy not in POLICIES:
        raise ValueError(f"lr_policy {policy!r} is unknown; use one of: {', '.join(POLICIES)}")


def after_change(before: Size, *, world: int, batch: int, policy: str) -> Change:
    """The accumulation that keeps the global batch, or else the one before with the policy's
    learning rate: `linear` with the batch (Goyal et al. 2017), `sqrt` with its root (Krizhevsky
    2014), `none` as it is. Raises ValueError for another policy.
    """
    check(policy)
    parts, left = divmod(before.global_batch, world * batch)
    if parts and not left:
        return Change(before, Size(world, batch, parts), 1.0, policy)
    after = Size(world, batch, before.accumulation)
    ratio = after.global_batch / before.global_batch
    factor = {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[policy]
    return Change(before, after, factor, policy)
