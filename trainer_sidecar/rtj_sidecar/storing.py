"""What the holder does with the store before a choice: claim, list, roll forward, have it proved.

Must never claim before the saves of the older attempt have their names, and never take a store
that did not answer for an empty one.
"""

from __future__ import annotations

import asyncio

from rtj_api.reasons import Reason
from rtj_api.wire import Directive, Found, Wanted

from rtj_sidecar.holding import Holding
from rtj_sidecar.looking import Looking
from rtj_sidecar.owning import Owning
from rtj_sidecar.proving import Proving
from rtj_sidecar.recalling import ACTED_TOLD, KEY, MAX_BACK_OFF, MIN_BACK_OFF, Recalling
from rtj_sidecar.runs.beginnings import acted
from rtj_sidecar.runs.fence import Claimed, FenceTaken, OwnedByOther, Superseded
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.records import Outcome, Parent
from rtj_sidecar.runs.run import Run
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import StoreProblem


class Storing:
    """Only on rank 0."""

    def __init__(self, station: Station, looking: Looking, holding: Holding) -> None:
        self._at = station
        self._looking = looking
        self._holding = holding
        self.listed = asyncio.Event()
        self.vetted = asyncio.Event()  # nothing is being fetched to prove a save
        self.vetted.set()
        self.recalling = Recalling(station, looking, holding)
        self.owning = Owning(station, holding)
        self.proving = Proving(station, holding)
        self.wanted: Wanted | None = None  # the beginning that this attempt has to find

    async def claim_and_list(self, directive: Directive, *, prove: bool = True) -> None:
        """Goes on until the store has answered; `listed` is set as soon as it has, before a save
        that nobody has pinned is fetched to be proved. Cancelled by what follows.

        `prove` False: nothing will be resumed in this attempt, so nothing is proved."""
        at, back_off = self._at, MIN_BACK_OFF
        self.listed.clear()
        self.owning.watch_no_more()
        at.reporter.set(found=None)
        if at.run is None:
            at.reporter.set(listed=False)
            return
        while True:
            try:
                if not await self._try(at.run, directive, prove=prove):
                    return
                at.reporter.heal(KEY)
                self.listed.set()
                return
            except StoreProblem as problem:
                log.warning("store: %s: %s", problem.reason, problem.message)
                at.reporter.degrade(KEY, problem.reason, problem.message)
                at.reporter.set(listed=False)
                self.listed.clear()
                await asyncio.sleep(back_off)
                back_off = min(MAX_BACK_OFF, 2 * back_off)

    async def _try(self, run: Run, directive: Directive, *, prove: bool) -> bool:
        at = self._at
        answer = await asyncio.to_thread(
            run.claim,
            attempt=directive.attempt,
            world_size=directive.world_size,
            may_claim=directive.may_claim,
            over=directive.claim_over,
        )
        self.owning.tell_of_conditions(run)
        match answer:
            case OwnedByOther(owner, fence, complete, record):
                holder = self.owning.holder_of(record, run=run)
                at.reporter.set(
                    fence_owner=owner, run_complete=complete, listed=True, holder=holder
                )
                at.fail(
                    Reason.RUN_ALREADY_COMPLETE if complete else Reason.RUN_IN_USE,
                    f"run {at.site.config.run_id} belongs to {owner} (fence {fence})",
                    retrying=True,
                )
                if not complete:
                    self.owning.watch(run, holder)
                return False
            case Superseded(attempt, fence):
                at.fail(
                    Reason.FENCE_TAKEN,
                    f"attempt {attempt} of this job already holds fence {fence}: this pod is an "
                    "older one's",
                )
                return False
            case Claimed(fence, record):
                log.info("fence %d for attempt %d", fence, directive.attempt)
        history = await asyncio.to_thread(run.history)
        complete = _completed_by(history, fence)
        candidates = await asyncio.to_thread(run.candidates, history)
        # First: who told of a share before the store answered is known by these names only.
        self.recalling.take_in(history, candidates)
        rolled = await asyncio.to_thread(
            run.publishing.roll_forward, history, fence=fence, told=self._holding.told()
        )
        for name in rolled.committed:
            log.info("rolled forward: %s is durable", name)
        for name, why in rolled.dropped:
            log.warning("rolled forward: %s dropped: %s", name, why)
        if rolled.committed or rolled.dropped:
            history = await asyncio.to_thread(run.history)
            candidates = await asyncio.to_thread(run.candidates, history)
        others = [known for known in history.fences if known.owner != record.owner]
        has_acted = acted(history)
        wanted = directive.wanted
        if wanted is not None and wanted.asked in has_acted:
            wanted = None
        self.wanted = wanted
        at.journal.note(
            fence=fence,
            fence_attempt=directive.attempt,
            next_n=await asyncio.to_thread(run.next_n, history, fence),
            parent=record.parent,
        )
        at.may_publish = True
        self.recalling.take_in(history, candidates)
        at.reporter.set(
            fence=fence,
            fence_owner=None,
            run_complete=complete is not None,
            completed_by=complete,
            holder=self.owning.holder_of(others[-1], run=run) if others else None,
            acted=has_acted[-ACTED_TOLD:],
            found=None,
        )
        if not prove:
            at.tell_candidates()
            at.reporter.set(listed=True)
            at.ship_now.set()
            self._looking.tell()
            return True
        if wanted is not None:
            return await self._find(run, history, wanted=wanted, fence=fence)
        self.vetted.clear()
        self.listed.set()
        try:
            vetted = await self.proving.vet(run, candidates, fence=fence)
        finally:
            self.vetted.set()
        if any(found.invalid is not None for found in vetted):
            history = await asyncio.to_thread(run.history)  # with the marks just made
            self.proving.tell_invalid(vetted, run=run, history=history)
        at.candidates = list(vetted)
        at.tell_candidates()
        at.reporter.set(listed=True)
        self._looking.tell()
        return True

    async def _find(self, run: Run, history: History, *, wanted: Wanted, fence: int) -> bool:
        """Look for the beginning that was asked for, and prove it: the choice waits for it."""
        at = self._at
        at.tell_candidates()
        if wanted.value is None:
            at.reporter.set(found=Found(asked=wanted.asked), listed=True)
            return True
        self.vetted.clear()
        self.listed.set()
        try:
            found = await self.proving.beginning(run, history, wanted=wanted, fence=fence)
        finally:
            self.vetted.set()
        log.info("%s: %s", wanted.value, found.problem or (found.save and found.save.name))
        for passed in found.passed_over:
            log.info("passed over %s", passed)
        at.reporter.set(found=found, listed=True)
        self._looking.tell()
        return True

    async def claim_late(self, *, attempt: int, world_size: int, parent: Parent) -> None:
        """The fast path, and a store that was silent: exactly the held number + 1, or nothing."""
        at, back_off = self._at, MIN_BACK_OFF
        held = at.fence
        if at.run is None or held is None:
            return
        while True:
            try:
                answer = await asyncio.to_thread(
                    at.run.claim_next,
                    held=held,
                    attempt=attempt,
                    world_size=world_size,
                    parent=parent,
                )
                if isinstance(answer, Claimed) and answer.record.parent is None:
                    # Claimed by a prepare whose answer came too late to be used.
                    await asyncio.to_thread(at.run.set_parent, fence=answer.fence, parent=parent)
                break
            except StoreProblem as problem:
                at.reporter.degrade(KEY, problem.reason, problem.message)
                await asyncio.sleep(back_off)
                back_off = min(MAX_BACK_OFF, 2 * back_off)
        at.reporter.heal(KEY)
        if isinstance(answer, FenceTaken):
            at.kill_trainer(up_to=attempt)
            at.fail(
                Reason.FENCE_TAKEN,
                f"fence {answer.fence} of run {at.site.config.run_id} was taken by {answer.owner} "
                "meanwhile: nothing was published, the trainer is stopped",
            )
            return
        if why := await self._refused_in_time(at.run, parent):
            # Said after the choice: nothing that was trained from it is ever published.
            at.journal.note(refused_attempt=attempt)
            at.kill_trainer(up_to=attempt)
            at.fail(*why)
            return
        at.journal.note(fence=answer.fence, fence_attempt=attempt, next_n=1, parent=parent)
        at.reporter.set(fence=answer.fence)
        at.may_publish = True
        await self._begin_line_in_time(at.run, parent)
        at.ship_now.set()
        log.info("fence %d for attempt %d", answer.fence, attempt)

    async def _refused_in_time(self, run: Run, parent: Parent) -> tuple[str, str] | None:
        back_off = MIN_BACK_OFF
        while parent.name is not None and parent.run is None:
            try:
                history = await asyncio.to_thread(run.history)
                return run.judging.refused(history, parent.name)
            except StoreProblem as problem:
                self._at.reporter.degrade(KEY, problem.reason, problem.message)
                await asyncio.sleep(back_off)
                back_off = min(MAX_BACK_OFF, 2 * back_off)
        return None

    async def _begin_line_in_time(self, run: Run, parent: Parent) -> None:
        back_off = MIN_BACK_OFF
        while True:
            try:
                return await self.recalling.begin_line(run, parent)
            except StoreProblem as problem:
                self._at.reporter.degrade(KEY, problem.reason, problem.message)
                await asyncio.sleep(back_off)
                back_off = min(MAX_BACK_OFF, 2 * back_off)


def _completed_by(history: History, fence: int) -> str | None:
    """The owner of the fence that finished the run before this one, None where it had not:
    attempts that never started say nothing."""
    number = history.before(fence)
    while number is not None:
        record = history.fence(number)
        if record is not None and (record.parent is not None or record.outcome is not None):
            return record.owner if record.outcome == Outcome.COMPLETE else None
        number = history.before(number)
    return None
