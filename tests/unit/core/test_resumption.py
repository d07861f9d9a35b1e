"""What the operator makes of a sidecar's findings about a resume."""

from __future__ import annotations

import pytest
from kit.observations import running, with_report
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.rules.divergence import Kind
from rtj_api.rules.replay import Lost, ReplayState
from rtj_api.status import ConditionType
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed

DRIFT = wire.ReplayView(
    state=ReplayState.DRIFT,
    compared=9,
    step=21,
    lost=Lost.SCHEDULER,
    message="step 21: learning rate was 0.0002 and is 1e-05",
)
NAN = wire.DivergenceView(
    kind=Kind.NOT_FINITE, step=26, message="the loss is not a finite number since step 26"
)


def found(observed: Observed, rank: int, **fields: object) -> Observed:
    return with_report(observed, rank, lambda report: report.model_copy(update=fields))


def stopped(observed: Observed, **fields: object) -> Observed:
    problem = wire.Problem(reason=Reason.TRAINING_DIVERGED, message="stopped", since=observed.now)
    return found(observed, 1, phase=wire.SidecarPhase.FAILED, problem=problem, **fields)


def test_a_drift_is_told_in_status_event_and_condition_and_training_goes_on() -> None:
    plan = decide(found(running(), 1, replay=DRIFT))
    assert plan.status is not None
    told = plan.status.checkpoint.resume_replay
    assert told is not None
    assert (told.state, told.lost, told.step) == ("Drift", "scheduler", 21)
    assert [(n.type, n.reason) for n in plan.notes] == [("Warning", Reason.RESUMED_OTHERWISE)]
    assert plan.status.is_true(ConditionType.DEGRADED)
    assert plan.status.attempt == 1


def test_the_worst_of_the_ranks_is_told() -> None:
    match = wire.ReplayView(state=ReplayState.MATCH, compared=9)
    plan = decide(found(found(running(), 0, replay=match), 1, replay=DRIFT))
    assert plan.status is not None
    assert plan.status.checkpoint.resume_replay is not None
    assert plan.status.checkpoint.resume_replay.state == "Drift"


def test_a_diverged_training_is_started_again_on_the_jobs_budget() -> None:
    plan = decide(stopped(running(), divergence=NAN))
    assert plan.status is not None
    assert plan.status.current is not None
    current = plan.status.current
    assert (plan.status.attempt, current.cause) == (2, Reason.TRAINING_DIVERGED)
    assert current.charge == Charge.USER


@pytest.mark.parametrize(
    ("fields", "policy"), [({"divergence": NAN}, "Hold"), ({"replay": DRIFT}, "RollBack")]
)
def test_it_is_held_where_a_person_wants_that(fields: dict[str, object], policy: str) -> None:
    plan = decide(stopped(running(on_divergence=policy), **fields))
    assert plan.status is not None
    assert plan.status.hold is not None
    assert plan.status.hold.reason == Reason.TRAINING_DIVERGED
    assert plan.status.hold.retry_at is None
    assert plan.status.attempt == 1
