"""What status shows: the printed phase, the conditions, and when a change is worth a write.

Every status write passes through `finished`, so what is shown can never disagree with what is
decided. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.status import (
    CheckpointStatus,
    Condition,
    ConditionType,
    CurrentAttempt,
    JobPhase,
    Progress,
    Status,
)

from rtj_operator.core import ledger, resumption, spares
from rtj_operator.core.conditions import is_training, next_conditions, with_condition
from rtj_operator.core.gang import Gang
from rtj_operator.core.observed import JobView
from rtj_operator.core.policy import Policy

_STAGES = {
    Reason.PENDING,
    Reason.BACKING_OFF,
    Reason.PREPARING,
    Reason.RESTORING,
    Reason.STARTING,
    Reason.TRAINING,
    Reason.DRAINING,
}


def _next_phase(gang: Gang) -> JobPhase:
    status = gang.status
    if status.is_true(ConditionType.COMPLETE):
        return JobPhase.SUCCEEDED
    if status.is_true(ConditionType.FAILED):
        return JobPhase.FAILED
    if status.hold is not None:
        suspended = status.hold.reason == Reason.SUSPENDED
        return JobPhase.SUSPENDED if suspended else JobPhase.HELD
    current = status.current
    if current is None:
        return JobPhase.PENDING
    is_let_go = status.is_started and gang.through_store
    if is_let_go or (status.is_started and (is_training(gang) or current.training_at is not None)):
        return JobPhase.RUNNING
    if status.starts > (1 if status.is_started else 0):
        return JobPhase.RESTARTING
    if status.is_started:
        restored = current.restored_at is not None
        return JobPhase.STARTING if restored else JobPhase.RESTORING
    return (
        JobPhase.STARTING if all(m.pod and m.pod.node for m in gang.members) else (JobPhase.PENDING)
    )


def finished(gang: Gang) -> Status:
    """The status to write for what `gang.status` decides: records, conditions and phase in step."""
    status = ledger.with_record(gang.status)
    return status.model_copy(
        update={
            "conditions": next_conditions(gang),
            "phase": _next_phase(gang),
            "observed_generation": gang.job.generation,
            "spares": spares.shown(gang),
        }
    )


def initial_conditions(job: JobView, *, now: float) -> Status:
    """The status of a job whose spec cannot even be read: Accepted=False, all else unknown."""
    problem = job.problem
    conditions: list[Condition] = list(job.status.conditions)
    reason = problem.reason if problem is not None else Reason.INVALID_SPEC
    message = problem.message if problem is not None else "the spec cannot be read"
    known = [
        (ConditionType.ACCEPTED, False, reason, message),
        (ConditionType.RUNNING, False, reason, message),
        (ConditionType.COMPLETE, False, Reason.NOT_COMPLETE, ""),
        (ConditionType.FAILED, False, Reason.NOT_FAILED, ""),
    ]
    for kind, value, why, text in known:
        conditions = with_condition(
            conditions,
            kind=kind,
            status=value,
            reason=why,
            message=text,
            generation=job.generation,
            now=now,
        )
    return job.status.model_copy(
        update={"conditions": conditions, "observed_generation": job.generation}
    )


def _loud(checkpoint: CheckpointStatus) -> CheckpointStatus:
    """The part of it that is worth a write at once."""
    is_wrong = resumption.is_otherwise(checkpoint)
    return CheckpointStatus(
        last_durable_name=checkpoint.last_durable_name,
        last_verdict_time=checkpoint.last_verdict_time,
        resume_loss=checkpoint.resume_loss if resumption.is_outside(checkpoint) else None,
        resume_replay=checkpoint.resume_replay if is_wrong else None,
    )


def _timeless(current: CurrentAttempt | None) -> CurrentAttempt | None:
    if current is None:
        return None
    return current.model_copy(update={"stall_seconds": None, "stalls": None})


def _quiet(status: Status) -> Status:
    """What is left when all that changes by itself is taken away."""
    return status.model_copy(
        update={
            "progress": Progress(),
            "attempts": [],
            "checkpoint": _loud(status.checkpoint),
            "conditions": [c.model_copy(update={"message": ""}) for c in status.conditions],
            "shown_at": None,
            "ledger": None,
            "interval": None,
            "current": _timeless(status.current),
        }
    )


def _is_recovering(status: Status) -> bool:
    """An attempt after the first start is on its way to its first step: each stage that it passes
    is soon overtaken by the next."""
    current = status.current
    if current is None or status.hold is not None or status.is_terminal or current.through_store:
        return False
    has_run_before = status.starts > (1 if status.is_started else 0)
    return has_run_before and current.first_step_at is None


def _unusual(status: Status) -> Status:
    """What is left of a quiet status when the ordinary stages of a recovery are taken away: what
    a person has to act upon, and what a rule may need after the operator's death."""
    conditions = [
        c
        for c in status.conditions
        if not (c.type == ConditionType.RUNNING and c.reason in _STAGES)
        and not (c.type == ConditionType.CHECKPOINT_FRESH and c.status != "False")
    ]
    taken = {"phase": JobPhase.RESTARTING, "current": None, "spares": None}
    return status.model_copy(update={**taken, "conditions": conditions})


def needs_refresh(old: Status, new: Status, *, now: float, policy: Policy) -> tuple[bool, float]:
    """Whether the difference is worth a write now, and if not, when it will be.

    Conditions, stages and newly durable saves at once; progress and wordings every
    `refresh_seconds`. The stages of a recovery are shown once, with its first step; a slow one
    every `stage_seconds`.
    """
    if old == new:
        return False, float("inf")
    before, after = _quiet(old), _quiet(new)
    if before == after:
        wait = policy.refresh_seconds
    elif _is_recovering(new) and _unusual(before) == _unusual(after):
        wait = policy.stage_seconds
    else:
        return True, now
    due = (old.shown_at or 0.0) + wait
    return now >= due, due
