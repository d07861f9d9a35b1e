"""What `rtj wait --for` means, and whether a job is there. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from rtj_api.status import ConditionType, JobPhase

from rtj_cli.jobs import Seen

FORMS = "Complete, Failed, Ended, Running, Suspended, Held, Durable=STEP, Step=STEP or Attempt=N"
_COUNTED = ("Durable", "Step", "Attempt")
_PLAIN = ("Complete", "Failed", "Ended", "Running", "Suspended", "Held")


class Outcome(StrEnum):
    """There: it holds now. Gone: it cannot come about any more."""

    THERE = "There"
    NOT_YET = "NotYet"
    GONE = "Gone"


@dataclass(frozen=True, slots=True)
class Goal:
    what: str
    count: int | None = None

    def __str__(self) -> str:
        return self.what if self.count is None else f"{self.what}={self.count}"


def goal_of(text: str) -> Goal:
    """Raises ValueError with the forms."""
    found = re.fullmatch(r"([A-Za-z]+)(?:=(\d+))?", text)
    if found is not None:
        named = found[1].capitalize()
        if named in _COUNTED and found[2] is not None:
            return Goal(named, int(found[2]))
        if named in _PLAIN and found[2] is None:
            return Goal(named)
    raise ValueError(f"--for {text}: write {FORMS}")


def outcome(job: Seen, goal: Goal) -> Outcome:
    if _holds(job, goal):
        return Outcome.THERE
    return Outcome.GONE if job.status.is_terminal else Outcome.NOT_YET


def _holds(job: Seen, goal: Goal) -> bool:
    status = job.status
    match goal.what:
        case "Complete":
            return status.is_true(ConditionType.COMPLETE)
        case "Failed":
            return status.is_true(ConditionType.FAILED)
        case "Ended":
            return status.is_terminal
        case "Running":
            return status.is_true(ConditionType.RUNNING)
        case "Suspended":
            return status.is_true(ConditionType.SUSPENDED)
        case "Held":
            return status.phase == JobPhase.HELD
        case "Durable":
            return _reached(status.checkpoint.last_durable_step, goal)
        case "Step":
            return _reached(status.progress.step, goal)
        case _:
            return _reached(status.starts and status.attempt, goal)


def _reached(at: int | None, goal: Goal) -> bool:
    return at is not None and goal.count is not None and at >= goal.count


def news(job: Seen) -> str:
    """One line that changes when something happens that a person would want to know."""
    status = job.status
    durable = status.checkpoint.last_durable_step
    saved = "nothing durable yet" if durable is None else f"step {durable} durable"
    return f"{status.phase.value} ({job.reason}), attempt {status.attempt}, {saved}"
