"""Roll-back by bisection: what is asked for, how far it gets, and what ends it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from kit import observations
from kit.observations import applied, with_exit, with_job, with_report
from kit.scenarios_of_trouble import TROUBLES
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.status import Bisection, RestartKind, Status
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import Plan

running = functools.cache(observations.running)
SAVES = [f"f00000001-n0000000{n}-s0000000{n}" for n in range(1, 6)]


def saved(seen: Observed, *, count: int = 5) -> Observed:
    """Rank 0 lists so many durable saves."""
    told = [
        wire.Candidate(name=name, step=n, durable=True, needs=[0])
        for n, name in enumerate(SAVES[:count], start=1)
    ]
    return with_report(seen, 0, lambda r: r.model_copy(update={"candidates": told[::-1]}))


def asked(seen: Observed, *, request: str = "7", action: str = "bisect") -> Plan:
    wish = wire.Request(id=request, action=wire.RequestAction(action), save=SAVES[0])
    return decide(with_job(seen, request=wish))


def status_of(plan: Plan) -> Status:
    assert plan.status is not None
    return plan.status


def trying(found: Bisection, *, step: int | None = None, **ended: Any) -> Observed:
    """An attempt that stems from the save under trial; it made `step`, or ended."""
    seen = saved(running())
    assert seen.job is not None
    status = seen.job.status
    beginnings = status.beginnings.model_copy(
        update={"acted": [f"bisection {found.id}: {found.saves[found.trial]}"]}
    )
    seen = with_job(
        seen, status=status.model_copy(update={"bisection": found, "beginnings": beginnings})
    )
    if step is not None:

        def made(report: wire.Report) -> wire.Report:
            view = report.progress.model_copy(update={"step": step, "confirmed": True})
            return report.model_copy(update={"progress": view})

        seen = with_report(with_report(seen, 0, made), 1, made)
    return with_exit(seen, 1, **ended) if ended else seen


def found_of(*, good: int = -1, bad: int = 4) -> Bisection:
    return Bisection(id="7", saves=SAVES, steps=[1, 2, 3, 4, 5], good=good, bad=bad, run_steps=10)


def test_it_begins_in_the_middle_and_uses_no_budget() -> None:
    plan = asked(saved(running()))
    status = status_of(plan)
    assert status.bisection is not None
    assert (status.bisection.good, status.bisection.bad) == (-1, 4)
    assert status.beginnings.wanted is not None
    assert status.beginnings.wanted.value == SAVES[1]
    assert status.current is not None
    assert status.current.charge == Charge.INTENT
    assert decide(applied(saved(running()), plan)).rule != "wish"


@pytest.mark.parametrize("count", [0, 1])
def test_where_nothing_can_be_looked_for_it_is_refused(count: int) -> None:
    plan = asked(saved(running(), count=count))
    assert plan.notes[0].reason == Reason.REQUEST_REFUSED
    assert status_of(plan).bisection is None


@pytest.mark.parametrize(("step", "decided"), [(11, False), (12, True)])
def test_a_save_is_good_once_training_got_far_enough(step: int, decided: bool) -> None:
    plan = decide(trying(found_of(), step=step))
    assert (plan.rule == "bisection") == decided
    if decided:
        after = status_of(plan)
        assert after.bisection is not None
        assert after.bisection.good == 1
        assert after.beginnings.wanted is not None
        assert after.beginnings.wanted.value == SAVES[2]


def test_a_step_in_a_log_alone_is_not_enough() -> None:
    seen = trying(found_of(), step=50)

    def by_log(report: wire.Report) -> wire.Report:
        view = report.progress.model_copy(update={"source": "log", "confirmed": False})
        return report.model_copy(update={"progress": view})

    assert decide(with_report(with_report(seen, 0, by_log), 1, by_log)).rule != "bisection"


def test_a_fault_of_the_jobs_own_makes_it_bad() -> None:
    plan = decide(trying(found_of(), exit_code=1))
    after = status_of(plan)
    assert after.bisection is not None
    assert after.bisection.bad == 1
    assert after.current is not None
    assert (after.current.charge, after.current.kind) == (Charge.INTENT, RestartKind.IN_PLACE)


def test_a_fault_after_it_got_far_enough_leaves_it_good() -> None:
    """Both may be heard in one pass, where steps are fast."""
    after = status_of(decide(trying(found_of(), step=12, exit_code=1)))
    assert after.bisection is not None
    assert (after.bisection.good, after.bisection.bad) == (1, 4)
    assert after.beginnings.wanted is not None
    assert after.beginnings.wanted.value == SAVES[2]


def test_a_lost_pod_says_nothing_of_the_save() -> None:
    plan = decide(observations.without_pod(trying(found_of()), 1))
    assert plan.rule == "fault"
    assert status_of(plan).bisection == found_of()


def test_the_newest_good_save_trains_on_and_the_bad_are_known() -> None:
    plan = decide(trying(found_of(good=1, bad=3), exit_code=1))
    after = status_of(plan)
    assert after.bisection is None
    assert after.beginnings.wanted is not None
    assert after.beginnings.wanted.value == SAVES[1]
    assert [(s.name, s.is_proved) for s in after.suspicions] == [
        (SAVES[2], True),
        (SAVES[3], True),
        (SAVES[4], True),
    ]


def test_where_it_runs_already_it_goes_on() -> None:
    plan = decide(trying(found_of(good=1, bad=3), step=13))
    after = status_of(plan)
    assert after.bisection is None
    assert after.attempt == 1


def test_where_no_save_is_good_none_is_to_blame() -> None:
    plan = decide(trying(found_of(good=-1, bad=1), exit_code=1))
    after = status_of(plan)
    assert after.hold is not None
    assert after.hold.reason == Reason.DETERMINISTIC_FAILURE
    assert after.bisection is None
    assert after.suspicions == []


@pytest.mark.parametrize("action", ["restart", "resume-from"])
def test_another_request_ends_it(action: str) -> None:
    plan = asked(trying(found_of()), request="8", action=action)
    assert status_of(plan).bisection is None


def test_it_takes_as_many_restarts_as_halvings() -> None:
    world = TROUBLES["bisected"].run().world
    assert world.state.resume is not None
    assert world.state.resume.step == 20
    trials = [r for r in world.state.attempts if r.cause == Reason.BEGINNING_CHANGED]
    assert len(trials) == 4  # of ten saves: three halvings, and back to the best
