"""What the operator makes of a sidecar's findings about a resume."""

from __future__ import annotations

import pytest
from kit.observations import running, with_job, with_report
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.rules.divergence import Kind
from rtj_api.rules.replay import Lost, ReplayState
from rtj_api.status import ConditionType
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import Plan

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


NEWER = "f00000001-n00000009-s00000009"


def two_saves() -> Observed:
    """A newer save than the one that a running gang has made."""

    def with_newer(report: wire.Report) -> wire.Report:
        newer = report.candidates[0].model_copy(update={"name": NEWER, "step": 9})
        return report.model_copy(update={"candidates": [newer, *report.candidates]})

    return with_report(running(), 0, with_newer)


def suspects(plan: Plan) -> list[str]:
    assert plan.status is not None
    assert plan.status.attempt == 2
    return [s.name for s in plan.status.suspicions]


def test_a_save_that_was_made_after_the_loss_went_wrong_is_passed_over() -> None:
    seen = two_saves()
    plan = decide(stopped(seen, divergence=NAN.model_copy(update={"step": 9})))
    assert suspects(plan) == [NEWER]
    assert Reason.CHECKPOINT_SUSPECT in {note.reason for note in plan.notes}
    assert "after the loss went wrong" in plan.why


def test_one_that_was_made_before_that_is_no_suspect() -> None:
    seen = two_saves()
    assert suspects(decide(stopped(seen, divergence=NAN.model_copy(update={"step": 10})))) == []


def test_the_only_save_there_is_no_suspect() -> None:
    bad = NAN.model_copy(update={"step": 1})
    assert suspects(decide(stopped(running(), divergence=bad))) == []


def test_a_save_from_which_it_is_another_training_is_suspect_at_once() -> None:
    seen = two_saves()
    assert seen.job is not None
    assert seen.job.status.resume is not None
    given = {"scratch": False, "run": "ns/gpt", "name": NEWER, "step": 9}
    resume = seen.job.status.resume.model_copy(update=given)
    seen = with_job(seen, status=seen.job.status.model_copy(update={"resume": resume}))
    other = wire.ReplayView(state=ReplayState.DIVERGED, compared=4, step=10, message="loss")
    plan = decide(stopped(seen, replay=other))
    assert suspects(plan) == [NEWER]
    assert "another training" in plan.why
