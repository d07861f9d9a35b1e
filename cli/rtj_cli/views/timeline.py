"""`rtj timeline`: the attempts one after the other, why each was made, what it cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rtj_api.status import AttemptRecord, Culprit, Phases

from rtj_cli.jobs import Seen
from rtj_cli.views.words import clock, plural, span

STAGES = ("detect", "decide", "back_off", "schedule", "prepare", "restore", "start", "warm_up")
"""Of `Phases`, in the order in which they come about."""
LETTERS = {
    "detect": "d",
    "decide": "k",
    "back_off": "b",
    "schedule": "q",
    "prepare": "p",
    "restore": "r",
    "start": "s",
    "warm_up": "w",
}
WORK, WIDTH = "█", 40


def stages(phases: Phases) -> dict[str, float]:
    """Seconds of the stages that were passed, in order."""
    found = {stage: getattr(phases, stage) for stage in STAGES}
    return {stage: seconds for stage, seconds in found.items() if seconds is not None}


def begin_of(record: AttemptRecord) -> float:
    """When its fault happened, or when it was recorded: stages before the record count to it."""
    passed = stages(record.phases)
    return record.recorded_at - passed.get("detect", 0.0) - passed.get("decide", 0.0)


def end_of(job: Seen, record: AttemptRecord, *, now: float) -> float:
    if record.ended_at is not None:
        return record.ended_at
    return job.status.completion_time if job.status.completion_time is not None else now


def where(culprit: Culprit | None) -> str:
    """`rank 1 on node-b, exit code 137`."""
    if culprit is None:
        return ""
    parts = []
    if culprit.rank is not None:
        parts.append(f"rank {culprit.rank}")
    if culprit.node is not None:
        parts.append(f"on {culprit.node}")
    text = " ".join(parts)
    if culprit.exit_code is not None:
        text += f", exit code {culprit.exit_code}"
    if culprit.signature is not None:
        text += f", {culprit.signature}"
    return text.removeprefix(", ")


def row(job: Seen, record: AttemptRecord, *, now: float) -> dict[str, Any]:
    passed = stages(record.phases)
    end = end_of(job, record, now=now)
    newest = record.attempt == job.status.attempt
    to_step = record.to_step
    if to_step is None and newest and record.started:
        to_step = job.status.progress.step
    return {
        "attempt": record.attempt,
        "kind": record.kind.value,
        "cause": record.cause,
        "culprit": where(record.culprit),
        "message": None if record.culprit is None else record.culprit.message,
        "recordedAt": record.recorded_at,
        "started": record.started,
        "fromStep": record.from_step,
        "toStep": to_step,
        "lostSteps": record.lost_steps,
        "lostSeconds": record.lost_seconds,
        "stages": passed,
        "downSeconds": sum(passed.values()),
        "seconds": max(0.0, end - record.recorded_at),
        "wholeSeconds": max(0.0, end - begin_of(record)),
        "endedAt": record.ended_at,
        "endedBy": record.ended_by,
    }


def rows(job: Seen, *, now: float) -> list[dict[str, Any]]:
    return [row(job, record, now=now) for record in job.status.attempts]


def _steps(row: dict[str, Any]) -> str:
    begin = "" if row["fromStep"] is None else str(row["fromStep"])
    end = "" if row["toStep"] is None else str(row["toStep"])
    if not row["started"]:
        return "never started"
    return f"step {begin or 0} → {end or '?'}"


def bar(row: dict[str, Any], *, longest: float) -> str:
    """Stages by their letters, then work, in proportion to the longest attempt."""
    total = row["wholeSeconds"]
    if longest <= 0:
        return ""
    width = max(1, round(WIDTH * total / longest))
    text = ""
    for stage, seconds in row["stages"].items():
        cells = round(WIDTH * seconds / longest)
        text += LETTERS[stage] * max(1 if seconds >= 0.05 * total else 0, cells)
    return (text + WORK * max(0, width - len(text)))[:WIDTH] if row["started"] else text[:WIDTH]


def lines(job: Seen, *, now: float) -> list[str]:
    """Two or three lines an attempt, oldest first, and the legend."""
    told = rows(job, now=now)
    if not told:
        return ["no attempt yet"]
    longest = max(row["wholeSeconds"] for row in told)
    found: list[str] = []
    first = told[0]["attempt"]
    if first > 1:
        found.append(f"(attempts 1 to {first - 1} are no longer in status)")
    for each in told:
        found += _of_attempt(each, longest=longest, is_current=each["endedAt"] is None)
    letters = ", ".join(f"{LETTERS[s]} {s.replace('_', ' ')}" for s in STAGES)
    return [*found, "", f"{letters}, {WORK} training"]


def _of_attempt(row: dict[str, Any], *, longest: float, is_current: bool) -> Sequence[str]:
    head = f"#{row['attempt']:<3} {clock(row['recordedAt'])}  {row['kind']:<9} {row['cause']}"
    if row["culprit"]:
        head += f" ({row['culprit']})"
    body = f"     {_steps(row)}, {span(row['seconds'])}"
    if row["lostSteps"]:
        body += f", {plural(row['lostSteps'], 'step')} again"
    if row["stages"]:
        passed = " ".join(f"{s.replace('_', '-')} {span(v)}" for s, v in row["stages"].items() if v)
        body += f"; {span(row['downSeconds'])} to work: {passed}"
    found = [head, body, f"     {bar(row, longest=longest)}"]
    if row["message"]:
        found.insert(1, f"     {row['message']}")
    if row["endedBy"] and not is_current:
        found.append(f"     ended {clock(row['endedAt'])} by {row['endedBy']}")
    return found
