"""What `rtj run` decides when a trainer has ended. Pure; the rules are the operator's.

Must never start from nothing by accident: that is `rtj_api.rules.resume`'s to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rtj_api.rules import exits
from rtj_api.rules.resume import Chosen, Facts, NoChoice, choose
from rtj_api.wire import Report, Resume, TrainerView, TrialState

NOT_EXECUTED = (126, 127)
HOW_TO_ALLOW = "allow step 0 with --allow-scratch"
PROBE_REMEDY = "Nothing was marked. Correct --probe or what it runs, and run the command again"


@dataclass(frozen=True, slots=True)
class Budget:
    """Restarts since the last durable progress. `step`: the durable step when last looked at."""

    limit: int
    used: int = 0
    step: int | None = None
    name: str | None = None

    def after_progress(self, report: Report) -> Budget:
        """Refilled where something newer is durable than ever before; what is made again after a
        step back is not."""
        seen = report.checkpoint
        step, name = seen.last_durable_step, seen.last_durable_name
        if name in (None, self.name):
            return self
        if step is not None and self.step is not None and step <= self.step:
            return self
        return Budget(self.limit, 0, step, name)

    @property
    def is_spent(self) -> bool:
        return self.used >= self.limit

    def spend(self) -> Budget:
        return replace(self, used=self.used + 1)

    def delay_seconds(self, *, initial: float = 1.0, maximum: float = 60.0) -> float:
        """Before the next restart: none before the first, then 1, 2, 4 … seconds."""
        if self.used == 0:
            return 0.0
        return min(maximum, initial * 2.0 ** min(self.used - 1, 60))


@dataclass(frozen=True, slots=True)
class Restart:
    why: str


@dataclass(frozen=True, slots=True)
class End:
    """The trainer's end is the end. `code` is what `rtj run` exits with."""

    code: int
    why: str
    success: bool = False


def exit_code(trainer: TrainerView) -> int:
    """As a shell reports it."""
    if trainer.exit_code is None:
        return 137
    return exits.from_returncode(trainer.exit_code).code


def after_end(
    trainer: TrainerView, *, stopping: bool, budget: Budget, hung: str | None = None
) -> Restart | End:
    """Restart or end. `stopping`: somebody asked this run to stop. `hung`: why it was ended."""
    code = exit_code(trainer)
    if trainer.container_restarted:
        what = "the supervisor was killed under the trainer"
    else:
        end = exits.from_returncode(code if trainer.exit_code is None else trainer.exit_code)
        verdict = exits.judge(end, out_of_memory=trainer.oom_kills > 0)
        what = verdict.message if verdict is not None else "exit code 0"
    what = hung or what
    if stopping:
        return End(code, f"stopped as asked: {what}")
    if code == 0 and not trainer.container_restarted and hung is None:
        return End(0, "the trainer finished", success=True)
    if code in NOT_EXECUTED:
        return End(code, what)
    if budget.is_spent:
        return End(code, f"{what}; no restart is left ({budget.limit} without durable progress)")
    return Restart(what)


def choice(
    report: Report, *, run: str, allow_scratch: bool, suspects: Mapping[str, str] | None = None
) -> Chosen | NoChoice:
    """Which save the next attempt starts from. `suspects`: by name, why one is not tried."""
    durable = any(c.durable for c in report.candidates)
    return choose(
        Facts(
            run=run,
            world_size=1,
            candidates=report.candidates,
            listed=bool(report.listed),
            pinned={0: report.pinned},
            urls={},
            last_durable_step=report.checkpoint.last_durable_step,
            last_durable_name=report.checkpoint.last_durable_name,
            ever_durable=durable or report.checkpoint.last_durable_name is not None,
            allow_scratch=allow_scratch,
            scratch_asked=allow_scratch,
            how_to_allow=HOW_TO_ALLOW,
            probe_remedy=PROBE_REMEDY,
            suspects=suspects or {},
        )
    )


def fast_choice(report: Report, *, run: str, probed: bool = False) -> Resume | None:
    """The save for a restart that moves no byte; None where the slow path must be taken.

    `probed`: a probe has to pass on it first."""
    if report.fence is None or not report.pinned:
        return None
    usable = (c for c in report.candidates if c.invalid is None and c.full_state is not False)
    best = next(usable, None)
    if best is None or best.name not in report.pinned:
        return None
    trial = report.trial
    has_passed = trial is not None and (trial.name, trial.state) == (best.name, TrialState.PASSED)
    if best.failed_probe is not None or (probed and not has_passed):
        return None
    return Resume(run=run, name=best.name, step=best.step, durable=best.durable)


def label(resume: Resume) -> str:
    """A save as a person is told of it."""
    step = "unknown step" if resume.step is None else f"step {resume.step}"
    return f"{resume.name} ({step})"


def beginning(resume: Resume) -> str:
    """What an attempt begins from, as a sentence goes on."""
    return "starts at step 0" if resume.scratch else f"resumes from {label(resume)}"
