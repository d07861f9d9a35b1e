"""A trainer that does not load what it is given is stopped for a person, not started again."""

from __future__ import annotations

from kit.observations import running, with_job, with_report
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed


def given_up(report: wire.Report) -> wire.Report:
    problem = wire.Problem(
        reason=Reason.CHECKPOINT_IGNORED,
        message="the trainer saved step 5 although it was given step 20: checkpoint.resumeArgs",
        since=report.sent_at,
    )
    return report.model_copy(update={"phase": wire.SidecarPhase.FAILED, "problem": problem})


def held() -> Observed:
    observed = with_report(running(), 0, given_up)
    plan = decide(observed)
    assert plan.status is not None
    hold = plan.status.hold
    assert hold is not None
    assert (hold.reason, hold.retry_at) == (Reason.CHECKPOINT_IGNORED, None)
    assert "checkpoint.resumeArgs" in hold.message
    status = plan.status
    return with_job(observed, status=status)


def test_it_is_held_and_no_attempt_is_made_of_it() -> None:
    observed = held()
    job = observed.job
    assert job is not None
    assert job.status.attempt == 1
    assert job.status.restarts == 0
    again = decide(observed)
    assert again.status is None or again.status.attempt == 1


def test_a_changed_spec_ends_the_hold() -> None:
    observed = held()
    job = observed.job
    assert job is not None
    changed = with_job(observed, generation=job.generation + 1)
    plan = decide(changed)
    assert plan.status is not None
    assert plan.status.hold is None
    assert plan.status.attempt == 2
