"""What a directive asks for, step by step. Every step may be done again after a crash.

Must never let a trainer run between an accepted prepare and the go of that attempt, never restore
after the go, and never start from another save than the directive names.
"""

from __future__ import annotations

import asyncio
from functools import partial

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.wire import (
    Directive,
    Phase,
    Release,
    SidecarPhase,
    Stop,
)

from rtj_sidecar.background import Background
from rtj_sidecar.checkpoints.restore import RestoreError
from rtj_sidecar.ending import Ending
from rtj_sidecar.failing import AttemptFailed, until_stopped
from rtj_sidecar.holding import Holding
from rtj_sidecar.launching import go_message, tell_interval
from rtj_sidecar.looking import Looking
from rtj_sidecar.opening import take_place
from rtj_sidecar.prefetching import Prefetching
from rtj_sidecar.preparing import Preparing
from rtj_sidecar.restorer import Restorer
from rtj_sidecar.runs.records import Outcome
from rtj_sidecar.selffence import SelfFence
from rtj_sidecar.shipping import Shipping
from rtj_sidecar.station import Station, log
from rtj_sidecar.storemode import StoreMode
from rtj_sidecar.storing import Storing
from rtj_sidecar.verifying import begin_trail, keep_trail


class Attempts:
    """One handler for each phase of a directive; at most one runs at a time."""

    def __init__(
        self,
        station: Station,
        looking: Looking,
        shipping: Shipping,
        holding: Holding | None,
        storing: Storing | None,
        fence: SelfFence,
        prefetching: Prefetching,
    ) -> None:
        self._at = station
        self._fence = fence
        self._looking = looking
        self._shipping = shipping
        self._storing = storing
        self.prefetching = prefetching
        self._restorer = Restorer(station, looking, storing, prefetching)
        self.store_mode = StoreMode(station, storing)
        self.behind = Background(station)
        self.ending = Ending(station, looking, shipping)
        self._preparing = Preparing(
            station, looking, shipping, holding, storing, fence, self.behind
        )

    async def carry_out(self, directive: Directive) -> None:
        """Do what it asks for. Problems end in the report, never in an exception."""
        log.info("attempt %d: %s", directive.attempt, directive.phase.value)
        handlers = {
            Phase.PREPARE: self._preparing.prepare,
            Phase.RESTORE: self._restore_only,
            Phase.GO: self._go,
            Phase.STOP: self._stop,
            Phase.RELEASE: self._release,
        }
        moves = directive.phase in (Phase.PREPARE, Phase.RESTORE) or directive.fast
        while True:
            telling = asyncio.create_task(self._at.tell_fetching()) if moves else None
            try:
                await handlers[directive.phase](directive)
            except AttemptFailed as failed:
                self._at.fail(
                    failed.reason, str(failed), retrying=failed.retrying, ranks=failed.ranks
                )
            except RestoreError as error:
                self._at.fail(Reason.RESTORE_FAILED, str(error))
            except OSError as error:
                # Our own small files: every step may be done again.
                text = f"{self._at.link.run} cannot be written: {error}"
                self._at.reporter.degrade("run-directory", Reason.DISK_FULL, text)
                await asyncio.sleep(1.0)
                continue
            finally:
                if telling is not None:
                    telling.cancel()
            self._at.reporter.heal("run-directory")
            return

    # --- restore ---

    async def _restore_only(self, directive: Directive) -> None:
        at = self._at
        if self._storing is not None and not self._storing.vetted.is_set():
            # What is being fetched there is most likely what this restore needs.
            at.set_phase(SidecarPhase.RESTORING)
            await self._storing.vetted.wait()
        if self._storing is not None and not self._storing.listed.is_set():
            self.behind.cancel()  # The choice was made without the store: see claim_late.
        if at.journal.entry.restored_attempt < directive.attempt:
            if at.link.told_to_go() >= directive.attempt:
                return  # After the go nothing is restored any more.
            await self._restorer.restore(directive)
        at.set_phase(SidecarPhase.RESTORED)
        if self._storing is not None and not at.may_publish:
            self.behind.start(self._storing.recalling.recover)

    async def _restore_settled(self, directive: Directive) -> None:
        """With no operator to tell that older writers have ended."""
        await self._fence.until_settled()
        await self._restorer.restore(directive)

    # --- go ---

    async def _go(self, directive: Directive) -> None:
        at, attempt = self._at, directive.attempt
        if directive.through_store is not None and at.link.told_to_go() < attempt:
            agreed = await self.store_mode.reach(
                directive, prepare=self._preparing.prepare, restore=self._restore_settled
            )
            if agreed is None:
                return
            directive = agreed
        resume = directive.resume or at.journal.entry.resume
        if at.link.told_to_go() < attempt:
            self.behind.cancel()
            at.may_publish = at.may_publish and at.journal.entry.fence_attempt == attempt
            if directive.fast:
                await self._stop_for_fast(directive)
            if at.journal.entry.restored_attempt < attempt:
                await self._restorer.restore(directive)
            await self._fence.check_before_go(attempt)
            at.settled = at.overtaken = False
            at.ship_now.set()  # nobody may count this rank's word of prepare as its last
            await self._shipping.give_up_leftovers()
            for name in (contract.FILE_PROGRESS, contract.FILE_STOP_WISH):
                (at.link.run / name).unlink(missing_ok=True)
            keep_trail(at)
            at.begin_progress()
            at.journal.note(world_of_go=directive.world_size)
            begin_trail(at)
            tell_interval(at, directive.interval_seconds)
            at.link.go(go_message(at, directive, resume))
            take_place(at, directive)
        state = at.supervisor
        over = state is not None and state.trainer.attempt == attempt and not at.is_training
        if not over or directive.through_store is not None:
            # With its trainer over already, the agent notices that next.
            at.set_phase(SidecarPhase.TRAINING)
        if self._storing is not None:
            if at.journal.entry.fence_attempt < attempt and resume is not None:
                self.behind.start(
                    partial(
                        self._storing.claim_late,
                        attempt=attempt,
                        world_size=directive.world_size,
                        parent=self._storing.recalling.parent_for(resume),
                    )
                )
            elif not at.may_publish:
                self.behind.start(self._storing.recalling.recover)

    async def _stop_for_fast(self, directive: Directive) -> None:
        at = self._at
        at.set_phase(SidecarPhase.STOPPING)
        at.link.stop(Stop(attempt=directive.attempt - 1, grace_seconds=directive.grace_seconds))
        await until_stopped(at, directive.attempt - 1)
        at.fetching = 0
        await self._looking.look(gone=True)
        at.settled = True

    # --- stop and release ---

    async def _stop(self, directive: Directive) -> None:
        at = self._at
        self.behind.cancel()
        at.set_phase(SidecarPhase.STOPPING)
        if not at.site.config.obeys_stop:  # such a trainer reads a step there, or nothing
            (at.link.run / contract.FILE_STOP_WISH).touch()
        at.link.stop(Stop(attempt=directive.attempt, grace_seconds=directive.grace_seconds))
        await until_stopped(at, directive.attempt)
        await self._looking.once_more()
        at.settled = True
        at.set_phase(SidecarPhase.EXITED)
        if self._storing is not None and not at.may_publish:
            self.behind.start(partial(self._publish_again, directive))
        await self.ending.drain(of=directive)
        await self.ending.say_ending()

    async def _publish_again(self, directive: Directive) -> None:
        """A stop can come at any point of an attempt: what was saved needs a fence all the same."""
        at, storing, attempt = self._at, self._storing, directive.attempt
        if storing is None:
            return
        entry = at.journal.entry
        if entry.fence_attempt == attempt:
            await storing.recalling.recover()
        elif (
            at.link.told_to_go() >= attempt > entry.refused_attempt
            and at.fence is not None
            and entry.resume is not None
        ):
            # It trained, and the store had not answered yet.
            await storing.claim_late(
                attempt=attempt,
                world_size=directive.world_size,
                parent=storing.recalling.parent_for(entry.resume),
            )
        else:
            # Nothing trained in it; what the attempt before left is completed under its own names.
            if at.fence is not None:
                await self._preparing.name_leftovers(directive)
            await storing.claim_and_list(directive, prove=False)

    async def _release(self, directive: Directive) -> None:
        at = self._at
        at.link.stop(Stop(attempt=directive.attempt, grace_seconds=None))
        await self.ending.set_outcome(Outcome.COMPLETE)
        await self._fence.release()
        at.link.release(Release(message=contract.MESSAGE_RELEASED))
        at.set_phase(SidecarPhase.DRAINED)
