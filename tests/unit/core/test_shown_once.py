"""What a recovery passes is shown once, with its first step; troubles at once."""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.status import (
    Condition,
    ConditionType,
    CurrentAttempt,
    JobPhase,
    ResumeDecision,
    Status,
)
from rtj_operator.core.policy import Policy
from rtj_operator.core.status import needs_refresh

POLICY = Policy()
AT = 1000.0


def recovering() -> Status:
    """Attempt 2, started at AT and shown then."""
    return Status(
        phase=JobPhase.RESTARTING,
        attempt=2,
        starts=2,
        restarts=1,
        current=CurrentAttempt(
            attempt=2, kind="InPlace", cause="TrainerCrashed", charge="user", recorded_at=AT
        ),
        resume=ResumeDecision(attempt=2, name="f1-n8-s8", step=8, at=AT),
        conditions=[a_condition(ConditionType.RUNNING, reason=Reason.STARTING)],
        shown_at=AT,
    )


def a_condition(kind: ConditionType, *, reason: Reason, status: str = "False") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message="", last_transition_time=AT)


def passing(old: Status, **stages: float) -> Status:
    assert old.current is not None
    return old.model_copy(
        update={
            "phase": JobPhase.RUNNING,
            "current": old.current.model_copy(update=stages),
            "conditions": [
                a_condition(ConditionType.RUNNING, reason=Reason.TRAINING, status="True")
            ],
        }
    )


def is_due(old: Status, new: Status, *, after: float) -> bool:
    return needs_refresh(old, new, now=AT + after, policy=POLICY)[0]


def test_a_start_waits_for_its_first_step() -> None:
    old = recovering()
    started = passing(old, training_at=AT + 0.5)
    assert needs_refresh(old, started, now=AT + 0.5, policy=POLICY) == (
        False,
        AT + POLICY.stage_seconds,
    )
    assert is_due(old, passing(old, training_at=AT + 0.5, first_step_at=AT + 1), after=1)


def test_a_slow_recovery_is_shown_all_the_same() -> None:
    old = recovering()
    started = passing(old, training_at=AT + 0.5)
    assert not is_due(old, started, after=POLICY.stage_seconds - 0.1)
    assert is_due(old, started, after=POLICY.stage_seconds)


def test_a_first_start_is_shown_at_once() -> None:
    old = recovering().model_copy(update={"starts": 1, "restarts": 0})
    assert is_due(old, passing(old, training_at=AT + 0.5), after=0.5)


def test_a_save_that_became_durable_is_written_at_once() -> None:
    old = recovering()
    durable = old.checkpoint.model_copy(update={"last_durable_name": "f1-n12-s12"})
    assert is_due(old, old.model_copy(update={"checkpoint": durable}), after=0.1)


def test_what_a_person_must_act_upon_is_told_at_once() -> None:
    old = recovering()
    for told in (
        a_condition(ConditionType.RUNNING, reason=Reason.QUOTA_EXCEEDED),
        a_condition(ConditionType.DEGRADED, reason=Reason.DISK_FULL, status="True"),
        a_condition(ConditionType.CHECKPOINT_FRESH, reason=Reason.CHECKPOINT_OVERDUE),
    ):
        assert is_due(old, old.model_copy(update={"conditions": [told]}), after=0.1), told


def test_a_trouble_that_is_over_is_told_at_once() -> None:
    old = recovering()
    blocked = old.model_copy(
        update={"conditions": [a_condition(ConditionType.RUNNING, reason=Reason.QUOTA_EXCEEDED)]}
    )
    assert is_due(blocked, old, after=0.1)
