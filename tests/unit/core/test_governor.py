"""Advice on how far apart saves should be, from a job's own ledger and saves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.observations import applied, later, pod_of, running, with_job, with_pod, with_report
from rtj_api.reasons import Reason
from rtj_api.status import (
    AttemptRecord,
    CheckpointStatus,
    ConditionType,
    CurrentAttempt,
    Hold,
    IntervalAdvice,
    Phases,
    RestartKind,
    ResumeDecision,
    Status,
    TimeBuckets,
    TimeLedger,
)
from rtj_api.v1alpha1 import Interval
from rtj_operator.core import governor
from rtj_operator.core.decide import decide
from rtj_operator.core.gang import Alarm, gather
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import PatchDirective
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
    return lived_on(observed).job.status  # type: ignore[union-attr]


def lived_on(observed: Observed) -> Observed:
    """A status write, what the pods are told then, and another status write."""
    for _ in range(3):
        observed = later(observed, 31)
        plan = decide(observed)
        if plan.status is not None:
            observed = applied(observed, plan)
        for told in plan.actions:
            assert isinstance(told, PatchDirective)
            observed = with_pod(observed, told.directive.rank, directive=told.directive)
    return observed


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


def test_the_optimum_where_a_stall_was_seen() -> None:
    # M̂ = (1440 + 4560) / (1 + 39) = 150 min, C = 45 s: the vector of C3
    book = ledger(uptime=4560 * MINUTE, interruptions=39, stall=450, stalls=10)
    advice = advice_of(lived(book, saves_every=15 * MINUTE))
    assert advice.rule == "Exact"
    assert advice.mtti_seconds == pytest.approx(150 * MINUTE, rel=0.01)
    assert advice.stall_seconds == 45
    assert advice.recommended_seconds / MINUTE == pytest.approx(14.504, rel=0.01)
    assert advice.actual_seconds == 15 * MINUTE


def test_a_tenth_where_none_was_seen() -> None:
    advice = advice_of(lived(ledger(uptime=4560 * MINUTE, interruptions=39)))
    assert advice.rule == "MttiFraction"
    assert advice.stall_seconds is None
    assert advice.recommended_seconds / MINUTE == pytest.approx(15, rel=0.01)


@pytest.mark.parametrize(
    ("every", "told"),
    [
        (3, Reason.SAVES_TOO_OFTEN),
        (10, None),
        (15, None),
        (20, None),
        (60, Reason.SAVES_TOO_RARE),
    ],
)
def test_saves_too_rare_or_too_often_are_told(every: float, told: Reason | None) -> None:
    book = ledger(uptime=4560 * MINUTE, interruptions=39, stall=450, stalls=10)
    status = written(lived(book, saves_every=every * MINUTE))
    condition = status.condition(ConditionType.DEGRADED)
    assert condition is not None
    assert condition.reason == (told or Reason.NOTHING_DEGRADED)
    if told:
        assert "status.interval.recommendedSeconds" in condition.message
        assert "RTJ_CHECKPOINT_INTERVAL_SECONDS" in condition.message


def slow(*, minutes: float, share: float = 0.25, stall: float = 45) -> list[tuple[str, str]]:
    """Saves of 120 GB every 15 minutes, each durable after `minutes`."""
    advice = IntervalAdvice(
        mtti_seconds=150 * MINUTE,
        stall_seconds=stall,
        durable_latency_seconds=minutes * MINUTE,
        actual_seconds=15 * MINUTE,
        recommended_seconds=14.5 * MINUTE,
        rule="Exact",
        local_loss_share=share,
        save_bytes=120_000_000_000,
        upload_bytes_per_second=11e6,
    )
    return governor.troubles(Status(interval=advice))


def test_a_store_that_is_too_slow_is_told_with_what_it_needs() -> None:
    assert slow(minutes=1) == []
    ((reason, text),) = slow(minutes=180)
    assert reason == Reason.STORE_TOO_SLOW
    # The optimum for faults that lose the pods, every 600 minutes, is 29.5 minutes.
    assert "a save of 120 GB takes 3 h to become durable, and one should be every 30 min" in text
    assert "the upload needs 68 MB/s and has 11 MB/s" in text
    assert "maxUploadBytesPerSecond" in text


def test_a_slow_store_matters_by_how_often_the_pods_are_lost() -> None:
    assert slow(minutes=50, share=0.1) == []
    assert [reason for reason, _ in slow(minutes=50, share=1)] == [Reason.STORE_TOO_SLOW]


def test_saves_that_cost_nothing_still_need_a_bandwidth_that_is_a_number() -> None:
    """Saves made beside the steps stall them for nothing that can be measured."""
    ((reason, text),) = slow(minutes=180, stall=0.0)
    assert reason == Reason.STORE_TOO_SLOW
    assert "one should be every 30 s: the upload needs 4 GB/s" in text


def attempts(*kinds: RestartKind, cause: Reason = Reason.TRAINER_FAILED) -> Status:
    records = [
        AttemptRecord(attempt=n, kind=kind, cause=cause, recorded_at=n, phases=Phases(detect=1))
        for n, kind in enumerate(kinds, start=2)
    ]
    return Status(attempts=records)


def test_the_share_of_faults_that_lose_the_pods() -> None:
    kept, lost = RestartKind.IN_PLACE, RestartKind.REPLACE
    share = governor.local_loss_share
    assert share(Status(), is_shared=False) == 0.25
    assert share(attempts(kept, kept, kept), is_shared=False) == pytest.approx(0.0625)
    assert share(attempts(kept, lost, lost), is_shared=False) == pytest.approx(0.5625)
    assert share(attempts(lost, lost, lost), is_shared=True) == pytest.approx(0.0625)
    asked = attempts(lost, lost, cause=Reason.TEMPLATE_CHANGED)
    assert share(asked, is_shared=False) == 0.25


def wishing(**wish: float) -> Observed:
    book = ledger(uptime=4560 * MINUTE, interruptions=39, stall=450, stalls=10)
    observed = lived(book)
    assert observed.job is not None
    assert observed.job.spec is not None
    spec = replace(observed.job.spec, interval=Interval(**wish))
    return lived_on(with_job(observed, spec=spec))


@pytest.mark.parametrize(
    ("wish", "rule", "minutes"),
    [
        ({}, "Exact", 14.504),
        ({"max_seconds": 600}, "Exact", 10),
        ({"mtti_fraction": 0.2}, "MttiFraction", 30),
        ({"mtti_fraction": 0.2, "max_seconds": 1200}, "MttiFraction", 20),
        ({"seconds": 3600}, "Fixed", 60),
    ],
)
def test_what_the_spec_asks_for_is_what_the_trainer_is_told(
    wish: dict[str, float], rule: str, minutes: float
) -> None:
    observed = wishing(**wish)
    assert observed.job is not None
    advice = observed.job.status.interval
    assert advice is not None
    assert advice.rule == rule
    assert advice.published_seconds is not None
    assert advice.published_seconds / MINUTE == pytest.approx(minutes, rel=0.01)
    told = {pod.rank: pod.directive for pod in observed.pods}
    assert told[0] is not None
    assert told[0].interval_seconds == advice.published_seconds


def edited(observed: Observed, **fields: Any) -> Observed:
    """A person has changed the job, so its status is written."""
    assert observed.job is not None
    return with_job(observed, generation=observed.job.generation + 1, **fields)


def test_a_figure_that_hardly_moves_is_told_to_nobody() -> None:
    observed = wishing()
    assert observed.job is not None
    book, told = observed.job.status.ledger, pod_of(observed, 0).directive
    assert book is not None
    for stall, is_news in ((500.0, False), (2000.0, True)):
        seconds = book.seconds.model_copy(update={"checkpoint_stall": stall})
        changed = book.model_copy(update={"seconds": seconds, "since": book.since + 450 - stall})
        status = observed.job.status.model_copy(update={"ledger": changed})
        after = pod_of(lived_on(edited(observed, status=status)), 0).directive
        assert (after != told) is is_news


def test_a_limit_is_kept_however_little_it_differs() -> None:
    observed = wishing()
    assert observed.job is not None
    assert observed.job.spec is not None
    spec = replace(observed.job.spec, interval=Interval(max_seconds=840))
    told = pod_of(lived_on(edited(observed, spec=spec)), 0).directive
    assert told is not None
    assert told.interval_seconds == 840


def test_only_rank_0_hears_of_a_change() -> None:
    observed = wishing(seconds=60)
    assert observed.job is not None
    assert observed.job.spec is not None
    before = {pod.rank: pod.directive for pod in observed.pods}
    changed = replace(observed.job.spec, interval=Interval(seconds=90))
    after = {p.rank: p.directive for p in lived_on(edited(observed, spec=changed)).pods}
    assert after[0] is not None
    assert after[0].interval_seconds == 90
    assert after[1] == before[1]


@pytest.mark.parametrize(
    ("value", "told"),
    [(0, "0 B"), (999.6, "1 kB"), (4.86e12, "4.9 TB"), (1.2e16, "12000 TB")],
)
def test_bytes_with_two_digits(value: float, told: str) -> None:
    assert governor.told_bytes(value) == told


def training(**fields: Any) -> Status:
    current = CurrentAttempt(
        attempt=1, kind="First", cause="FirstStart", recorded_at=0, first_step_at=100
    )
    resume = ResumeDecision(attempt=1, at=0)
    return Status(attempt=1, current=current, resume=resume, **fields)


def test_work_at_risk_is_what_a_fault_would_lose() -> None:
    assert governor.work_at_risk(training(), now=160) == 60
    advice = IntervalAdvice(
        mtti_seconds=1, recommended_seconds=1, rule="Exact", durable_saved_at=150
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


@pytest.mark.parametrize(("pace", "least"), [(None, 30.0), (2.0, 30.0), (720.0, 720.0)])
def test_nobody_is_told_to_save_between_two_steps(pace: float | None, least: float) -> None:
    observed = lived(ledger(uptime=600, interruptions=200, stall=1, stalls=1))
    for rank in (0, 1):
        observed = with_report(
            observed,
            rank,
            lambda r: r.model_copy(
                update={"progress": r.progress.model_copy(update={"pace_seconds": pace})}
            ),
        )
    assert advice_of(observed).recommended_seconds == least
