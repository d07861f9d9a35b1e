"""What a directive asks for, step by step. Every step may be done again after a crash.

Must never let a trainer run between an accepted prepare and the go of that attempt, never restore
after the go, and never start from another save than the directive names.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import Coroutine
from pathlib import Path

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.rules.rendezvous import environment
from rtj_api.wire import (
    Directive,
    Go,
    Phase,
    Release,
    Resume,
    SidecarPhase,
    Stop,
)

from rtj_sidecar.adopting import adopt_directory
from rtj_sidecar.checkpoints.restore import RestoreError
from rtj_sidecar.holding import Holding
from rtj_sidecar.looking import Looking
from rtj_sidecar.outputs import Outputs
from rtj_sidecar.restorer import AttemptFailed, Restorer, until_stopped
from rtj_sidecar.runs.records import Outcome
from rtj_sidecar.selffence import SelfFence
from rtj_sidecar.shipping import Shipping
from rtj_sidecar.station import Station, log
from rtj_sidecar.storemode import StoreMode
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.storing import Storing

FILE_STOP_WISH = "trainer.stop"  # a trainer that looks for it may save and end
LIST_SECONDS = 15.0
HEAR_SECONDS, HEAR_NOTHING_SECONDS = 3.0, 0.5
SHARED_SECONDS = 5.0
SETTLE_SECONDS = 2.0
OUTCOME_SECONDS = 10.0
LOG_BYTES = 1 << 20


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
    ) -> None:
        self._at = station
        self._fence = fence
        self._looking = looking
        self._shipping = shipping
        self._holding = holding
        self._storing = storing
        self._restorer = Restorer(station, looking, storing)
        self._outputs = Outputs(station)
        self.store_mode = StoreMode(station, storing)
        self._behind: set[asyncio.Task[None]] = set()

    async def carry_out(self, directive: Directive) -> None:
        """Do what it asks for. Problems end in the report, never in an exception."""
        log.info("attempt %d: %s", directive.attempt, directive.phase.value)
        handlers = {
            Phase.PREPARE: self._prepare,
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
                self._at.fail(failed.reason, str(failed), ranks=failed.ranks)
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

    def cancel_background(self) -> None:
        """What an older directive still had running behind it."""
        for task in list(self._behind):
            task.cancel()

    def _later(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
        return task

    # --- prepare ---

    async def _prepare(self, directive: Directive) -> None:
        at = self._at
        if at.reporter.current.terminating:
            raise AttemptFailed(Reason.POD_DELETED, "this pod is being ended: it prepares nothing")
        self.cancel_background()
        at.may_publish = False
        at.settled = False
        at.overtaken = False
        at.fetching = 0
        at.reporter.set(listed=None, fence_owner=None, directory=None)
        at.set_phase(SidecarPhase.STOPPING)
        at.link.stop(Stop(attempt=directive.attempt - 1, grace_seconds=directive.grace_seconds))
        must_wait = directive.grace_seconds is not None or at.supervisor is None
        if self._fence.claims and must_wait:
            # The others have their grace, too; and the directory is touched only when the
            # user's own init containers have ended.
            await until_stopped(at, directive.attempt - 1)
        if not await self._fence.claim(directive):
            return
        claiming: asyncio.Task[None] | None = None
        if self._storing is not None and at.fence is None:
            # No save can need a name under an older fence: the store need not wait for the pod.
            claiming = self._later(self._storing.claim_and_list(directive))
        await until_stopped(at, directive.attempt - 1)
        at.set_phase(SidecarPhase.PREPARING)
        await self._look_once_more()
        at.settled = True
        self._looking.tell()
        await self._shipping.tell()
        if self._storing is not None:
            if claiming is None:
                await self._name_leftovers(directive)
                claiming = self._later(self._storing.claim_and_list(directive))
            await self._until_listed(claiming)
            if at.reporter.current.phase is SidecarPhase.FAILED:
                return
            # A beginning that a person asked for is being copied in, perhaps: nothing beside it.
            if self._storing.listed.is_set() and directive.wanted is None:
                await self._adopt()
                if at.reporter.current.phase is SidecarPhase.FAILED:
                    return
        at.tell_pins()
        at.set_phase(SidecarPhase.PREPARED)

    async def _look_once_more(self) -> None:
        """The last look after the trainer ended; a directory that cannot be read is waited for."""
        at = self._at
        for _ in range(3):
            await self._looking.look(gone=True)
            if not any(p.reason == Reason.DISK_FULL for p in at.reporter.current.degraded):
                break
            await asyncio.sleep(0.5)
        # On a shared directory the other pods' trainers may still be ending.
        deadline = time.monotonic() + SHARED_SECONDS
        while self._looking.is_unsettled and time.monotonic() < deadline:
            await asyncio.sleep(0.25)
            await self._looking.look(gone=True)

    async def _name_leftovers(self, directive: Directive) -> None:
        """Saves that finished but have no name get one under the fence of the attempt before."""
        at, holding = self._at, self._holding
        if holding is None or at.journal.entry.fence_attempt >= directive.attempt:
            return
        begun = time.monotonic()
        while directive.world_size > 1 and not holding.all_final():
            # A lost rank says nothing; the others are quick, and a new pod has nothing to tell.
            patience = HEAR_SECONDS if holding.has_unnamed else HEAR_NOTHING_SECONDS
            if time.monotonic() - begun > patience:
                break
            await asyncio.sleep(0.02)
        with contextlib.suppress(TimeoutError):
            # Names only: what has its parts is rolled forward under the new fence, at once.
            await asyncio.wait_for(holding.work(final=True, may_commit=False), LIST_SECONDS)
        await self._shipping.match_own()

    async def _until_listed(self, claiming: asyncio.Task[None]) -> None:
        """At most 15 s: then the choice goes on without the store, which is asked on; or, where
        it answered and a large save is still being proved, with what it listed: restore waits."""
        done, _ = await asyncio.wait({claiming}, timeout=LIST_SECONDS)
        if done:
            claiming.result()
            return
        has_answered = self._storing is not None and self._storing.listed.is_set()
        if has_answered:
            self._at.tell_candidates()
        self._at.reporter.set(listed=has_answered)

    async def _adopt(self) -> None:
        if self._holding is not None:
            writers = self._looking.writers(gone=True)
            await adopt_directory(
                self._at, shipping=self._shipping, holding=self._holding, writers=writers
            )

    # --- restore ---

    async def _restore_only(self, directive: Directive) -> None:
        at = self._at
        if self._storing is not None and not self._storing.vetted.is_set():
            # What is being fetched there is most likely what this restore needs.
            at.set_phase(SidecarPhase.RESTORING)
            await self._storing.vetted.wait()
        if self._storing is not None and not self._storing.listed.is_set():
            self.cancel_background()  # The choice was made without the store: see claim_late.
        if at.journal.entry.restored_attempt < directive.attempt:
            if at.link.told_to_go() >= directive.attempt:
                return  # After the go nothing is restored any more.
            await self._restorer.restore(directive)
        at.set_phase(SidecarPhase.RESTORED)
        if self._storing is not None and not at.may_publish:
            self._later(self._storing.recover())

    async def _restore_settled(self, directive: Directive) -> None:
        """With no operator to tell that older writers have ended."""
        await self._fence.until_settled()
        await self._restorer.restore(directive)

    # --- go ---

    async def _go(self, directive: Directive) -> None:
        at, attempt = self._at, directive.attempt
        if directive.through_store is not None and at.link.told_to_go() < attempt:
            agreed = await self.store_mode.reach(
                directive, prepare=self._prepare, restore=self._restore_settled
            )
            if agreed is None:
                return
            directive = agreed
        resume = directive.resume or at.journal.entry.resume
        if at.link.told_to_go() < attempt:
            self.cancel_background()
            at.may_publish = at.may_publish and at.journal.entry.fence_attempt == attempt
            if directive.fast:
                await self._stop_for_fast(directive)
            if at.journal.entry.restored_attempt < attempt:
                await self._restorer.restore(directive)
            await self._fence.check_before_go(attempt)
            at.settled = at.overtaken = False
            at.ship_now.set()  # nobody may count this rank's word of prepare as its last
            await self._shipping.give_up_leftovers()
            for name in (contract.FILE_PROGRESS, FILE_STOP_WISH):
                (at.link.run / name).unlink(missing_ok=True)
            at.begin_progress()
            at.link.go(self._go_message(directive, resume))
        state = at.supervisor
        over = state is not None and state.trainer.attempt == attempt and not at.is_training
        if not over or directive.through_store is not None:
            # With its trainer over already, the agent notices that next.
            at.set_phase(SidecarPhase.TRAINING)
        if self._storing is not None:
            if at.journal.entry.fence_attempt < attempt and resume is not None:
                self._later(
                    self._storing.claim_late(
                        attempt=attempt,
                        world_size=directive.world_size,
                        parent=self._storing.parent_for(resume),
                    )
                )
            elif not at.may_publish:
                self._later(self._storing.recover())

    async def _stop_for_fast(self, directive: Directive) -> None:
        at = self._at
        at.set_phase(SidecarPhase.STOPPING)
        at.link.stop(Stop(attempt=directive.attempt - 1, grace_seconds=directive.grace_seconds))
        await until_stopped(at, directive.attempt - 1)
        at.fetching = 0
        await self._looking.look(gone=True)
        at.settled = True

    def _go_message(self, directive: Directive, resume: Resume | None) -> Go:
        at, config = self._at, self._at.site.config
        path = at.journal.entry.resume_path
        resuming = resume is not None and not resume.scratch and path is not None
        step = "" if resume is None or resume.step is None or not resuming else str(resume.step)
        told = {
            contract.ENV_ATTEMPT: str(directive.attempt),
            contract.ENV_RESUME_STEP: step,
            contract.ENV_RESUME_CHECKPOINT: path if resuming and path else "",
            contract.ENV_CHECKPOINT_DIR: config.path,
            contract.ENV_PROGRESS_FILE: str(at.link.run / contract.FILE_PROGRESS),
            contract.ENV_STOP_FILE: str(at.link.run / FILE_STOP_WISH),
        }
        arguments = [_expand(word, told) for word in config.resume_args] if resuming else []
        told[contract.ENV_RESUME_ARGS] = shlex.join(arguments)
        rendezvous = environment(
            config.framework,
            rank=directive.rank,
            world_size=directive.world_size,
            procs_per_replica=config.procs_per_replica,
            coordinator=directive.coordinator or "127.0.0.1",
            attempt=directive.attempt,
            port=directive.rendezvous_port,
            run_id=config.run_id,
        )
        return Go(
            attempt=directive.attempt,
            env={**rendezvous, **told},
            extra_args=arguments,
        )

    # --- the end ---

    async def trainer_ended(self) -> None:
        """The trainer of this attempt ended by itself, or was stopped: save what it saved."""
        at = self._at
        await self._look_once_more()
        at.settled = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(
                self._shipping.name_the_last(seconds=SETTLE_SECONDS), SETTLE_SECONDS
            )
        at.reporter.set(settling=False)
        at.ship_now.set()
        self._later(self._send_log())

    async def drain(self) -> None:
        """Until nothing that finished here is left that is not durable."""
        at = self._at
        await asyncio.sleep(0)
        if self._outputs.is_due() or not self._shipping.is_drained():
            at.set_phase(SidecarPhase.DRAINING)
        while not self._shipping.is_drained():
            at.ship_now.set()
            await asyncio.sleep(0.1)
        while self._outputs.is_due():
            await self._outputs.ship(fence=self._shipping.fence)
            await asyncio.sleep(0.1)
        self._looking.tell()
        at.set_phase(SidecarPhase.DRAINED)

    async def _send_log(self) -> None:
        """The tail of an ended attempt outlives the pod in the store."""
        at, run = self._at, self._at.run
        if run is None or at.supervisor is None:
            return
        attempt = at.supervisor.trainer.attempt
        text = await asyncio.to_thread(_log_tail, at.link.run / contract.FILE_LOG)
        with contextlib.suppress(StoreProblem):
            await asyncio.to_thread(run.put_text, f"logs/{attempt}/{at.site.config.rank}.txt", text)

    async def _stop(self, directive: Directive) -> None:
        at = self._at
        self.cancel_background()
        at.set_phase(SidecarPhase.STOPPING)
        (at.link.run / FILE_STOP_WISH).touch()
        at.link.stop(Stop(attempt=directive.attempt, grace_seconds=directive.grace_seconds))
        await until_stopped(at, directive.attempt)
        await self._look_once_more()
        at.settled = True
        at.set_phase(SidecarPhase.EXITED)
        if self._storing is not None and not at.may_publish:
            self._later(self._publish_again(directive))
        await self.drain()
        await self.say_ending()

    async def say_ending(self) -> None:
        """The operator said that the job is over: the fence says it too, and another may go on."""
        directive = self._at.directive
        if directive is not None and directive.ending in (Outcome.FAILED, Outcome.RELEASED):
            await self._set_outcome(Outcome(directive.ending))

    async def _set_outcome(self, outcome: Outcome) -> None:
        run, fence = self._at.run, self._at.fence
        if self._storing is None or run is None or fence is None:
            return
        with contextlib.suppress(StoreProblem, TimeoutError):
            await asyncio.wait_for(
                asyncio.to_thread(run.set_outcome, fence=fence, outcome=outcome), OUTCOME_SECONDS
            )
            log.info("the run is %s", outcome.value)

    async def _publish_again(self, directive: Directive) -> None:
        """A stop can come at any point of an attempt: what was saved needs a fence all the same."""
        at, storing, attempt = self._at, self._storing, directive.attempt
        if storing is None:
            return
        entry = at.journal.entry
        if entry.fence_attempt == attempt:
            await storing.recover()
        elif at.link.told_to_go() >= attempt and at.fence is not None and entry.resume is not None:
            # It trained, and the store had not answered yet.
            await storing.claim_late(
                attempt=attempt,
                world_size=directive.world_size,
                parent=storing.parent_for(entry.resume),
            )
        else:
            # Nothing trained in it; what the attempt before left is completed under its own names.
            if at.fence is not None:
                await self._name_leftovers(directive)
            await storing.claim_and_list(directive, prove=False)

    async def _release(self, directive: Directive) -> None:
        at = self._at
        at.link.stop(Stop(attempt=directive.attempt, grace_seconds=None))
        await self._set_outcome(Outcome.COMPLETE)
        await self._fence.release()
        at.link.release(Release(message=contract.MESSAGE_RELEASED))
        at.set_phase(SidecarPhase.DRAINED)


def _expand(word: str, told: dict[str, str]) -> str:
    for name, value in told.items():
        word = word.replace(f"$({name})", value)
    return word


def _log_tail(path: Path) -> str:
    content = b""
    for name in (path.with_name(path.name + ".1"), path):
        with contextlib.suppress(OSError):
            content += name.read_bytes()
    return content[-LOG_BYTES:].decode("utf-8", "replace")
