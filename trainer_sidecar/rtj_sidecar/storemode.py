"""An attempt whose reports the operator does not hear: the gang goes on by itself.

How it gets to its go is `agreeing`'s affair. How the attempt ends here reaches the operator as the
end of the trainer's container: with the trainer's own failure code, or with 0 once the fence says
that all ranks have drained. Must never pass an end on as another attempt's, nor one of 0 before
everything of every rank is in the store.
"""

from __future__ import annotations

import asyncio
import time

from rtj_api.reasons import Reason
from rtj_api.wire import (
    Directive,
    Phase,
    Release,
    Report,
    SidecarPhase,
    ThroughStore,
    TrainerState,
)

from rtj_sidecar.agreeing import LOOK_SECONDS, Agreeing, Place, Step
from rtj_sidecar.lastwords import exit_code, last_words
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.records import Outcome, ReadyState
from rtj_sidecar.silent_gang import SilentGang
from rtj_sidecar.station import Station, log
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.storing import Storing

DONE_SECONDS = 900.0  # this rank is done, and the others have not moved since
HANG_LOOK_SECONDS = 2.0  # between two looks at the records of a gang that may hang
KEY = "store-mode-end"


def is_given_up(report: Report, directive: Directive) -> bool:
    """The attempt failed here before it was told to go on through the store: that stays said."""
    return (
        directive.through_store is not None
        and report.attempt == directive.attempt
        and report.phase is SidecarPhase.FAILED
    )


class StoreMode:
    """`storing` only on rank 0. Belongs to the event loop's thread."""

    def __init__(self, station: Station, storing: Storing | None) -> None:
        self._at = station
        self._holds = storing is not None
        self._agreeing = Agreeing(station, storing)
        self._silent = SilentGang()
        self._looked_at = 0.0
        self._warned: str | None = None  # of a hang that is only told

    async def reach(
        self, directive: Directive, *, prepare: Step, restore: Step
    ) -> Directive | None:
        """Everything that is left until trainers may start: see Agreeing."""
        return await self._agreeing.reach(directive, prepare=prepare, restore=restore)

    # --- the end ---

    async def loop(self) -> None:
        """Keeps this rank's record fresh, and passes the end of the attempt on."""
        at = self._at
        while True:
            directive = at.directive
            is_mine = (
                directive is not None
                and directive.through_store is not None
                and directive.phase is Phase.GO
                and at.journal.entry.passed_on < directive.attempt
            )
            if not is_mine or directive is None:
                await asyncio.sleep(0.2)
                continue
            # A trainer's own fault is passed on though the store is silent.
            told = await self._trouble(self._tell, directive)
            ended = await self._trouble(self._look_at_end, directive)
            if (problem := told or ended) is not None:
                at.reporter.degrade(KEY, problem.reason, problem.message)
                await asyncio.sleep(2.0)
            else:
                at.reporter.heal(KEY)
            await asyncio.sleep(0.2)

    async def _trouble(self, step: Step, directive: Directive) -> StoreProblem | None:
        try:
            await step(directive)
        except StoreProblem as problem:
            return problem
        return None

    async def _tell(self, directive: Directive) -> None:
        place = self._agreeing.place
        if place is not None and place.attempt == directive.attempt:
            await asyncio.to_thread(self._agreeing.write)
        await self._look_for_hang(directive)

    async def _look_for_hang(self, directive: Directive) -> None:
        """While this rank gives no sign: its record says so, and rank 0 reads those of all."""
        at, run = self._at, self._at.run
        if at.reporter.current.stall is None or not at.is_training or run is None:
            self._silent, self._warned = SilentGang(), None
            return
        if time.monotonic() - self._looked_at < HANG_LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        place = self._agreeing.place
        if place is None or place.attempt != directive.attempt:  # it trained before reports ceased
            record = await asyncio.to_thread(run.agreement.fence_of, directive.attempt)
            if record is not None:
                fence = record.fence
                self._agreeing.place = Place(fence, directive.attempt, ReadyState.RESTORED)
            return
        if not self._holds:
            return
        said = await asyncio.to_thread(
            run.agreement.said, fence=place.fence, attempt=directive.attempt
        )
        found = self._silent.hang(
            said,
            world_size=directive.world_size,
            now=time.time(),
            timeout=at.site.config.hang_timeout_seconds,
        )
        if found is None or at.directive != directive or not at.is_training:
            return
        if not at.site.config.restarts_hung:
            if found != self._warned:
                self._warned = found
                log.warning("%s", found)
            return
        at.kill_trainer(up_to=directive.attempt)
        at.fail(Reason.TRAINER_HUNG, found, retrying=True)

    async def _look_at_end(self, directive: Directive) -> None:
        at, report = self._at, self._at.reporter.current
        state = at.supervisor
        if state is None or at.is_training or report.terminating:
            return
        if report.attempt != directive.attempt or at.directive != directive:
            return
        trainer = state.trainer
        ended = trainer.state is TrainerState.EXITED and trainer.attempt == directive.attempt
        if report.phase is SidecarPhase.FAILED:
            self._pass_on(directive, code=(exit_code(trainer) if ended else 0) or 1)
            return
        over = (SidecarPhase.EXITED, SidecarPhase.DRAINING, SidecarPhase.DRAINED)
        if not ended or report.settling or report.phase not in over:
            return
        if trainer.container_restarted:
            return  # The container's own end has told it.
        if code := exit_code(trainer):
            self._pass_on(directive, code=code)
        elif report.phase is SidecarPhase.DRAINED:
            await self._finish(directive)

    async def _finish(self, directive: Directive) -> None:
        """This rank is done and drained: leave with 0 as soon as the fence says that all are."""
        at, run = self._at, self._at.run
        if run is None:
            return
        agreement = run.agreement
        record = await asyncio.to_thread(agreement.fence_of, directive.attempt)
        if record is None:
            return
        self._agreeing.place = Place(record.fence, directive.attempt, ReadyState.DRAINED)
        await asyncio.to_thread(self._agreeing.write)
        said = await asyncio.to_thread(
            agreement.said, fence=record.fence, attempt=directive.attempt
        )
        told = directive.through_store or ThroughStore()
        deciders = 1 if told.rank_zero_decides else directive.world_size
        drained = {r.rank for r in said.values() if r.state is ReadyState.DRAINED}
        all_done = drained >= set(range(deciders))
        if at.directive != directive:
            return  # Another attempt began meanwhile; its prepare finds the outcome.
        if record.outcome == Outcome.COMPLETE:
            self._pass_on(directive, code=0)
        elif all_done and self._holds:
            if (short := self._short_of(told.target_step)) is not None:
                at.fail(Reason.TARGET_STEP_NOT_REACHED, short)
                return
            await asyncio.to_thread(agreement.complete, fence=record.fence)
        elif told.rank_zero_decides:
            await asyncio.sleep(LOOK_SECONDS)  # the operator ends this pod with rank 0's word
        elif self._agreeing.still_for(said) > DONE_SECONDS:
            at.fail(
                Reason.EARLY_EXIT,
                f"exit 0, and the other ranks made no step for {DONE_SECONDS:.0f} s after it",
            )
        else:
            await asyncio.sleep(LOOK_SECONDS)

    def _short_of(self, target: int | None) -> str | None:
        """That all is done and the step to reach was not; None where it was, or there is none."""
        report = self._at.reporter.current
        progress, durable = report.progress, report.checkpoint.last_durable_step
        is_sure = progress.confirmed or progress.source in ("file", "checkpoint")
        known = [s for s in (durable, progress.step if is_sure else None) if s is not None]
        if target is None or max(known, default=0) >= target:
            return None
        seen = f"step {max(known)}" if known else "no step that is known"
        return f"exit 0 at {seen}, before success.targetStep {target}"

    def _pass_on(self, directive: Directive, *, code: int) -> None:
        """Written before it is noted: after a crash in between, one end is told twice, and the
        attempt in its words says that it is the same."""
        at = self._at
        report = at.reporter.current
        view = report.checkpoint
        if view.last_durable_name and view.last_durable_step is None:  # only rank 0 lists the store
            step = keys.step_in(view.last_durable_name)
            view = view.model_copy(update={"last_durable_step": step})
            report = report.model_copy(update={"checkpoint": view})
        at.link.release(Release(message=last_words(report), code=code))
        at.journal.note(passed_on=directive.attempt)
        log.info("attempt %d ends here, passed on with code %d", directive.attempt, code)
