"""An operator whose clock is not that of the one before it: no wait becomes longer or negative."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.observations import applied, new_job, running, started, with_exit, with_job
from rtj_api.reasons import Reason
from rtj_api.status import (
    ElasticStatus,
    JobPhase,
    PendingGrowth,
    SlowMove,
    SlowRank,
    Status,
    Straggling,
)
from rtj_operator.core.clocks import brought_back
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed

AHEAD = 3600.0


def status_of(seen: Observed) -> Status:
    assert seen.job is not None
    return seen.job.status


def by_a_clock_behind(seen: Observed) -> Observed:
    """The next operator's now is an hour before the former one's; so are its nodes' views of it."""
    return replace(seen, now=seen.now - AHEAD)


def backing_off() -> Observed:
    """A second crash without progress: the next attempt waits."""
    seen = running(backoff_initial_seconds=60.0)
    budgets = status_of(seen).budgets.model_copy(update={"restarts_since_progress": 1})
    status = status_of(seen).model_copy(update={"budgets": budgets})
    seen = with_exit(with_job(seen, status=status), 0, exit_code=7)
    return applied(seen, decide(seen))


def test_a_back_off_is_not_an_hour_longer() -> None:
    seen = backing_off()
    before = status_of(seen)
    assert before.current is not None
    assert before.current.not_before is not None
    wait = before.current.not_before - seen.now
    assert 0 < wait <= 60
    other = by_a_clock_behind(seen)
    plan = decide(other)
    assert plan.rule == "clock"
    assert "3600 s ahead" in plan.why
    mended = status_of(applied(other, plan))
    assert mended.current is not None
    assert mended.current.not_before is not None
    assert mended.current.not_before - other.now == pytest.approx(wait, abs=0.01)
    assert mended.current.recorded_at <= other.now
    assert decide(applied(other, plan)).rule != "clock", "once"


def test_it_decides_nothing_else() -> None:
    seen = backing_off()
    other = by_a_clock_behind(seen)
    before, after = status_of(seen), status_of(applied(other, decide(other)))
    for name in ("attempt", "starts", "restarts", "placements", "budgets", "checkpoint"):
        assert getattr(after, name) == getattr(before, name), name


def test_a_suspend_waits_no_longer_than_its_limit() -> None:
    seen = running(suspend_wait_seconds=20.0)
    assert seen.job is not None
    assert seen.job.spec is not None
    seen = with_job(seen, spec=replace(seen.job.spec, suspend=True))
    seen = applied(seen, decide(seen))
    assert status_of(seen).pending_suspend is not None
    other = by_a_clock_behind(seen)
    other = applied(other, decide(other))
    late = decide(replace(other, now=other.now + 21))
    assert late.status is not None
    assert late.status.hold is not None
    assert late.status.hold.reason == Reason.SUSPENDED


@pytest.mark.parametrize("seconds", [-1.9, 0.0, 600.0])
def test_a_clock_that_agrees_or_is_ahead_of_the_last_write_is_left_alone(seconds: float) -> None:
    seen = running()
    shown = status_of(seen).shown_at
    assert shown is not None
    assert decide(replace(seen, now=shown + seconds)).rule != "clock"


def test_a_job_that_is_over_is_not_written_again() -> None:
    world = new_job()
    world.total_steps = 12
    op = started(world)
    op.run_until(lambda: world.state.phase == JobPhase.SUCCEEDED)
    op.run(30)
    seen = by_a_clock_behind(world.observe())
    assert decide(seen).status is None


def test_a_growth_and_a_straggler_wait_no_longer_than_they_may() -> None:
    seen = running()
    shown, now = status_of(seen).shown_at, seen.now
    assert shown is not None
    ahead = now + AHEAD
    elastic = ElasticStatus(
        size=1,
        wanted=2,
        since=ahead,
        reason=Reason.SCALED_DOWN,
        growing=PendingGrowth(size=2, since=ahead),
        not_before=ahead + 60,
    )
    straggling = Straggling(
        slow=SlowRank(rank=0, attempt=1, since=ahead, step=1),
        moved=SlowMove(rank=1, node="a", attempt=1, at=ahead, ratio=2.0),
    )
    status = status_of(seen).model_copy(
        update={"elastic": elastic, "straggling": straggling, "shown_at": ahead}
    )
    mended = brought_back(status, AHEAD, now=now)
    assert mended.elastic is not None
    assert mended.elastic.growing is not None
    assert (mended.elastic.since, mended.elastic.growing.since) == (now, now)
    assert mended.elastic.not_before == now + 60
    assert mended.straggling is not None
    assert mended.straggling.slow is not None
    assert mended.straggling.moved is not None
    assert (mended.straggling.slow.since, mended.straggling.moved.at) == (now, now)


def test_a_deadline_does_not_come_early_for_a_clock_that_wrote_once() -> None:
    """The job was resumed by a right clock; one that is ahead has only written since."""
    seen = running(active_deadline_seconds=1800.0)
    resumed = seen.now - 60
    ahead = {"resumed_at": resumed, "shown_at": seen.now + AHEAD}
    seen = with_job(seen, status=status_of(seen).model_copy(update=ahead))
    plan = decide(seen)
    assert plan.rule == "clock"
    after = applied(seen, plan)
    assert status_of(after).resumed_at == resumed
    assert decide(after).rule != "deadline"
