"""`rtj run`: the operator's part for one rank, on this machine.

The same agent and supervisor as in a pod; here are only the decisions, each printed with its
reason. Must never start a trainer before the save to resume from is chosen and restored, and never
end while a finished save is not durable, unless waiting for it is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.rules.resume import NoChoice
from rtj_api.wire import (
    SEQ,
    Directive,
    Phase,
    Probe,
    Release,
    Report,
    Resume,
    SidecarPhase,
    TrainerState,
    Wanted,
)
from rtj_sidecar.agent import Agent
from rtj_sidecar.config import Site
from rtj_sidecar.runs.records import Outcome
from rtj_sidecar.stores.base import StoreProblem

from rtj_cli.bars import Bars, Say
from rtj_cli.decisions import (
    Budget,
    End,
    after_end,
    beginning,
    choice,
    fast_choice,
    label,
)
from rtj_cli.following import Teller
from rtj_cli.place import Place, start_supervisor
from rtj_cli.refusals import FAILED, HELD, NOT_DURABLE, Ended, asked_for, failed

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class LocalRun:
    """One invocation."""

    site: Site
    place: Place
    command: list[str]
    say: Say
    max_restarts: int = 10
    allow_scratch: bool = False
    take_over: bool = False
    again: bool = False
    hold_seconds: float = 600.0
    probe: Probe | None = None
    resume_from: str | None = None
    agent: Agent = field(init=False)
    bars: Bars = field(init=False)
    supervisor: subprocess.Popen[bytes] | None = None
    attempt: int = 0
    stopping: bool = False
    _is_new: bool = True  # nothing was prepared yet: a person may have mended the probe
    _killed_at: float | None = None

    # --- life ---

    async def run(self) -> int:
        """The exit code."""
        self.agent, self.bars = Agent(self.site), Bars(say=self.say)
        await self.agent.start()
        working = asyncio.create_task(self.agent.run())
        teller = Teller(self.agent.station.reporter, self.bars, self.say)
        telling = asyncio.create_task(teller.run())
        loop = asyncio.get_running_loop()
        for number in FORWARDED:
            loop.add_signal_handler(number, self._hear, number)
        self.supervisor = start_supervisor(self.place, self.command)
        deciding = asyncio.create_task(self._decide())
        try:
            await asyncio.wait({deciding, working}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()  # an error of the agent itself
            return deciding.result()
        except Ended as ended:
            self.say(str(ended))
            return ended.code
        finally:
            await self._leave(deciding, working, telling)

    async def _leave(self, *tasks: asyncio.Task[object]) -> None:
        self.place.link.kill(up_to=max(self.attempt, 1))
        self.place.link.release(Release(message=contract.MESSAGE_RELEASED))
        if self.supervisor is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self.supervisor.wait, 15)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.bars.close()
        await self.agent.close()
        # A later invocation must not take this one's word for its own.
        for name in (contract.FILE_STOP, contract.FILE_RELEASE):
            (self.place.link.run / name).unlink(missing_ok=True)

    def _hear(self, number: int) -> None:
        name = signal.Signals(number).name
        running = self._report.trainer.state is TrainerState.RUNNING
        if number in ENDING:
            if self.stopping and running:
                self.say(f"{name} again: the trainer is killed")
                self.place.link.kill(up_to=self.attempt)
                return
            self.stopping = True
            grace = self.site.config.trainer_grace_seconds
            self.say(f"{name}: passed on to the trainer, which has {grace:g} s; again kills it")
            self._killed_at = time.monotonic() + grace
        if self.supervisor is not None and running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.supervisor.pid, number)

    @property
    def _report(self) -> Report:
        return self.agent.station.reporter.current

    async def _until(self, fact: Callable[[Report], object]) -> Report:
        """The first report of which `fact` is true. Raises Ended when stopped meanwhile."""
        sequence: int | None = None
        while True:
            report = await self.agent.station.reporter.after(sequence, wait=0.5)
            sequence = report.sequence
            self.agent.station.contact = time.monotonic()
            if fact(report):
                return report
            self._check(report)

    def _check(self, report: Report) -> None:
        gone = self.supervisor is not None and self.supervisor.poll() is not None
        if gone and self.supervisor is not None and not self.stopping:
            raise Ended(FAILED, f"the supervisor ended with code {self.supervisor.returncode}")
        idle = report.trainer.state is not TrainerState.RUNNING
        if self.stopping and idle and report.phase not in _ENDS:
            raise Ended(130, "stopped before the trainer was started")
        late = self._killed_at is not None and time.monotonic() > self._killed_at
        if late and not idle:
            self.place.link.kill(up_to=self.attempt)

    # --- decisions ---

    async def _decide(self) -> int:
        budget = Budget(self.max_restarts)
        entry = self.agent.station.journal.entry
        self.attempt = max(entry.attempt, self.place.link.told_to_go()) + 1
        fast: Resume | None = None
        while True:
            if fast is not None:
                self.say(
                    f"attempt {self.attempt}: resumes in place from {label(fast)}, no byte moved"
                )
                self._direct(Phase.GO, resume=fast, fast=True)
            else:
                await self._start_slowly()
            ended = await self._until(self._has_ended)
            if ended.phase is SidecarPhase.FAILED:
                raise failed(ended)
            settled = await self._until(lambda r: not r.settling)
            budget = budget.after_progress(settled)
            decision = after_end(settled.trainer, stopping=self.stopping, budget=budget)
            if isinstance(decision, End):
                return await self._end(decision)
            delay = budget.delay_seconds()
            budget = budget.spend()
            self.say(
                f"attempt {self.attempt} ended: {decision.why}. Restart {budget.used} of "
                f"{budget.limit} without durable progress" + (f", in {delay:g} s" if delay else "")
            )
            await self._pause(delay)
            fast = fast_choice(
                self._report, run=self.site.config.run_id, probed=self.probe is not None
            )
            self.attempt += 1

    async def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._check(self._report)
            if self.stopping:
                raise Ended(130, "stopped while it waited to restart")
            await asyncio.sleep(min(0.1, left))

    def _has_ended(self, report: Report) -> bool:
        trainer = report.trainer
        over = trainer.state is TrainerState.EXITED and trainer.attempt == self.attempt
        return (
            report.phase is SidecarPhase.FAILED and trainer.state is not TrainerState.RUNNING
        ) or (over and report.phase in _ENDS)

    async def _start_slowly(self) -> None:
        """Prepare, choose, restore, go: as for a gang, for a gang of one."""
        while not await self._started():
            self.attempt += 1

    async def _started(self) -> bool:
        """False where the probe refused the save: then the next older one is tried."""
        wanted = None
        if self.resume_from is not None:
            wanted = Wanted(value=self.resume_from, asked=self.resume_from)
        self._direct(Phase.PREPARE, wanted=wanted)
        self._is_new = False
        report = await self._until(
            lambda r: (
                r.attempt == self.attempt
                and r.phase in (SidecarPhase.PREPARED, SidecarPhase.FAILED)
            )
        )
        await self._refuse(report)
        if wanted is not None and wanted.asked not in report.acted:
            resume, why = await self._begin_from(wanted)
        else:
            resume, why = await self._choose(report)
        self.say(f"attempt {self.attempt}: {beginning(resume)}: {why}")
        self._direct(Phase.RESTORE, resume=resume)
        report = await self._until(
            lambda r: (
                r.attempt == self.attempt
                and r.phase in (SidecarPhase.RESTORED, SidecarPhase.FAILED)
            )
        )
        problem = report.problem
        refused = (Reason.PROBE_FAILED, Reason.REQUIRED_KEY_MISSING)
        if problem is not None and problem.reason in refused and problem.retrying:
            if resume.asked is not None:
                raise Ended(HELD, f"{problem.reason}: {problem.message}")  # nothing else instead
            self.say(f"{problem.reason}: {problem.message}")
            return False
        await self._refuse(report)
        moved = report.checkpoint.restored_bytes
        if not resume.scratch:
            self.say(f"restored, {moved:,} bytes fetched")
        self._direct(Phase.GO, resume=resume)
        return True

    async def _refuse(self, report: Report) -> None:
        if report.phase is SidecarPhase.FAILED:
            raise failed(report)
        if report.run_complete and not self.again:
            await self._set_outcome(Outcome.COMPLETE)
            raise Ended(
                0,
                f"run {self.site.config.run_id} is complete: nothing to do. Train on with "
                "--again, or start another run with --run-id",
            )

    async def _begin_from(self, wanted: Wanted) -> tuple[Resume, str]:
        """What was asked for, as it was found and copied into the run; nothing else instead."""
        self.say(f"looks for {wanted.value}")
        report = await self._until(lambda r: r.found is not None and r.found.asked == wanted.asked)
        return asked_for(report.found, wanted=wanted, run_id=self.site.config.run_id, say=self.say)

    async def _choose(self, report: Report) -> tuple[Resume, str]:
        """Waits where a choice may become possible, for at most `hold_seconds`."""
        deadline = time.monotonic() + self.hold_seconds
        told = ""
        while True:
            found = choice(report, run=self.site.config.run_id, allow_scratch=self.allow_scratch)
            if not isinstance(found, NoChoice):
                for passed in found.passed_over:
                    self.say(f"passed over {passed.name}: {passed.why}")
                return found.resume, found.why
            causes = "; ".join(p.message for p in report.degraded)
            message = f"{found.reason}: {found.message}" + (f" ({causes})" if causes else "")
            if found.reason != Reason.STORE_UNREACHABLE or time.monotonic() > deadline:
                raise Ended(HELD, message)
            if message != told:
                self.say(message)
                told = message
            sequence = report.sequence
            report = await self.agent.station.reporter.after(sequence, wait=1.0)
            self.agent.station.contact = time.monotonic()
            self._check(report)
            if self.stopping:
                raise Ended(130, "stopped before the trainer was started")

    async def _end(self, decision: End) -> int:
        """Save what was saved, say in the run how it ended."""
        drain = self.site.config.drain_seconds
        drained = False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._until(lambda r: r.phase is SidecarPhase.DRAINED), drain)
            drained = True
        outcome = Outcome.COMPLETE if decision.success and drained else Outcome.RELEASED
        await self._set_outcome(outcome)
        step = self._report.checkpoint.last_durable_step
        last = "nothing is durable" if step is None else f"the last durable step is {step}"
        self.say(f"{decision.why}; {last}")
        if not drained:
            waiting = self._report.checkpoint.pending_saves
            self.say(
                f"{Reason.FINAL_CHECKPOINT_NOT_DURABLE}: {waiting} saves did not reach the store "
                f"within {drain:g} s; they are in {self.site.path} and the next run ships them"
            )
            return decision.code or NOT_DURABLE
        return decision.code

    async def _set_outcome(self, outcome: Outcome) -> None:
        at = self.agent.station
        if at.run is None or at.fence is None:
            return
        with contextlib.suppress(StoreProblem, TimeoutError):
            await asyncio.wait_for(
                asyncio.to_thread(at.run.set_outcome, fence=at.fence, outcome=outcome), 10
            )

    def _direct(
        self,
        phase: Phase,
        *,
        resume: Resume | None = None,
        fast: bool = False,
        wanted: Wanted | None = None,
    ) -> None:
        self.place.direct(
            Directive(
                job_uid=self.site.config.job_uid,
                pod_uid=self.site.pod_uid,
                rank=0,
                attempt=self.attempt,
                seq=SEQ[phase],
                phase=phase,
                world_size=1,
                coordinator="127.0.0.1",
                resume=resume,
                fast=fast,
                may_claim=self.take_over,
                probe=self.probe if phase in (Phase.RESTORE, Phase.GO) else None,
                forget_probes=phase is Phase.PREPARE and self._is_new,
                wanted=wanted,
            )
        )


_ENDS = (SidecarPhase.EXITED, SidecarPhase.DRAINING, SidecarPhase.DRAINED, SidecarPhase.FAILED)
