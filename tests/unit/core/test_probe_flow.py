"""How the operator goes on with a probe: who is told, what is not fast, what holds."""

from __future__ import annotations

from typing import Any

import pytest
from kit.observations import applied, running, with_exit, with_job, with_report
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.rules.quality import Quality
from rtj_operator.core import conditions
from rtj_operator.core.decide import decide
from rtj_operator.core.directives import desired_directive
from rtj_operator.core.gang import Alarm, Gang, gather
from rtj_operator.core.observed import Observed
from rtj_operator.core.policy import Policy

PROBE = wire.Probe(command=["python", "check.py"], timeout_seconds=60)
NEWEST = "f1-n2-s8"


def gang_of(seen: Observed) -> Gang:
    assert seen.job is not None
    return gather(seen, policy=Policy(), alarm=Alarm(0), status=seen.job.status)


def with_saves(seen: Observed, **fields: Any) -> Observed:
    """Rank 0 holds its fence and knows two durable saves, both pinned on every rank."""
    saves = [
        wire.Candidate(name=NEWEST, step=8, durable=True, needs=[0], **fields),
        wire.Candidate(name="f1-n1-s4", step=4, durable=True, needs=[0]),
    ]
    names = [save.name for save in saves]
    for rank in (0, 1):
        seen = with_report(seen, rank, lambda r: r.model_copy(update={"pinned": names}))
    update = {"fence": 1, "listed": True, "candidates": saves}
    return with_report(seen, 0, lambda r: r.model_copy(update=update))


def crashed(*, passed: str | None = None, probe: wire.Probe | None = PROBE) -> Observed:
    """Rank 1's trainer died; `passed`: the save that the probe has passed on."""
    seen = with_saves(running(probe=probe))
    if passed is not None:
        trial = wire.TrialReport(
            name=passed, state=wire.TrialState.PASSED, since=1.0, limit_seconds=60
        )
        seen = with_report(seen, 0, lambda r: r.model_copy(update={"trial": trial}))
    return with_exit(seen, 1, exit_code=1)


@pytest.mark.parametrize(
    ("passed", "probe", "is_fast"),
    [(None, None, True), (None, PROBE, False), ("f1-n1-s4", PROBE, False), (NEWEST, PROBE, True)],
)
def test_nobody_starts_before_the_probe_has_passed_on_that_very_save(
    passed: str | None, probe: wire.Probe | None, is_fast: bool
) -> None:
    plan = decide(crashed(passed=passed, probe=probe))
    assert plan.evidence["fast"] is is_fast
    if not is_fast:
        assert plan.evidence["notFast"] == "its probe has to pass first"


def directives(seen: Observed) -> list[wire.Directive]:
    gang = gang_of(seen)
    found = [desired_directive(gang, member) for member in gang.members]
    assert all(found)
    return [each for each in found if each is not None]


def test_rank_0_alone_is_told_and_only_where_a_save_is_named() -> None:
    seen = crashed()
    prepare = applied(seen, decide(seen))
    assert [d.phase for d in directives(prepare)] == [wire.Phase.PREPARE] * 2
    assert [d.probe for d in directives(prepare)] == [None, None]
    assert [d.forget_probes for d in directives(prepare)] == [False, False]  # a fault, no person
    assert [d.probe for d in directives(running(probe=PROBE))] == [PROBE, None]


def test_a_person_who_asks_for_a_restart_lets_every_save_try_again() -> None:
    request = wire.Request(id="1", action=wire.RequestAction.RESTART)
    seen = with_job(with_saves(running(probe=PROBE)), request=request)
    prepare = applied(seen, decide(seen))
    assert [d.forget_probes for d in directives(prepare)] == [True, False]


def refused(seen: Observed, *, retrying: bool = True) -> Observed:
    """The probe refused the save of this attempt, before any trainer started."""
    problem = wire.Problem(
        reason=Reason.PROBE_FAILED,
        message=f"{NEWEST}: `python check.py`: exit code 3",
        since=seen.now - 0.01,
        retrying=retrying,
    )
    update = {"phase": wire.SidecarPhase.FAILED, "problem": problem}
    return with_report(seen, 0, lambda r: r.model_copy(update=update))


def test_a_refused_save_makes_a_new_attempt_that_costs_the_user_nothing() -> None:
    seen = refused(with_saves(running(probe=PROBE)))
    plan = decide(seen)
    assert plan.status is not None
    current = plan.status.current
    assert current is not None
    assert (current.cause, current.charge) == (Reason.PROBE_FAILED, Charge.CHECKPOINT)
    assert "exit code 3" in current.message
    assert plan.status.budgets.restarts_since_progress == 0
    assert plan.status.hold is None
    assert plan.evidence["fast"] is False


@pytest.mark.parametrize("how", ["asked for", "the pods gave up"])
def test_where_no_other_save_may_be_tried_it_holds(how: str) -> None:
    seen = refused(with_saves(running(probe=PROBE)), retrying=how == "asked for")
    assert seen.job is not None
    status = seen.job.status
    if how == "asked for" and status.resume is not None:
        resume = status.resume.model_copy(update={"asked": "resumeFrom:f1-n2-s8"})
        seen = with_job(seen, status=status.model_copy(update={"resume": resume}))
    plan = decide(seen)
    assert plan.status is not None
    assert plan.status.hold is not None
    assert plan.status.hold.reason == Reason.PROBE_FAILED
    assert plan.status.hold.retry_at is None


def test_an_older_sidecar_that_does_not_know_the_probe_is_told_of() -> None:
    seen = running(probe=PROBE)
    assert seen.job is not None
    status = seen.job.status
    assert status.resume is not None
    named = status.resume.model_copy(update={"scratch": False, "name": NEWEST, "step": 8})
    seen = with_job(seen, status=status.model_copy(update={"resume": named}))
    gang = gang_of(seen)
    degraded = conditions.next_conditions(gang)
    (found,) = [c for c in degraded if c.type == "Degraded"]
    assert (found.status, found.reason) == ("True", Reason.PROBE_NOT_RUN)
    assert "sidecar" in found.message
    trial = wire.TrialReport(name=NEWEST, state=wire.TrialState.PASSED, since=1, limit_seconds=60)
    seen = with_report(seen, 0, lambda r: r.model_copy(update={"trial": trial}))
    degraded = conditions.next_conditions(gang_of(seen))
    assert [c.status for c in degraded if c.type == "Degraded"] == ["False"]


def test_what_a_resume_misses_is_in_status_and_an_event_once() -> None:
    seen = crashed(passed=NEWEST)
    seen = with_saves(seen, has={"optimizer": True, "rng": False}, world_size=2, layout="torch")
    plan = decide(seen)
    assert plan.status is not None
    shown = plan.status.checkpoint
    assert shown.resume_quality == Quality.PARTIAL
    assert shown.resume_message == "without random state"
    assert [n.reason for n in plan.notes].count(Reason.RESUMED_PARTIALLY) == 1
    again = with_job(seen, status=replace_checkpoint(seen, shown))
    plan = decide(again)
    assert [n.reason for n in plan.notes].count(Reason.RESUMED_PARTIALLY) == 0


def replace_checkpoint(seen: Observed, checkpoint: Any) -> Any:
    assert seen.job is not None
    return seen.job.status.model_copy(update={"checkpoint": checkpoint})
