"""The history of attempts: what each cost, from the fault to the first new step.

Pure functions from a status to its next `attempts` list. Must never be read by a rule: history
explains, it does not decide.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.status import (
    MAX_ATTEMPTS,
    AttemptRecord,
    CurrentAttempt,
    Phases,
    ResumeDecision,
    Status,
)


def _span(start: float | None, end: float | None) -> float | None:
    if start is None or end is None:
        return None
    return round(max(0.0, end - start), 6)


def phases_of(current: CurrentAttempt, *, resume: ResumeDecision | None) -> Phases:
    """Seconds of each stage that this attempt has passed; together, the time from the fault to
    the last of them.

    Some moments are told by a sidecar's clock, others are when the operator came to look: a stage
    whose end was noted late was over, at the latest, when the next one was.
    """
    chosen_at = resume.at if resume is not None and resume.attempt == current.attempt else None
    scheduled_at = current.scheduled_at
    if scheduled_at is not None and current.not_before is not None:
        scheduled_at = max(scheduled_at, current.not_before)  # kept pods only waited
    ends = (
        ("detect", current.detected_at),
        ("decide", current.recorded_at),
        ("back_off", current.not_before),
        ("schedule", scheduled_at),
        ("prepare", current.prepared_at if chosen_at is None else chosen_at),
        ("restore", current.restored_at),
        ("start", current.training_at),
        ("warm_up", current.first_step_at),
    )
    known = [(stage, at) for stage, at in ends if at is not None]
    begin = current.recorded_at if current.fault_at is None else current.fault_at
    spans: dict[str, float] = {}
    for index, (stage, _) in enumerate(known):
        end = max(begin, min(at for _, at in known[index:]))
        spans[stage] = round(end - begin, 6)
        begin = end
    if current.fault_at is None:  # nothing failed: what was not lost was not found either
        spans = {k: v for k, v in spans.items() if k not in ("detect", "decide")}
    return Phases(**spans)


def with_record(status: Status) -> Status:
    """`attempts` with the current attempt's record brought up to date."""
    current = status.current
    if current is None:
        return status
    resume = status.resume if status.is_started else None
    old = next((r for r in status.attempts if r.attempt == current.attempt), None)
    record = (
        old
        or AttemptRecord(
            attempt=current.attempt,
            kind=current.kind,
            cause=current.cause,
            culprit=current.culprit,
            recorded_at=current.recorded_at,
        )
    ).model_copy(
        update={
            "started": resume is not None,
            "from_step": resume.step if resume is not None else None,
            "phases": phases_of(current, resume=resume),
        }
    )
    if old is not None:
        records = [record if r.attempt == record.attempt else r for r in status.attempts]
    else:
        records = [*status.attempts, record]
    return status.model_copy(update={"attempts": records[-MAX_ATTEMPTS:]})


def with_end(status: Status, *, at: float, by: str) -> Status:
    """`attempts` with the current attempt's record closed. A record once closed stays so."""
    current = status.current
    records = []
    for record in status.attempts:
        is_idle_look = not record.started and record.cause == Reason.HOLD_ENDED
        if is_idle_look and current is not None and record.attempt == current.attempt:
            continue  # a hold that looked again and stayed: no history
        if current is not None and record.attempt == current.attempt and record.ended_at is None:
            reached = status.progress.step if record.started else None
            update = {"ended_at": at, "ended_by": by, "to_step": reached}
            record = record.model_copy(update=update)
        records.append(record)
    return status.model_copy(update={"attempts": records})


def with_loss(status: Status, *, written_at: float | None, reached: int | None) -> Status:
    """The current record with what the fault cost: `reached` is the step the attempt before it
    had made, `written_at` when the save that is resumed was finished."""
    current, resume = status.current, status.resume
    if current is None or resume is None:
        return status
    steps = None
    if reached is not None and (resume.scratch or resume.step is not None):
        steps = max(0, reached - (resume.step or 0))
    update = {"lost_steps": steps, "lost_seconds": _span(written_at, current.fault_at)}
    records = [
        r.model_copy(update=update) if r.attempt == current.attempt else r for r in status.attempts
    ]
    return status.model_copy(update={"attempts": records})
