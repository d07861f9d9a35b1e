"""Whose the run is, seen from rank 0's sidecar: another's that may let it go, or ours that may be
taken over, or its saves judged by a person, while nothing is published.

Reads fences and marks, and tells; claims nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from rtj_api.reasons import Reason
from rtj_api.rules.steering import MadeWith, changes, masked
from rtj_api.wire import Candidate, Holder

from rtj_sidecar.holding import Holding
from rtj_sidecar.runs.records import FenceRecord
from rtj_sidecar.runs.run import Run
from rtj_sidecar.station import Station
from rtj_sidecar.stores.base import StoreProblem

WATCH_SECONDS, HELD_SECONDS = 5.0, 30.0
CONDITIONS = "conditions"


class Owning:
    """Only on rank 0."""

    def __init__(self, station: Station, holding: Holding) -> None:
        self._at = station
        self._holding = holding
        self._watching: asyncio.Task[None] | None = None
        self._marks: frozenset[str] | None = None  # as they were looked at last

    def holder_of(self, record: FenceRecord, *, run: Run) -> Holder:
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
            person_only=not run.honours_conditions,
        )

    def tell_of_conditions(self, run: Run) -> None:
        """Once the run was opened: what its store does not keep apart is told for as long."""
        if run.honours_conditions:
            self._at.reporter.heal(CONDITIONS)
            return
        self._at.reporter.degrade(
            CONDITIONS,
            Reason.STORE_WITHOUT_CONDITIONS,
            f"{run.url} does not honour If-None-Match and If-Match, so fences are numbered by the "
            "attempt, and only checkpoint.takeOver or the request take-over gives another job's "
            "run to this one. Use a store, or a version of it, that honours them, and delete "
            "run.json of the run while no job uses it",
            retrying=False,
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
            if record is not None and self.holder_of(record, run=run) != holder:
                self._at.reporter.set(holder=self.holder_of(record, run=run))
                return

    async def held_loop(self) -> None:
        """Between saves nothing else would tell that another job took the run over, or that a
        person marked a save: a restart in place begins from what is known here."""
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
                    continue
                await self.look_at_marks(at.run)

    async def look_at_marks(self, run: Run) -> None:
        """Tell of what was said of a save since the last look. Raises StoreProblem."""
        at = self._at
        there = await asyncio.to_thread(run.judging.marks)
        if there == self._marks:
            return
        history = await asyncio.to_thread(run.history)
        fresh = await asyncio.to_thread(run.candidates, history)
        self._marks = there
        at.candidates = judged_anew(at.candidates, fresh)
        at.tell_candidates()


def judged_anew(known: Sequence[Candidate], fresh: Sequence[Candidate]) -> list[Candidate]:
    """The known ones with what a fresh look says against them; what only a person had said and
    took back says nothing any more."""
    by_name = {candidate.name: candidate for candidate in fresh}
    found = []
    for candidate in known:
        seen = by_name.get(candidate.name)
        was_marked = candidate.invalid == Reason.MARKED_BY_PERSON
        if seen is not None and (seen.invalid is not None or was_marked):
            told = {"invalid": seen.invalid, "invalid_message": seen.invalid_message}
            candidate = candidate.model_copy(update=told)
        found.append(candidate)
    return found
