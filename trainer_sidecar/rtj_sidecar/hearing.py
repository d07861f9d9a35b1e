"""What is heard in this pod: the supervisor's word, and the operator's directives.

Whoever wrote or sent it, a directive counts only when it is meant for this pod and lies above the
highest in the journal; a higher one ends what is still done for a lower. Must never carry out what
the journal does not hold yet, nor take the end of an older trainer for this attempt's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from rtj_api.reasons import Reason
from rtj_api.wire import Directive, Phase, SidecarPhase, SupervisorState, TrainerState

from rtj_sidecar.attempts import Attempts
from rtj_sidecar.directives import DirectiveFile, accept, signed
from rtj_sidecar.launching import interval_file, tell_interval
from rtj_sidecar.looking import Looking
from rtj_sidecar.opening import take_place
from rtj_sidecar.station import Station, log
from rtj_sidecar.stopping import is_asked, stop_file, tell_stop, told_stop
from rtj_sidecar.storemode import is_given_up
from rtj_sidecar.verifying import keep_trail

TICK_SECONDS = 0.01
FLIGHT_SECONDS = 0.5  # an end is told with what the flight recorder says, which names the culprit


class Hearing:
    """`load` takes up what lies in the directory, once it is this sidecar's to touch."""

    def __init__(
        self,
        station: Station,
        looking: Looking,
        attempts: Attempts,
        *,
        load: Callable[[], Awaitable[None]],
    ) -> None:
        self._at = station
        self._looking = looking
        self._attempts = attempts
        self._load = load
        self._wanted = asyncio.Event()
        self._handling: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._seen_end: tuple[str, int] | None = None
        self._interval_sent_at = 0.0
        self.ticked = time.monotonic()  # when the loop was last seen to run
        self.file = DirectiveFile(station.site.directive)

    def go_on(self) -> None:
        """Carry out the directive that the journal holds: this agent has come back."""
        self._wanted.set()

    def told(self, body: bytes, *, signature: str) -> None:
        """A directive that was pushed. Raises PermissionError, ValueError: see `directives`."""
        by = self.file.newest
        mine = by is not None and by.pod_uid == self._at.site.pod_uid
        self.hear_directive(signed(body, signature=signature, by=by if mine else None))

    async def watch_loop(self) -> None:
        """The supervisor's word and new directives, a hundred times a second."""
        at = self._at
        file = self.file
        seen: tuple[int, int] | None = None
        while True:
            self.ticked = time.monotonic()
            changed = at.link.state_changed(seen)
            if changed is not None:
                state = at.link.state()
                if state is not None:
                    seen = changed
                    await self._hear_supervisor(state)
            directive = file.read()
            if directive is not None:
                self.hear_directive(directive)
            if file.problem is not None:
                at.reporter.degrade("directive", Reason.INVALID_SPEC, file.problem)
            elif directive is not None:
                at.reporter.heal("directive")
            await asyncio.sleep(TICK_SECONDS)

    async def _hear_supervisor(self, state: SupervisorState) -> None:
        at = self._at
        is_end = state.trainer.state is TrainerState.EXITED
        # Before anything is concluded: a pushed directive may begin another attempt meanwhile.
        flights = await at.flights.look(
            at.link.run, state.flights, patience=FLIGHT_SECONDS if is_end else 0.0
        )
        first = at.supervisor is None
        at.supervisor = state
        trainer = state.trainer
        ended = trainer.state is TrainerState.EXITED
        news = ended and self._seen_end != (state.boot_id, trainer.attempt)
        mine = news and trainer.attempt == at.attempt and self._at.is_after_go
        fields: dict[str, object] = {
            "supervisor_seen": True,
            "trainer": trainer,
            "terminating": state.term_received_at is not None,
            "term_received_at": state.term_received_at,
            "lingering": state.lingering,
            "flights": flights,
            "can_stop": at.site.config.obeys_stop and bool(state.python),
        }
        if mine:
            fields |= {"phase": SidecarPhase.EXITED, "settling": True, "problem": None}
        if at.reporter.current.phase is SidecarPhase.FAILED:
            fields.pop("phase", None)
            fields.pop("problem", None)
        at.reporter.set(**fields)
        if news:
            self._seen_end = (state.boot_id, trainer.attempt)
            self._attempts.ending.logs.keep(trainer.attempt)
        if mine:
            log.info("trainer of attempt %d ended, code %s", trainer.attempt, trainer.exit_code)
            self._ending = asyncio.create_task(self._after_end())
        if first and not state.python:
            at.reporter.degrade(
                "supervisor",
                Reason.SUPERVISOR_MISSING,
                "the trainer's image has no python3 (3.8 or newer), so a shell supervises it: its "
                "output is not read (no log tail, steps only from saves and the progress file), "
                "and a save counts as finished only when it has not changed for a while. Add "
                "python3 to the image",
                retrying=False,
            )
        if first:
            # Only now have the user's own init containers ended: the directory is ours to touch.
            await self._load()
            self._looking.tell()

    async def _after_end(self) -> None:
        of = self._at.directive
        try:
            await self._attempts.ending.trainer_ended(of=of)
            if self._at.reporter.current.phase is not SidecarPhase.FAILED:
                await self._attempts.ending.drain(of=of)
        finally:
            if self._at.directive == of:
                self._at.reporter.set(settling=False)

    def hear_directive(self, directive: Directive) -> None:
        at = self._at
        refused = accept(
            directive,
            job_uid=self._at.site.config.job_uid,
            pod_uid=self._at.site.pod_uid,
            highest=at.directive,
        )
        if refused is None or refused.is_old:
            self._hear_interval(directive)
            self._hear_stop(directive)
        if refused is not None:
            level = logging.DEBUG if refused.is_old else logging.INFO
            log.log(level, "directive not accepted: %s", refused.why)
            return
        if directive.sent_at is not None:
            log.info("directive heard %.3f s after it was sent", time.time() - directive.sent_at)
        try:
            at.journal.write(directive=directive, done=False)
        except OSError as error:
            at.reporter.degrade("journal", Reason.DISK_FULL, f"the journal is not written: {error}")
            # Not accepted: the file is read again as if it were new.
            at.loop.call_later(1.0, self.hear_directive, directive)
            return
        at.contact = time.monotonic()
        at.reporter.heal("journal")
        take_place(at, directive)
        if directive.attempt > at.reporter.current.attempt:
            keep_trail(at)
            at.end_progress()
        now = at.reporter.current
        if is_given_up(now, directive):
            return  # The end of this attempt is passed on, with its reason.
        at.reporter.set(
            attempt=directive.attempt,
            seq=directive.seq,
            problem=None,
            settling=False,
            stop_step=told_stop(at, attempt=directive.attempt),
            phase=_first_phase(directive, now.phase),
        )
        for task in (self._handling, self._ending):
            if task is not None:
                task.cancel()
        self._wanted.set()

    def _hear_interval(self, directive: Directive) -> None:
        """It changes while a trainer runs, in a directive that is otherwise the one of its go."""
        at, seconds, sent_at = self._at, directive.interval_seconds, directive.sent_at or 0.0
        is_of_go = directive.phase is Phase.GO and directive.attempt == at.link.told_to_go()
        if seconds is None or not is_of_go or sent_at < self._interval_sent_at:
            return
        self._interval_sent_at = sent_at
        try:
            tell_interval(at, seconds)
        except OSError as error:
            text = f"{interval_file(at)} is not written: {error}"
            at.reporter.degrade("interval", Reason.DISK_FULL, text)
            at.loop.call_later(1.0, self._hear_interval, directive)
            return
        at.reporter.heal("interval")

    def _hear_stop(self, directive: Directive) -> None:
        """As the interval, a word for a trainer that runs; once."""
        at = self._at
        if not is_asked(at, directive):
            return
        try:
            tell_stop(at, directive)
        except OSError as error:
            text = f"{stop_file(at)} is not written: {error}"
            at.reporter.degrade("stop", Reason.DISK_FULL, text)
            at.loop.call_later(0.5, self._hear_stop, directive)
            return
        at.reporter.heal("stop")
        at.reporter.set(stop_step=directive.stop_step)

    async def carry_out_loop(self) -> None:
        """Carry out the highest directive; a higher one ends what is done for a lower."""
        at = self._at
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            directive = at.directive
            if directive is None or (at.supervisor is None and directive.phase is Phase.GO):
                # After a restart of the agent: first hear how the trainer is.
                await asyncio.sleep(TICK_SECONDS)
                self._wanted.set()
                continue
            self._handling = asyncio.create_task(self._attempts.carry_out(directive))
            await asyncio.wait({self._handling})
            if self._handling.cancelled():
                continue
            self._handling.result()
            if at.directive == directive:
                at.journal.note(done=True)
                self._notice_end()

    def _notice_end(self) -> None:
        """The trainer may have ended before this agent knew that it was told to go."""
        at = self._at
        state = at.supervisor
        if state is None or not self._at.is_after_go:
            return
        trainer = state.trainer
        over = trainer.state is TrainerState.EXITED and trainer.attempt == at.attempt
        if over and at.reporter.current.phase is SidecarPhase.TRAINING:
            at.reporter.set(phase=SidecarPhase.EXITED, settling=True, trainer=trainer)
            self._ending = asyncio.create_task(self._after_end())


# Told together with the attempt, so that no older phase is ever read as this attempt's.
_FIRST = {
    Phase.PREPARE: SidecarPhase.STOPPING,
    Phase.RESTORE: SidecarPhase.RESTORING,
    Phase.GO: SidecarPhase.RESTORED,
    Phase.STOP: SidecarPhase.STOPPING,
    Phase.RELEASE: SidecarPhase.DRAINING,
}


def _first_phase(directive: Directive, now: SidecarPhase) -> SidecarPhase:
    if directive.phase is Phase.GO and (directive.fast or now is not SidecarPhase.RESTORED):
        return SidecarPhase.STOPPING
    return _FIRST[directive.phase]
