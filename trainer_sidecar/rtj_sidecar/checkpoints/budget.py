"""What gives way when the disk gets short, and in which order. Pure.

Quarantine, then mirrors, then pins of durable saves: all of that this project put there. Of the
trainer's own saves only on a volume that ends with the pod, and only those that newer durable ones
have made needless: never the newest two, never a person's files, never one that something names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rtj_sidecar.checkpoints.types import FoundSave, Snapshot

POD_VOLUME_SHARE = 0.7
NEWEST_KEPT = 2


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes. `limit` is what the volume may hold in all."""

    used: int
    limit: int

    def above(self, share: float) -> int:
        """Bytes that are too many; 0 where there are none."""
        return max(0, self.used - int(self.limit * share))


def fullest(usages: Sequence[Usage]) -> Usage:
    """The one that is nearest to its limit."""
    return max(usages, key=lambda usage: usage.used / max(1, usage.limit))


def needless_saves(
    snapshot: Snapshot,
    *,
    bytes_needed: float,
    is_own: Callable[[FoundSave], bool],
    is_durable: Callable[[FoundSave], bool],
    keep: int = NEWEST_KEPT,
) -> tuple[FoundSave, ...]:
    """Local saves to remove, oldest first, until `bytes_needed` are freed or none is left.

    `keep`: of the newest, at least two. `is_own`: this run's trainer made it and it was seen to
    finish. One that never became durable goes only where a newer one is durable.
    """
    named = {pointer.names for pointer in snapshot.pointers}
    placed = [s for s in snapshot.saves if (s.step, s.epoch) != (None, None)]
    durable = [index for index, save in enumerate(placed) if is_durable(save)]
    last = min(len(placed) - max(keep, NEWEST_KEPT), durable[-1] + 1 if durable else 0)
    freed, chosen = 0, []
    for save in placed[: max(0, last)]:
        if freed >= bytes_needed:
            break
        # A file of a fixed name beside it (`best.pt`) is worth more than its age.
        if is_own(save) and save.root_key not in named and not save.aliases:
            chosen.append(save)
            freed += sum(entry.size for entry in save.files)
    return tuple(chosen)
