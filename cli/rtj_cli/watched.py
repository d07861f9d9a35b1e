"""The trainer of one `rtj run` as it is waited for: its reports, its signals, its end.

Must never wait without looking whether somebody asked to stop, nor end a trainer for silence that
the rules of `rules.hang` do not call one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from rtj_api.wire import Report, SidecarPhase, TrainerState
from rtj_sidecar.agent import Agent

from rtj_cli.bars import Say
from rtj_cli.blaming import hang_of
from rtj_cli.place import Place
from rtj_cli.refusals import FAILED, Ended

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ENDS = (SidecarPhase.EXITED, SidecarPhase.DRAINING, SidecarPhase.DRAINED, SidecarPhase.FAILED)


@dataclass
class Watched:
    """Belongs to the event loop's thread. `attempt`: the one that is made now."""

    agent: Agent
    place: Place
    say: Say
    supervisor: subprocess.Popen[bytes] | None = None
    attempt: int = 0
    stopping: bool = False
    _killed_at: float | None = None

    def hear(self, number: int) -> None:
        name = signal.Signals(number).name
        running = self.report.trainer.state is TrainerState.RUNNING
        if number in ENDING:
            if self.stopping and running:
                self.say(f"{name} again: the trainer is killed")
                self.place.link.kill(up_to=self.attempt)
                return
            self.stopping = True
            grace = self.agent.station.site.config.trainer_grace_seconds
            self.say(f"{name}: passed on to the trainer, which has {grace:g} s; again kills it")
            self._killed_at = time.monotonic() + grace
        if self.supervisor is not None and running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.supervisor.pid, number)

    @property
    def report(self) -> Report:
        return self.agent.station.reporter.current

    async def until(self, fact: Callable[[Report], object]) -> Report:
        """The first report of which `fact` is true. Raises Ended when stopped meanwhile."""
        sequence: int | None = None
        while True:
            report = await self.agent.station.reporter.after(sequence, wait=0.5)
            sequence = report.sequence
            self.agent.station.contact = time.monotonic()
            if fact(report):
                return report
            self.check(report)

    def check(self, report: Report) -> None:
        gone = self.supervisor is not None and self.supervisor.poll() is not None
        if gone and self.supervisor is not None and not self.stopping:
            raise Ended(FAILED, f"the supervisor ended with code {self.supervisor.returncode}")
        idle = report.trainer.state is not TrainerState.RUNNING
        if self.stopping and idle and report.phase not in _ENDS:
            raise Ended(130, "stopped before the trainer was started")
        late = self._killed_at is not None and time.monotonic() > self._killed_at
        if late and not idle:
            self.place.link.kill(up_to=self.attempt)

    async def pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.check(self.report)
            if self.stopping:
                raise Ended(130, "stopped while it waited to restart")
            await asyncio.sleep(min(0.1, left))

    def has_ended(self, report: Report) -> bool:
        trainer = report.trainer
        over = trainer.state is TrainerState.EXITED and trainer.attempt == self.attempt
        return (
            report.phase is SidecarPhase.FAILED and trainer.state is not TrainerState.RUNNING
        ) or (over and report.phase in _ENDS)

    async def until_ended(self) -> tuple[Report, str | None]:
        """The report of this attempt's end; and why it was ended, where it hung."""
        config = self.agent.station.site.config

        def hung(report: Report) -> str | None:
            limit = config.hang_timeout_seconds
            return hang_of(report, attempt=self.attempt, now=time.time(), timeout=limit)

        report = await self.until(lambda r: self.has_ended(r) or hung(r) is not None)
        why = None if self.has_ended(report) else hung(report)
        if why is not None:
            self.say(f"attempt {self.attempt} {why}")
        if why is not None and config.restarts_hung:
            self.place.link.kill(up_to=self.attempt)
        else:
            why = None  # it is only told, once an attempt
        return await self.until(self.has_ended), why
