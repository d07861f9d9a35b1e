"""Advice on how far apart saves should be, from a job's own ledger and saves."""

from __future__ import annotations

from typing import Any

import pytest
from kit.observations import applied, later, running, with_job, with_report
from rtj_api.reasons import Reason
from rtj_api.status import (
    CheckpointStatus,
    ConditionType,
    CurrentAttempt,
    Hold,
    IntervalAdvice,
    ResumeDecision,
    Status,
    TimeBuckets,
    TimeLedger,
)
from rtj_operator.core import governor
from rtj_operator.core.decide import decide
from rtj_operator.core.gang import Alarm, gather
from rtj_operator.core.observed import Observed
from rtj_operator.core.policy import Policy

MINUTE = 60.0


def ledger(*, uptime: float, interruptions: int, stall: float = 0, stalls: int = 0) -> TimeLedger:
    spent = TimeBuckets(productive=uptime - stall, checkpoint_stall=stall)
    return TimeLedger(
        since=0, until=uptime, seconds=spent, interruptions=interruptions, stalls=stalls
    )


def lived(book: TimeLedger, *, saves_every: float = 0, **checkpoint: Any) -> Observed:
    """A running gang whose past is `book`."""
    observed = running()
    assert observed.job is not None
    found = CheckpointStatus(**checkpoint)
    book = book.model_copy(update={"since": observed.now - book.until, "until": observed.now})
    status = observed.job.status.model_copy(update={"ledger": book, "checkpoint": found})
    for rank in (0, 1):
        observed = with_report(
            observed,
            rank,
            lambda r: r.model_copy(
                update={
                    "checkpoint": r.checkpoint.model_copy(update={"interval_seconds": saves_every})
                }
            ),
        )
    return with_job(observed, status=status)


def written(observed: Observed) -> Status:
    """The status as soon as there is a reason to write it, and once more half a minute later."""
    for _ in range(2):
        observed = later(observed, 31)
        plan = decide(observed)
        if plan.status is not None:
            observed = applied(observed, plan)
    assert observed.job is not None
    return observed.job.status


def advice_of(observed: Observed) -> IntervalAdvice:
    advice = written(observed).interval
    assert advice is not None
    return advice


def test_the_mean_is_that_of_c2_with_a_prior_of_its_size() -> None:
    book = ledger(uptime=600 * MINUTE, interruptions=3)
    big = governor.mtti(book, nodes=128)  # in series: 1730.77 min, more than a day
    assert big / MINUTE == pytest.approx((1440 + 600) / 4)
    huge = governor.mtti(book, nodes=2048)  # 108.17 min
    assert huge / MINUTE == pytest.approx((108.173 + 600) / 4, abs=1e-3)
    assert governor.mtti(ledger(uptime=0, interruptions=0), nodes=1) == 86_400


def test_daly_where_a_stall_was_seen() -> None:
    # M̂ = (1440 + 4560) / (1 + 39) = 150 min, C = 45 s: the vector of C3
    book = ledger(uptime=4560 * MINUTE, interruptions=39, stall=450, stalls=10)
    advice = advice_of(lived(book, saves_every=15 * MINUTE))
    assert advice.rule == "Daly"
    assert advice.mtti_seconds == pytest.approx(150 * MINUTE, rel=0.01)
    assert advice.stall_seconds == 45
    assert advice.recommended_seconds / MINUTE == pytest.approx(14.504, rel=0.01)
    assert advice.actual_seconds == 15 * MINUTE


def test_a_tenth_where_none_was_seen() -> None:
    advice = advice_of(lived(ledger(uptime=4560 * MINUTE, interruptions=39)))
    assert advice.rule == "MttiFraction"
    assert advice.stall_seconds is None
    assert advice.recommended_seconds / MINUTE == pytest.approx(15, rel=0.01)


@pytest.mark.parametrize(("every", "told"), [(15, False), (20, False), (60, True)])
def test_saves_too_rare_are_told(every: float, told: bool) -> None:
    book = ledger(uptime=4560 * MINUTE, interruptions=39, stall=450, stalls=10)
    status = written(lived(book, saves_every=every * MINUTE))
    condition = status.condition(ConditionType.DEGRADED)
    assert condition is not None
    assert (condition.reason == Reason.SAVES_TOO_RARE) is told
    if told:
        assert "status.interval.recommendedSeconds" in condition.message


@pytest.mark.parametrize(("minutes", "told"), [(1, False), (60, True)])
def test_a_store_that_is_too_slow_is_told(minutes: float, told: bool) -> None:
    advice = IntervalAdvice(
        mtti_seconds=150 * MINUTE,
        stall_seconds=45,
        durable_latency_seconds=minutes * MINUTE,
        actual_seconds=max(15.0, minutes) * MINUTE,
        recommended_seconds=max(14.5, minutes) * MINUTE,
        rule="Daly",
    )
    found = [reason for reason, _ in governor.troubles(Status(interval=advice))]
    assert found == ([Reason.STORE_TOO_SLOW] if told else [])


def training(**fields: Any) -> Status:
    current = CurrentAttempt(
        attempt=1, kind="First", cause="FirstStart", recorded_at=0, first_step_at=100
    )
    resume = ResumeDecision(attempt=1, at=0)
    return Status(attempt=1, current=current, resume=resume, **fields)


def test_work_at_risk_is_what_a_fault_would_lose() -> None:
    assert governor.work_at_risk(training(), now=160) == 60
    advice = IntervalAdvice(
        mtti_seconds=1, recommended_seconds=1, rule="Daly", durable_saved_at=150
    )
    assert governor.work_at_risk(training(interval=advice), now=160) == 10
    older = advice.model_copy(update={"durable_saved_at": 40})  # of the attempt before
    assert governor.work_at_risk(training(interval=older), now=160) == 60
    held = Hold(reason=Reason.SUSPENDED, message="", since=120)
    assert governor.work_at_risk(training(hold=held), now=160) is None
    assert governor.work_at_risk(Status(), now=160) is None


def test_the_way_of_a_save_is_kept_while_the_next_one_is_written() -> None:
    book = ledger(uptime=100, interruptions=0)
    end = 1_000.0
    facts = {"last_durable_step": 4, "last_durable_time": end, "last_durable_name": "a"}
    whole = Status(
        starts=1,
        ledger=book,
        checkpoint=CheckpointStatus(last_saved_step=4, last_saved_time=end - 30, **facts),
    )
    from_gang = _advised(whole)
    assert from_gang.durable_latency_seconds == 30
    assert from_gang.durable_saved_at == end - 30
    next_one = CheckpointStatus(last_saved_step=8, last_saved_time=end + 60, **facts)
    then = _advised(whole.model_copy(update={"checkpoint": next_one, "interval": from_gang}))
    assert then.durable_latency_seconds == 30
    assert then.durable_saved_at == end - 30


def _advised(status: Status) -> IntervalAdvice:
    observed = running()
    gang = gather(observed, policy=Policy(), alarm=Alarm(observed.now), status=status)
    advice = governor.advised(gang, status)
    assert advice is not None
    return advice
