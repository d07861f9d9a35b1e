"""Whose the run is, seen from rank 0's sidecar: another's that may let it go, or ours that may be
taken over while nothing is published.

Reads fences and tells; claims nothing.
"""

from __future__ import annotations

import asyncio
import contextlib

from rtj_api.rules.steering import MadeWith, changes, masked
from rtj_api.wire import Holder

from rtj_sidecar.holding import Holding
from rtj_sidecar.runs.records import FenceRecord
from rtj_sidecar.runs.run import Run
from rtj_sidecar.station import Station
from rtj_sidecar.stores.base import StoreProblem

WATCH_SECONDS, HELD_SECONDS = 5.0, 30.0


class Owning:
    """Only on rank 0."""

    def __init__(self, station: Station, holding: Holding) -> None:
        self._at = station
        self._holding = holding
        self._watching: asyncio.Task[None] | None = None

    def holder_of(self, record: FenceRecord) -> Holder:
        """Another job's fence as the operator hears of it, with what this job does otherwise."""
        config, directive = self._at.site.config, self._at.directive
        return Holder(
            owner=record.owner,
            namespace=record.namespace,
            job=record.job,
            attempt=record.attempt,
            fence=record.fence,
            claimed_at=record.claimed_at,
            outcome=record.outcome,
            changes=changes(
                MadeWith(image=record.image, command=record.command, world_size=record.world_size),
                MadeWith(
                    image=config.image,
                    command=masked(config.command),
                    world_size=directive.world_size if directive is not None else None,
                ),
            ),
        )

    def watch(self, run: Run, holder: Holder) -> None:
        """While the run is another's: tell when its holder lets it go, or is another by now."""
        self.watch_no_more()
        self._watching = asyncio.create_task(self._until_released(run, holder))

    def watch_no_more(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _until_released(self, run: Run, holder: Holder) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                record = await asyncio.to_thread(run.newest_fence)
            except StoreProblem:
                continue
            if record is not None and self.holder_of(record) != holder:
                self._at.reporter.set(holder=self.holder_of(record))
                return

    async def held_loop(self) -> None:
        """Between saves nothing else would tell that another job took the run over."""
        at = self._at
        while True:
            await asyncio.sleep(HELD_SECONDS)
            fence = at.fence
            if at.run is None or fence is None or not (at.may_publish and at.is_training):
                continue
            with contextlib.suppress(StoreProblem):
                record = await asyncio.to_thread(at.run.newest_fence)
                if record is not None and record.fence > fence == at.fence and at.may_publish:
                    self._holding.committing.lost(record.fence)
