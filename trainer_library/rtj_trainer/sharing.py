"""Which samples of an epoch a rank takes next, whatever the number of ranks was before. Pure.

The cursor counts samples of the whole gang. Ranks take turns, as in PyTorch's DistributedSampler:
after `n` batches of `b` samples each on `w` ranks exactly the first n·b·w samples of the epoch's
order are done, so another number of ranks shares the rest without leaving one out or taking one
twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def share_of(
    order: Sequence[int], *, cursor: int, rank: int, world: int, drop_last: bool = False
) -> Sequence[int]:
    """The samples of `rank` from `cursor` on, as many as of every other rank.

    The last ones are made up from the beginning of the order, as DistributedSampler does, or left
    out with `drop_last`. With cursor 0 it is what DistributedSampler gives.
    """
    rest = len(order) - min(cursor, len(order))
    if world == 1:
        return order[cursor:] if cursor else order
    if drop_last:
        return order[cursor : len(order) - rest % world][rank::world]
    mine = list(order[cursor + rank :: world])
    if rest % world and rank >= rest % world and len(order):
        mine.append(order[(rank - rest % world) % len(order)])
    return mine


def batches_of(samples: Sequence[int], *, size: int, drop_last: bool) -> Iterator[list[int]]:
    """Consecutive batches; the last one may be smaller, unless it is left out."""
    for start in range(0, len(samples), size):
        batch = list(samples[start : start + size])
        if len(batch) == size or not drop_last:
            yield batch


def total_batches(samples: int, *, size: int, drop_last: bool) -> int:
    """How many `batches_of` gives."""
    return samples // size if drop_last else -(-samples // size)


def is_known_order(indices: Any) -> bool:
    """It is a sequence that can be cut anywhere without walking through it."""
    return hasattr(indices, "__getitem__") and hasattr(indices, "__len__")
