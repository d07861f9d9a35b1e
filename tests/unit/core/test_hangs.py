"""What the operator does about a gang that gives no sign of life."""

from __future__ import annotations

from typing import Any

import pytest
from kit.observations import later, running, with_report, with_view
from rtj_api import wire
from rtj_api.reasons import Charge, Reason
from rtj_api.rules.hang import Standing
from rtj_api.status import ConditionType, RestartKind
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed

PACE = wire.PaceView(usual=1.0, longest=1.5)


def stalled(
    observed: Observed, rank: int, standing: Standing = Standing.STILL, **fields: Any
) -> Observed:
    """Since now."""

    def change(report: wire.Report) -> wire.Report:
        stall = wire.StallView(standing=standing, since=observed.now, **{"pace": PACE, **fields})
        return report.model_copy(update={"stall": stall, "sent_at": observed.now})

    told = with_report(observed, rank, change)
    return with_view(told, rank, received_at=observed.now)


def both(observed: Observed, **fields: Any) -> Observed:
    return stalled(stalled(observed, 0, **fields), 1, **fields)


def heard(observed: Observed, seconds: float) -> Observed:
    """So much later, with the same words of both ranks heard again."""
    seen = later(observed, seconds)
    for rank in (0, 1):
        seen = with_view(seen, rank, last_contact=seen.now)
    return seen


def test_a_gang_that_does_nothing_is_started_again_in_place() -> None:
    seen = stalled(stalled(running(), 0, fell_at=999.9), 1, fell_at=998.0, stacks=["process 7: T"])
    early = decide(later(seen, 29.5))
    assert early.rule != "fault"
    assert early.wake_at is not None
    assert early.wake_at <= seen.now + 30
    plan = decide(later(seen, 30))
    assert plan.status is not None
    current = plan.status.current
    assert current is not None
    assert (current.cause, current.kind) == (Reason.TRAINER_HUNG, RestartKind.IN_PLACE)
    assert current.charge == Charge.USER
    assert current.culprit is not None
    assert current.culprit.rank == 1
    assert "process 7: T" in current.message
    assert current.fault_at == seen.now
    # What was told at once is known to be a hang only by then.
    assert current.detected_at == seen.now + 30


def test_a_stopped_rank_is_not_waited_for_as_long() -> None:
    seen = stalled(running(), 1, Standing.STOPPED)
    assert decide(later(seen, 5.5)).rule != "fault"
    plan = decide(later(seen, 6))
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.culprit is not None
    assert plan.status.current.culprit.rank == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda seen: with_report(seen, 0, lambda r: r.model_copy(update={"stall": None})),
        lambda seen: with_view(seen, 0, connected=False, disconnected_since=seen.now),
        lambda seen: with_report(seen, 0, lambda r: r.model_copy(update={"terminating": True})),
    ],
    ids=["one gives signs", "one is not heard", "one is being ended"],
)
def test_unknown_is_not_hung(change: Any) -> None:
    plan = decide(later(change(both(running())), 31))
    assert (
        plan.status is None
        or plan.status.current is None
        or (plan.status.current.cause != Reason.TRAINER_HUNG)
    )


def test_a_slow_save_is_no_hang() -> None:
    """Rank 0 writes, rank 1 waits for it."""
    seen = stalled(stalled(running(), 1), 0, Standing.WORKING)
    for seconds in (31, 60, 600, 1700):
        assert decide(heard(seen, seconds)).rule != "fault"
    assert decide(heard(seen, 1801)).rule == "fault"


def test_the_pods_clock_may_be_wrong() -> None:
    def ahead(report: wire.Report) -> wire.Report:
        assert report.stall is not None
        moved = {"since": report.stall.since - 100}
        return report.model_copy(
            update={
                "sent_at": report.sent_at - 100,
                "stall": report.stall.model_copy(update=moved),
            }
        )

    seen = both(running())
    for rank in (0, 1):
        seen = with_report(seen, rank, ahead)
    assert decide(later(seen, 29)).rule != "fault"
    assert decide(later(seen, 30.1)).rule == "fault"


def test_it_is_only_told_where_a_person_wants_that() -> None:
    plan = decide(later(both(running(on_hang="Report")), 31))
    assert plan.rule != "fault"
    assert plan.status is not None
    assert plan.status.is_true(ConditionType.DEGRADED)
    told = plan.status.condition(ConditionType.DEGRADED)
    assert told is not None
    assert told.reason == Reason.TRAINER_HUNG


def test_a_limit_of_ones_own() -> None:
    seen = both(running(hang_timeout_seconds=40.0), standing=Standing.WORKING)
    assert decide(heard(seen, 39)).rule != "fault"
    assert decide(heard(seen, 40)).rule == "fault"


def test_an_operator_that_was_paused_or_whose_clock_was_set_first_listens_again() -> None:
    """A short rest of the gang was the last that it had heard, an hour ago by its clock."""
    seen = both(running())
    assert decide(later(seen, 3600)).rule != "fault"
    assert decide(heard(seen, 3600)).rule == "fault", "it still says the same"
