"""What a run's records tell the holder: at each claim, after a restart, where a line begins.

Belongs to rank 0. Must never let the holder name or commit what the one before it had decided
otherwise: until the records are taken in it knows only what the ranks have told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rtj_api.reasons import Reason
from rtj_api.wire import Candidate, Resume

from rtj_sidecar.holding import Holding
from rtj_sidecar.looking import Looking
from rtj_sidecar.runs.beginnings import acted
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.records import MarkKind, Parent
from rtj_sidecar.runs.run import Run
from rtj_sidecar.station import Station
from rtj_sidecar.stores.base import StoreProblem

MIN_BACK_OFF, MAX_BACK_OFF = 1.0, 15.0
ACTED_TOLD = 64
KEY = "store"


class Recalling:
    """Only on rank 0."""

    def __init__(self, station: Station, looking: Looking, holding: Holding) -> None:
        self._at = station
        self._looking = looking
        self._holding = holding
        self._knows_records = False  # what holders before this sidecar's start had named

    async def begin_line(self, run: Run, parent: Parent) -> None:
        """The fence has its parent: only what can be reached through it counts from now on."""
        at = self._at
        is_newest = not at.candidates or parent.name == at.candidates[0].name
        if is_newest and not parent.asked:
            return
        history = await asyncio.to_thread(run.history)
        candidates = await asyncio.to_thread(run.candidates, history)
        await self._drop_left(run, history, {c.name for c in candidates}, parent)
        at.journal.note(last_durable_name=None, last_durable_step=None, last_durable_at=None)
        self.take_in(history, candidates)
        durable = [c.name for c in candidates if c.durable and c.invalid is None]
        self._holding.list.begin_line(list(reversed(durable)))
        at.reporter.set(acted=acted(history)[-ACTED_TOLD:], found=None)
        at.tell_candidates()
        self._looking.tell()

    async def _drop_left(
        self, run: Run, history: History, reachable: set[str], parent: Parent
    ) -> None:
        """What was on its way on a line that is left will never be committed, by name."""
        start = parent.name or "nothing"
        for save, ship in history.ships.items():
            is_decided = history.condemned(save) is not None or history.has_broken(save)
            if ship.name in reachable or is_decided:
                continue
            await asyncio.to_thread(
                run.judging.mark,
                ship.name,
                kind=MarkKind.DROPPED,
                reason=Reason.CHECKPOINT_FALLBACK,
                message=f"{ship.name} was not durable when attempt {self._at.attempt} began from "
                f"{start}, which lies before it",
                fence=self._at.fence,
            )

    def take_in(self, history: History, candidates: list[Candidate]) -> None:
        """Let the holder go on with what the history holds."""
        at = self._at
        open_names = {c.name for c in candidates if not c.durable and c.invalid is None}
        self._holding.list.close_all_but(open_names)
        # Also to those who pinned files of them, whichever holder gave them up.
        lost = [
            ship.name
            for save, ship in sorted(history.ships.items())
            if ship.name not in open_names and not history.has_broken(save)
        ]
        self._holding.list.knows_as_dropped(lost)
        self._holding.list.reopen([s for s in history.ships.values() if s.name in open_names])
        durable = [c for c in candidates if c.durable and c.invalid is None]
        self._holding.list.knows_as_durable([c.name for c in reversed(durable)])
        at.candidates = list(candidates)
        self._holding.learn(history)
        self._knows_records = True
        if durable:
            newest = durable[0]
            self._holding.word.expect_as_usual(_writers(durable), of=newest.world_size)
            at.journal.note(
                last_durable_name=newest.name,
                last_durable_step=newest.step,
                last_durable_at=newest.written_at,
            )

    async def recover(self) -> None:
        """After a restart of the sidecar in the middle of an attempt: what the holder knew."""
        at, back_off = self._at, MIN_BACK_OFF
        entry = at.journal.entry
        while at.run is not None and entry.fence is not None:
            try:
                history = await self._take_in_again(at.run, entry.fence)
            except StoreProblem as problem:
                at.reporter.degrade(KEY, problem.reason, problem.message)
                await asyncio.sleep(back_off)
                back_off = min(MAX_BACK_OFF, 2 * back_off)
                continue
            at.reporter.heal(KEY)
            at.reporter.set(fence=entry.fence, listed=True, acted=acted(history)[-ACTED_TOLD:])
            at.tell_candidates()
            at.may_publish = entry.fence_attempt == at.attempt
            at.ship_now.set()
            self._looking.tell()
            return

    async def know_records(self) -> bool:
        """Whether the holder knows what the one before it had named, now if not before. Raises
        StoreProblem."""
        run, fence = self._at.run, self._at.fence
        if not self._knows_records and run is not None and fence is not None:
            await self._take_in_again(run, fence)
        return self._knows_records

    async def _take_in_again(self, run: Run, fence: int) -> History:
        at = self._at
        history = await asyncio.to_thread(run.history)
        candidates = await asyncio.to_thread(run.candidates, history)
        next_n = await asyncio.to_thread(run.next_n, history, fence)
        record = history.fence(fence)
        parent = record.parent if record is not None else at.journal.entry.parent
        at.journal.note(next_n=max(next_n, at.journal.entry.next_n), parent=parent)
        self.take_in(history, candidates)
        return history

    def parent_for(self, resume: Resume) -> Parent:
        """The position of a candidate, as the parent of the attempt that starts from it.

        `resume.step` is all that a sidecar knows of it that has just come back.
        """
        name, step, asked = resume.name, resume.step, resume.asked
        if name is None:
            return Parent(scratch=True, asked=asked)
        wanted = self._at.reporter.current.found
        named = [wanted.save] if wanted is not None and wanted.save is not None else []
        for found in (*self._at.candidates, *named):
            if found.name == name:
                return Parent(name=name, step=found.step, epoch=found.epoch, asked=asked)
        local = self._at.directory.named(name)
        facts = local[0].record.facts if local else None
        return Parent(
            name=name,
            step=facts.step if facts else step,
            epoch=facts.epoch if facts else None,
            asked=asked,
        )


def _writers(durable: Sequence[Candidate]) -> set[int]:
    """Ranks that wrote the newest of these, or the one before it, of as many pods: at the end of an
    attempt a save may be whole without a rank that ended first, which in the next one writes on."""
    newest = durable[0]
    alike = [found for found in durable[:2] if found.world_size == newest.world_size]
    return {rank for found in alike for rank in found.needs}
