"""`rtj run`: the operator's part for one rank, on this machine.

The same agent and supervisor as in a pod; here are only the decisions, each printed with its
reason. Must never start a trainer before the save to resume from is chosen and restored, and never
end while a finished save is not durable, unless waiting for it is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from dataclasses import dataclass, field

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.rules.blame import End as Ends
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
    Wanted,
)
from rtj_sidecar.agent import Agent
from rtj_sidecar.config import Site
from rtj_sidecar.runs.records import Outcome

from rtj_cli.bars import Bars, Say
from rtj_cli.blaming import REMEDY, Trial, judged
from rtj_cli.decisions import (
    Budget,
    End,
    Restart,
    after_end,
    beginning,
    choice,
    exit_code,
    fast_choice,
    label,
)
from rtj_cli.ending import last_words, set_outcome
from rtj_cli.following import Teller
from rtj_cli.place import Place, start_supervisor
from rtj_cli.refusals import HELD, Ended, asked_for, failed
from rtj_cli.watched import FORWARDED, Watched


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
    at: Watched = field(init=False)
    trial: Trial = field(default_factory=Trial)
    resume: Resume = field(default_factory=lambda: Resume(scratch=True))
    _is_new: bool = True  # nothing was prepared yet: a person may have mended the probe

    # --- life ---

    async def run(self) -> int:
        """The exit code."""
        self.agent, self.bars = Agent(self.site), Bars(say=self.say)
        self.at = Watched(agent=self.agent, place=self.place, say=self.say)
        await self.agent.start()
        working = asyncio.create_task(self.agent.run())
        teller = Teller(self.agent.station.reporter, self.bars, self.say)
        telling = asyncio.create_task(teller.run())
        loop = asyncio.get_running_loop()
        for number in FORWARDED:
            loop.add_signal_handler(number, self.at.hear, number)
        self.at.supervisor = start_supervisor(self.place, self.command)
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
        self.place.link.kill(up_to=max(self.at.attempt, 1))
        self.place.link.release(Release(message=contract.MESSAGE_RELEASED))
        if self.at.supervisor is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self.at.supervisor.wait, 15)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.bars.close()
        await self.agent.close()
        # A later invocation must not take this one's word for its own.
        for name in (contract.FILE_STOP, contract.FILE_RELEASE):
            (self.place.link.run / name).unlink(missing_ok=True)

    # --- decisions ---

    async def _decide(self) -> int:
        budget = Budget(self.max_restarts)
        entry = self.agent.station.journal.entry
        self.at.attempt = max(entry.attempt, self.place.link.told_to_go()) + 1
        fast: Resume | None = None
        while True:
            if fast is not None:
                self.say(
                    f"attempt {self.at.attempt}: resumes in place from {label(fast)}, no byte moved"
                )
                self._direct(Phase.GO, resume=fast, fast=True)
            else:
                await self._start_slowly()
            ended, hung = await self.at.until_ended()
            if ended.phase is SidecarPhase.FAILED:
                raise failed(ended)
            settled = await self.at.until(lambda r: not r.settling)
            refilled = budget.after_progress(settled)
            self.trial = self.trial if refilled is budget else self.trial.after_progress()
            budget = refilled
            decision = after_end(
                settled.trainer, stopping=self.at.stopping, budget=budget, hung=hung
            )
            if isinstance(decision, Restart) and hung is None:
                decision = self._judged(settled, decision)
            if isinstance(decision, End):
                return await self._end(decision)
            delay = budget.delay_seconds()
            budget = budget.spend()
            self.say(
                f"attempt {self.at.attempt} ended: {decision.why}. Restart {budget.used} of "
                f"{budget.limit} without durable progress" + (f", in {delay:g} s" if delay else "")
            )
            await self.at.pause(delay)
            fast = None
            if not self.trial.suspicions:
                fast = fast_choice(
                    self.at.report, run=self.site.config.run_id, probed=self.probe is not None
                )
            self.at.attempt += 1

    def _judged(self, report: Report, decision: Restart) -> Restart | End:
        """By whether the fault came before, and where."""
        found = judged(
            self.trial, report, resume=self.resume, attempt=self.at.attempt, now=time.time()
        )
        self.trial = found.trial
        why = f"{decision.why}. {found.why}" if found.why else decision.why
        if found.ends is Ends.HOLD:
            return End(HELD, f"{why}. {REMEDY}")
        if found.ends is Ends.FAIL:
            return End(exit_code(report.trainer), f"{why}. {REMEDY}")
        return Restart(why)

    async def _start_slowly(self) -> None:
        """Prepare, choose, restore, go: as for a gang, for a gang of one."""
        while not await self._started():
            self.at.attempt += 1

    async def _started(self) -> bool:
        """False where the probe refused the save: then the next older one is tried."""
        wanted = None
        if self.resume_from is not None:
            wanted = Wanted(value=self.resume_from, asked=self.resume_from)
        self._direct(Phase.PREPARE, wanted=wanted)
        self._is_new = False
        report = await self.at.until(
            lambda r: (
                r.attempt == self.at.attempt
                and r.phase in (SidecarPhase.PREPARED, SidecarPhase.FAILED)
            )
        )
        await self._refuse(report)
        if wanted is not None and wanted.asked not in report.acted:
            resume, why = await self._begin_from(wanted)
        else:
            resume, why = await self._choose(report)
        self.say(f"attempt {self.at.attempt}: {beginning(resume)}: {why}")
        self._direct(Phase.RESTORE, resume=resume)
        report = await self.at.until(
            lambda r: (
                r.attempt == self.at.attempt
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
            await set_outcome(self.agent.station, Outcome.COMPLETE)
            raise Ended(
                0,
                f"run {self.site.config.run_id} is complete: nothing to do. Train on with "
                "--again, or start another run with --run-id",
            )

    async def _begin_from(self, wanted: Wanted) -> tuple[Resume, str]:
        """What was asked for, as it was found and copied into the run; nothing else instead."""
        self.say(f"looks for {wanted.value}")
        report = await self.at.until(
            lambda r: r.found is not None and r.found.asked == wanted.asked
        )
        return asked_for(report.found, wanted=wanted, run_id=self.site.config.run_id, say=self.say)

    async def _choose(self, report: Report) -> tuple[Resume, str]:
        """Waits where a choice may become possible, for at most `hold_seconds`."""
        deadline = time.monotonic() + self.hold_seconds
        told = ""
        while True:
            found = choice(
                report,
                run=self.site.config.run_id,
                allow_scratch=self.allow_scratch,
                suspects=self.trial.passed_over,
            )
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
            self.at.check(report)
            if self.at.stopping:
                raise Ended(130, "stopped before the trainer was started")

    async def _end(self, decision: End) -> int:
        """Save what was saved, say in the run how it ended."""
        drain = self.site.config.drain_seconds
        drained = False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.at.until(lambda r: r.phase is SidecarPhase.DRAINED), drain)
            drained = True
        outcome = Outcome.COMPLETE if decision.success and drained else Outcome.RELEASED
        await set_outcome(self.agent.station, outcome)
        said, code = last_words(
            decision, self.at.report, drained=drained, drain=drain, path=self.site.path
        )
        for line in said:
            self.say(line)
        return code

    def _direct(
        self,
        phase: Phase,
        *,
        resume: Resume | None = None,
        fast: bool = False,
        wanted: Wanted | None = None,
    ) -> None:
        if phase is Phase.GO and resume is not None:
            self.resume = resume
        self.place.direct(
            Directive(
                job_uid=self.site.config.job_uid,
                pod_uid=self.site.pod_uid,
                rank=0,
                attempt=self.at.attempt,
                seq=SEQ[phase],
                phase=phase,
                world_size=1,
                coordinator="127.0.0.1",
                resume=resume,
                fast=fast,
                suspects=self.trial.suspects if phase is Phase.GO else [],
                may_claim=self.take_over,
                probe=self.probe if phase in (Phase.RESTORE, Phase.GO) else None,
                forget_probes=phase is Phase.PREPARE and self._is_new,
                wanted=wanted,
            )
        )
