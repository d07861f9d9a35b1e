"""Whether this pod's own disk can do at all: told at the first save, while there is time to change.

Looks at what the framework left here and at what a restore would bring; judges by
`checkpoints.needs`. Must never stop a trainer: it goes on, and every save still reaches the store
as far as the framework finishes it.
"""

from __future__ import annotations

import os
import time

from rtj_api.reasons import Reason

from rtj_sidecar.checkpoints.needs import (
    is_unfinished_orbax,
    needs_one_directory,
    too_large,
)
from rtj_sidecar.checkpoints.types import Snapshot
from rtj_sidecar.messages import Ships
from rtj_sidecar.runs.records import FileRecord
from rtj_sidecar.station import Station

APART_KEY, SIZE_KEY = "one-directory", "volume-size"
AGAIN_SECONDS = 5.0
REMEDY = (
    "Mount one volume that all pods share (ReadWriteMany, NFS) at checkpoint.path: "
    "docs/many-ranks.md"
)


class Needing:
    """Belongs to the event loop's thread."""

    def __init__(self, station: Station) -> None:
        self._at = station
        self._seen: Snapshot | None = None
        self._again: float | None = None  # monotonic: when to look although nothing changed
        self._finished: set[tuple[str, str]] = set()  # (layout, root) of saves that have a name

    @property
    def _is_apart(self) -> bool:
        directive = self._at.directive
        gang = directive.world_size if directive is not None else 1
        return gang > 1 and not self._at.site.config.shared_directory

    def look(self, ships: Ships) -> None:
        """After each look and each word of rank 0: does the framework need one directory?"""
        at = self._at
        if not self._is_apart:
            at.reporter.heal(APART_KEY)
            return
        named = {(each.record.layout, each.record.root_key) for each in ships.ships}
        snapshot = at.directory.sight.snapshot
        is_due = self._again is not None and time.monotonic() >= self._again
        if snapshot is self._seen and named <= self._finished and not is_due:
            return
        self._seen = snapshot
        self._finished |= named
        now = time.time()
        at_rest = {
            entry.path: now - max(entry.mtime_ns, entry.ctime_ns) / 1e9 for entry in snapshot.files
        }
        # What rests is no change that a look would tell of.
        is_open = any(map(is_unfinished_orbax, at_rest))
        self._again = time.monotonic() + AGAIN_SECONDS if is_open else None
        why = needs_one_directory(at_rest, finished=self._finished)
        if why is None:
            at.reporter.heal(APART_KEY)
        else:
            self._degrade(APART_KEY, f"{why}. {REMEDY}")

    async def weigh(self, name: str, wanted: list[FileRecord]) -> None:
        """A durable save, as this pod would have to restore it: does the disk hold that?"""
        at, config = self._at, self._at.site.config
        if not self._is_apart:
            return
        capacity = config.pod_volume_bytes or await at.on_disk(_capacity, at)
        own = [s.bytes for s in at.directory.named(name) if not s.record.mirror]
        why = too_large(
            needed_bytes=sum(file.size for file in wanted),
            own_bytes=max(own, default=0),
            capacity=capacity,
        )
        if why is None:
            at.reporter.heal(SIZE_KEY)
        else:
            self._degrade(SIZE_KEY, f"{name}: {why}. Make it larger, or: {REMEDY}")

    def _degrade(self, key: str, message: str) -> None:
        at = self._at
        text = f"{at.site.path}: {message}"
        at.reporter.degrade(key, Reason.NEEDS_SHARED_VOLUME, text, retrying=False)


def _capacity(station: Station) -> int:
    status = os.statvfs(station.site.path)
    return status.f_blocks * status.f_frsize
