"""The arithmetic of a gang that changes its size, and which saves another size can load. Pure.

What a step takes of the data must not change with the number of processes, or the step is no
position in the data any more: so where the global batch is known it is kept by gradient
accumulation, and a size for which that does not come out even is not allowed. Must never round.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rtj_api.rules.quality import RESHARDS


class LearningRate(StrEnum):
    """What becomes of the learning rate where the global batch changes with the size."""

    NONE = "None"
    LINEAR = "Linear"
    SQRT = "Sqrt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`whole`: samples of one step of the gang. `micro`: those that one process takes at once.
    `procs`: processes of each pod."""

    whole: int
    micro: int
    procs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """What the trainers of a gang of some size are told. `accumulation` and `global_batch` only
    where the batch is known; `learning_rate_scale` is a factor to that of the whole gang."""

    accumulation: int | None
    global_batch: int | None
    learning_rate_scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """`spec.elastic` with what follows from it. `sizes`: allowed ones, rising, `full` the last."""

    full: int
    sizes: tuple[int, ...]
    scale_down_after: float
    grows: bool
    batch: Batch | None = None
    learning_rate: LearningRate = LearningRate.NONE


def accumulation(batch: Batch, *, size: int) -> int | None:
    """Batches that each process sums up before a step of `size` pods; None where no whole number
    keeps the global batch."""
    at_once = size * batch.procs * batch.micro
    return batch.whole // at_once if batch.whole >= at_once and batch.whole % at_once == 0 else None


def allowed_sizes(
    *, full: int, least: int, listed: Collection[int] = (), batch: Batch | None = None
) -> tuple[int, ...]:
    """From `least` to `full`, of `listed` where that is stated; without those that the batch does
    not divide by. `full` is always one of them."""
    wanted = {n for n in listed or range(least, full + 1) if least <= n <= full}
    kept = {n for n in wanted if batch is None or accumulation(batch, size=n) is not None}
    return tuple(sorted(kept | {full}))


def size_for(sizes: Sequence[int], *, room: int) -> int | None:
    """The largest allowed size that `room` pods make; None where they are too few."""
    return max((n for n in sizes if n <= room), default=None)


def arithmetic(elastic: Elastic, *, size: int) -> Arithmetic:
    """Linear: Goyal et al. 2017, section 2.1 (the rate times k with the batch times k). Sqrt:
    Krizhevsky 2014, section 5 (the variance of the step is kept)."""
    if elastic.batch is not None:
        return Arithmetic(
            accumulation=accumulation(elastic.batch, size=size),
            global_batch=elastic.batch.whole,
            learning_rate_scale=1.0,
        )
    share = size / elastic.full
    scale = {
        LearningRate.NONE: 1.0,
        LearningRate.LINEAR: share,
        LearningRate.SQRT: math.sqrt(share),
    }[elastic.learning_rate]
    return Arithmetic(accumulation=None, global_batch=None, learning_rate_scale=round(scale, 9))


def why_uneven(batch: Batch, *, size: int) -> str | None:
    """Why this size cannot keep the global batch, with the sum; None where it can."""
    if accumulation(batch, size=size) is not None:
        return None
    return (
        f"{size} pods x {batch.procs} processes x microBatch {batch.micro} = "
        f"{size * batch.procs * batch.micro} samples at once, which does not divide globalBatch "
        f"{batch.whole}"
    )


# Every rank leaves files of its own there whatever the size; what is missing begins anew.
_OWN_EXTRAS = frozenset({"hf-trainer", "accelerate", "lightning", "torchtune", "dcp-hf"})


def why_fixed(*, layout: str | None, writers: Collection[int]) -> str | None:
    """Why a save of this layout, written by these ranks, cannot be loaded by another number of
    them; None where it can, or where that is the script's affair."""
    can = RESHARDS.get(layout or "")
    if can is False:
        return f"a {layout} save fits the number of ranks that wrote it"
    if can or len(set(writers)) < 2 or layout in _OWN_EXTRAS:
        return None
    ranks = ", ".join(map(str, sorted(set(writers))[:8]))
    return (
        f"ranks {ranks} each wrote files of their own ({layout or 'of an unknown layout'}), and "
        "nothing shows that another number of ranks can load them"
    )
