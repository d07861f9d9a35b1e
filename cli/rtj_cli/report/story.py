"""What the page is made from, and the decisions that it tells of. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rtj_api.status import AttemptRecord, parse_time

from rtj_cli.jobs import Seen
from rtj_cli.views.timeline import begin_of, end_of, stages


@dataclass(frozen=True, slots=True)
class SavePoint:
    """A committed save of the run, as its record tells. `at`: Unix seconds."""

    name: str
    step: int | None
    loss: float | None
    attempt: int
    at: float
    state: str
    is_branch: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the operator's log: what was decided, by which rule, on what evidence."""

    at: float
    attempt: int | None
    rule: str
    why: str
    evidence: Mapping[str, Any]
    actions: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """`missing`: what could not be had, and why, as sentences."""

    job: Seen
    pods: Sequence[Mapping[str, Any]]
    events: Sequence[Mapping[str, Any]]
    saves: Sequence[SavePoint]
    decisions: Sequence[Decision]
    missing: Sequence[str]
    now: float

    @property
    def begin(self) -> float:
        """Of the time that the charts show."""
        records = self.job.status.attempts
        if records:
            return min(begin_of(record) for record in records)
        return self.job.created_at if self.job.created_at is not None else self.now

    @property
    def end(self) -> float:
        records = self.job.status.attempts
        ends = [end_of(self.job, record, now=self.now) for record in records]
        return max([self.begin + 1.0, *ends])


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of an attempt on the time axis. `stage`: of `Phases`, or training, or waiting."""

    stage: str
    begin: float
    end: float


def stretches(job: Seen, record: AttemptRecord, *, now: float) -> list[Stretch]:
    """Its stages one after the other from its fault on, then training until its end."""
    at, found = begin_of(record), []
    for stage, seconds in stages(record.phases).items():
        if seconds > 0:
            found.append(Stretch(stage, at, at + seconds))
        at += seconds
    end = end_of(job, record, now=now)
    rest = "training" if record.started else "waiting"
    if end > at:
        found.append(Stretch(rest, at, end))
    return found


def decisions_in(lines: Iterable[str], *, job: Seen) -> list[Decision]:
    """Of this job, from the operator's log (JSON lines). Other lines are passed over."""
    found: list[Decision] = []
    for line in lines:
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if not isinstance(told, dict) or told.get("message") != "decided":
            continue
        if told.get("job") != job.full_name or told.get("uid") != job.raw["metadata"].get("uid"):
            continue
        found.append(
            Decision(
                at=float(parse_time(told.get("time"))),
                attempt=told.get("attempt"),
                rule=str(told.get("rule")),
                why=str(told.get("why")),
                evidence=told.get("evidence") or {},
                actions=told.get("actions") or (),
            )
        )
    return found
