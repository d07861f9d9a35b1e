"""Rank 0's half of becoming durable: a save is committed when its parts are there, or dropped.

And what follows from it: what is kept, and an attempt that ends because its trainer or its fence
is not the run's any more. Must never write a record itself: `runs` does, under its own guards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from rtj_api.reasons import Reason

from rtj_sidecar.checkpoints.resume_state import has_of
from rtj_sidecar.gangword import GangWord, is_stop
from rtj_sidecar.ignoring import stop_ignored
from rtj_sidecar.latecomers import Late
from rtj_sidecar.runs.archive import Archived, NoArchive
from rtj_sidecar.runs.commit import Committed, Dropped, Waiting
from rtj_sidecar.runs.fence import FenceLost
from rtj_sidecar.runs.keeping import Keep, keep_of
from rtj_sidecar.runs.records import ManifestRecord, MarkKind, ShipRecord
from rtj_sidecar.runs.retain import Retained
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.ships import Ignored
from rtj_sidecar.runs.sweep import Swept
from rtj_sidecar.runs.unfit import said_against
from rtj_sidecar.shiplist import ShipList
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import Cancelled, StoreProblem

P = ParamSpec("P")
T = TypeVar("T")

WAIT_SECONDS = 900.0
SWEEP_SECONDS = 3600.0
KEY, ARCHIVE = "store", "archive"


class Committing:
    """Belongs to the event loop's thread."""

    def __init__(self, station: Station, ships: ShipList, word: GangWord) -> None:
        self._at = station
        self._list = ships
        self._word = word
        self._moving: asyncio.Task[None] | None = None  # to the archive
        self._held: str | None = None  # why retention deletes nothing
        self._swept = 0  # the fence under which leftovers were last looked for, and when
        self._swept_at = 0.0
        self.retry_at: float | None = None  # monotonic: the store had a problem in this round
        self._waits: dict[
            str, tuple[int, ...]
        ] = {}  # by save: who had not answered at the last try

    async def commit(self, ship: ShipRecord, *, is_awaited: bool) -> None:
        """Try it once. `is_awaited`: other saves wait for this one to be decided."""
        at = self._at
        run, fence = at.run, at.fence
        if run is None or fence is None:
            return
        named = self._list.open[ship.name]
        made_in = named.made_in
        answer = await self.in_store(
            run.publishing.try_commit,
            ship,
            fence=fence,
            gone=self._word.without(ship),
            told=sorted(named.generations),
        )
        self._waits.pop(ship.name, None)
        if isinstance(answer, Committed):
            self._committed(answer.manifest)
            # Before anything moves to the archive: it would end that copy too.
            await self._sweep(fence)
            await self._retain()
        elif isinstance(answer, Dropped):
            self._drop(ship, answer.message)
        elif isinstance(answer, Ignored):
            self._drop(ship, answer.message)
            # A leftover of an older attempt may have got its name before this one's choice, which
            # may lie above it where another job had gone on with the run meanwhile.
            if made_in == at.attempt:
                self.ignored(answer.message)
        elif isinstance(answer, FenceLost):
            self.lost(answer.by)
        elif isinstance(answer, Waiting):
            self._waits[ship.name] = answer.ranks
            waited = self._list.open_for(ship.name)
            # A stop ends when nothing is open any more: it cannot wait for a rank for ever.
            if waited > WAIT_SECONDS and (is_awaited or is_stop(at.directive)):
                if not await self.in_store(run.held, fence):
                    return  # another holds the run by now, and may still get that part
                why = f"ranks {answer.ranks} did not send their part within {WAIT_SECONDS:.0f} s"
                await self.in_store(
                    run.judging.mark,
                    ship.name,
                    kind=MarkKind.DROPPED,
                    reason=Reason.UPLOAD_LAGGING,
                    message=why,
                    evidence={"ranks": list(answer.ranks)},
                )
                self._drop(ship, why)

    def waits_for_silent_only(self, ship: ShipRecord) -> bool:
        """At the last try all was there but the word of ranks that had told of no share of it."""
        ranks = self._waits.get(ship.name)
        return ranks is not None and set(ranks) <= set(ship.asked) - set(ship.expected)

    async def refuse_half(self, late: Late) -> bool:
        """Whether it is done with: the save that was named without that share is given up."""
        run, fence = self._at.run, self._at.fence
        if late.name is None:
            return True
        if run is None or fence is None or not await self.in_store(run.held, fence):
            return False
        is_open = late.name in self._list.open
        marked = await self.in_store(
            run.judging.mark,
            late.name,
            kind=MarkKind.DROPPED if is_open else MarkKind.INVALID,
            reason=Reason.CHECKPOINT_TORN,
            message=late.why,
            evidence={"rank": late.rank, "seconds": late.seconds},
            fence=fence,
        )
        if marked is None:
            return False
        if late.name in self._list.open:
            self._drop(self._list.open[late.name].record, late.why)
        # A durable one stays among the candidates, as invalid: that there was one forbids step 0.
        return True

    async def _retain(self) -> None:
        """What no rule keeps any more is marked, and deleted an hour later; what is old enough
        goes to the archive, behind everything else."""
        at = self._at
        keep, run, fence = keep_of(at.site.config), at.run, at.fence
        if run is None or fence is None:
            return
        resume = at.journal.entry.resume
        in_use = [resume.name] if resume is not None and resume.name else []
        if keep.last is not None:
            done = await self.in_store(run.tending.retain, fence=fence, keep=keep, in_use=in_use)
            gone = set(done.marked) if isinstance(done, Retained) else set()
            held = done.held if isinstance(done, Retained) else None
            if held is not None and held != self._held:
                log.warning("retention: %s", held)
            self._held = held
            if gone:
                at.candidates = [c for c in at.candidates if c.name not in gone]
                at.tell_candidates()
        if keep.archive_after is not None and not self._is_moving:
            self._moving = asyncio.create_task(self._archive(run, fence, keep, in_use))
            self._moving.add_done_callback(_heard)

    @property
    def _is_moving(self) -> bool:
        return self._moving is not None and not self._moving.done()

    async def _archive(self, run: Run, fence: int, keep: Keep, in_use: list[str]) -> None:
        """One save after the other; what stands against it is told and tried with the next."""
        at = self._at
        while not at.closing.is_set() and at.fence == fence and at.may_publish:
            try:
                done = await self.in_store(
                    run.tending.archive, fence=fence, keep=keep, in_use=in_use, cancel=at.closing
                )
            except Cancelled:
                return
            if isinstance(done, NoArchive):
                at.reporter.degrade(ARCHIVE, Reason.ARCHIVE_UNSUPPORTED, done.message)
            if not isinstance(done, Archived):
                return
            at.reporter.heal(ARCHIVE)
            log.info("archived %s", done.name)

    async def _sweep(self, fence: int) -> None:
        """When the first save of a fence is durable, no start waits for it; then once an hour, so
        that a long attempt leaves few records of what it dropped to whoever lists the run next.

        Later where a file still moves to the archive, begun under the fence before."""
        run = self._at.run
        is_done = self._swept == fence and time.monotonic() - self._swept_at < SWEEP_SECONDS
        if run is None or is_done or self._is_moving:
            return
        done = await self.in_store(run.publishing.sweep, fence=fence)
        if isinstance(done, Swept):
            self._swept, self._swept_at = fence, time.monotonic()
            if done.uploads or done.saves:
                log.info("ended %d unfinished uploads, freed %s", done.uploads, done.saves)

    def _committed(self, manifest: ManifestRecord) -> None:
        at = self._at
        log.info("durable %s", manifest.name)
        # At the end of an attempt a save may be whole without a rank that ended first: in the next
        # one that rank writes as before.
        is_left = manifest.made_in != at.attempt
        writers = {*manifest.ranks, *(self._word.usual if is_left else ())}
        self._word.expect_as_usual(writers, of=manifest.world_size)
        at.candidates = [
            c.model_copy(
                update={
                    "durable": True,
                    "needs": manifest.ranks,
                    "bytes": manifest.bytes,
                    "full_state": manifest.full_state,
                    "loss": manifest.loss,
                    "has": has_of(manifest.facts),
                    **said_against(manifest.facts, required=at.site.config.required_keys),
                }
            )
            if c.name == manifest.name
            else c
            for c in at.candidates
        ]
        at.tell_candidates()
        self._list.became_durable(manifest.name)

    def _drop(self, ship: ShipRecord, why: str) -> None:
        at = self._at
        log.warning("dropped %s: %s", ship.name, why)
        at.candidates = [c for c in at.candidates if c.name != ship.name]
        at.tell_candidates()
        self._list.was_dropped(ship.name)

    async def in_store(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """The call's answer; None when the store has a problem, which is then told."""
        at = self._at
        try:
            answer = await asyncio.to_thread(call, *args, **kwargs)
        except StoreProblem as problem:
            at.reporter.degrade(KEY, problem.reason, problem.message)
            self.retry_at = time.monotonic() + 5
            return None
        at.reporter.heal(KEY)
        return answer

    def ignored(self, message: str) -> None:
        stop_ignored(self._at, message)

    def lost(self, by: int) -> None:
        """A higher fence exists: whoever holds it publishes, and this attempt stops."""
        at = self._at
        at.may_publish = False
        at.kill_trainer(up_to=at.attempt)
        at.fail(
            Reason.FENCE_TAKEN,
            f"fence {by} of run {at.site.config.run_id} follows ours ({at.fence}): a newer "
            "attempt, or a job that took the run over, publishes now, so this one stops",
        )


def _heard(moving: asyncio.Task[None]) -> None:
    """Nobody awaits it: what ended it is said here, and the next durable save begins it anew."""
    if not moving.cancelled() and (error := moving.exception()) is not None:
        log.error("moving saves to the archive ended", exc_info=error)
