"""What `rtj run` makes of a trainer that fails again, or that hangs: by the operator's own rules.

On one machine no rank can be moved, so of the three things that may be to blame only the save is
tried otherwise: the one before it. Must never condemn a save: it is passed over, and the sidecar
marks it when an older one gets past the point. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rtj_api.reasons import Charge
from rtj_api.rules import exits
from rtj_api.rules.blame import End as Ends
from rtj_api.rules.blame import Factor, diagnose
from rtj_api.rules.ends import kind_of
from rtj_api.rules.flight import missing
from rtj_api.rules.hang import Pace, Stall, hanging
from rtj_api.rules.suspicion import point_beyond
from rtj_api.status import MAX_INCIDENTS, Incident, Suspicion
from rtj_api.wire import Report, Resume, Suspect, TrainerState

SHOWN_LINES = 4
REMEDY = "Correct it and run the command again: it begins from the newest save"


@dataclass(frozen=True, slots=True)
class Trial:
    """Remembered since the last durable step: the faults, and the saves that they speak against.
    `varied`: what this attempt does otherwise than the one before."""

    incidents: tuple[Incident, ...] = ()
    suspicions: tuple[Suspicion, ...] = ()
    varied: str | None = None

    def after_progress(self) -> Trial:
        """Durable work was made: the faults are over, a suspect save stays passed over."""
        return Trial(suspicions=self.suspicions)

    @property
    def passed_over(self) -> Mapping[str, str]:
        """By name: why a save is not tried."""
        return {
            s.name: f"suspect since attempt {s.attempt} ({s.alike}{s.where}); an older one is tried"
            for s in self.suspicions
        }

    @property
    def suspects(self) -> list[Suspect]:
        """For the sidecar, which marks them."""
        return [
            Suspect(
                name=s.name,
                past_step=point_beyond(s.past_step, alike=s.alike),
                why=f"{s.alike}{s.where}, in attempt {s.attempt}",
            )
            for s in self.suspicions
        ]


@dataclass(frozen=True, slots=True)
class Judged:
    """`ends`: no restart helps. `why`: one sentence, empty where nothing is known."""

    trial: Trial
    ends: Ends | None = None
    why: str = ""


def judged(trial: Trial, report: Report, *, resume: Resume, attempt: int, now: float) -> Judged:
    """After an end of its trainer that was a fault of its own. `resume`: what it began from."""
    trainer, progress = report.trainer, report.progress
    end = exits.from_returncode(trainer.exit_code if trainer.exit_code is not None else -9)
    kind = kind_of(end, tail=trainer.tail, error=trainer.error, out_of_memory=trainer.oom_kills > 0)
    ran = None
    if trainer.started_at is not None and trainer.ended_at is not None:
        ran = max(0.0, trainer.ended_at - trainer.started_at)
    incident = Incident(
        attempt=attempt,
        alike=kind.alike[:128],
        charge=str(Charge.USER),
        save=resume.name,
        from_step=resume.step,
        step=progress.step if progress.first_step_at is not None else None,
        ran_seconds=ran,
        varied=trial.varied,
        at=now,
    )
    found = diagnose(
        incident,
        origin=kind.origin,
        before=trial.incidents,
        can_roll_back=has_older(report, resume),
        can_move=False,
    )
    suspicions = () if found.withdrawn else trial.suspicions
    if found.vary is Factor.SAVE and found.suspect is not None:
        new = Suspicion(
            name=found.suspect, past_step=incident.step, attempt=attempt, alike=incident.alike
        )
        suspicions = (*(s for s in suspicions if s.name != new.name), new)
    known = Trial(
        incidents=(*trial.incidents, incident)[-MAX_INCIDENTS:],
        suspicions=suspicions,
        varied=found.vary,
    )
    return Judged(known, found.end, found.why)


def has_older(report: Report, resume: Resume) -> bool:
    """A save before the one that was resumed could be."""
    names = [c.name for c in report.candidates]
    if resume.name not in names:
        return False
    older = report.candidates[names.index(resume.name) + 1 :]
    return any(c.durable and c.invalid is None and c.full_state is not False for c in older)


def hang_of(report: Report, *, attempt: int, now: float, timeout: float | None) -> str | None:
    """What to say of a hang that has lasted long enough; None where the trainer can go on."""
    told, trainer = report.stall, report.trainer
    if told is None or trainer.attempt != attempt or trainer.state is not TrainerState.RUNNING:
        return None
    pace = Pace(usual=told.pace.usual, longest=told.pace.longest, survived=told.pace.survived)
    stall = Stall(
        standing=told.standing,
        since=told.since,
        pace=pace,
        fell_at=told.fell_at,
        stacks=tuple(told.stacks),
    )
    found = hanging({0: stall}, timeout=timeout)
    if found is None or now < found.since + found.limit:
        return None
    absent = missing({view.process: [view.flight] for view in report.flights})
    found = replace(found, why=absent.why) if absent is not None else found
    doing = "; ".join(line.strip() for line in told.stacks[:SHOWN_LINES])
    return (
        f"hung: no step, no line and no moving save for {found.limit:.0f} s, which is longer than "
        f"this training ever takes; {found.why}"
        + (f". What it was doing: {doing}" if doing else "")
    )
