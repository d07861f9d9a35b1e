"""How far apart saves should lie, from what this job has lived through; and what is at risk.

Advice for people, in status and metrics: trainers save when they will. Mean time to interruption
and stalls come from the time ledger, latencies from the saves themselves. What was not seen stays
unknown. Must never be read by a rule. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.rules import interval
from rtj_api.status import IntervalAdvice, Status, TimeLedger

from rtj_operator.core.absorb import own_reports
from rtj_operator.core.gang import Gang

# Meta's measured rate of a node of 8 GPUs (failures-and-formulas C1).
_FAILURES_PER_NODE_DAY = 6.5e-3
# Small jobs fail more often than nodes in series say (C1, caution): one interruption a day at
# least is taken for granted until the job's own time has shown more.
_LONGEST_PRIOR = 86_400.0
# A share of the time that better spaced saves would win back, from which on it is worth a word.
_WORTH_TELLING = 0.05


def mtti(ledger: TimeLedger, *, nodes: int) -> float:
    """Seconds of training between interruptions: those seen, with a prior of one (C2)."""
    series = 60 * interval.series_mtti(nodes=nodes, per_node_day=_FAILURES_PER_NODE_DAY)
    spent = ledger.seconds
    return interval.interruption_mean(
        uptime=spent.productive + spent.lost + spent.checkpoint_stall,
        interruptions=ledger.interruptions,
        prior_mtti=min(series, _LONGEST_PRIOR),
    )


def advised(gang: Gang, status: Status) -> IntervalAdvice | None:
    """The advice to write with `status`, whose ledger is up to date."""
    ledger, old = status.ledger, status.interval
    if ledger is None or not status.starts or status.is_terminal:
        return old
    mean = mtti(ledger, nodes=gang.spec.replicas)
    stall = ledger.seconds.checkpoint_stall / ledger.stalls if ledger.stalls else None
    latency, saved_at = _durable(status)
    seen = [r.checkpoint.interval_seconds for r in own_reports(gang)]
    actual = max((s for s in seen if s), default=old.actual_seconds if old else None)
    if stall is not None:
        rule, best = "Daly", interval.daly(stall=stall, mtti=mean)
    else:
        rule, best = "MttiFraction", interval.mtti_fraction(mtti=mean)
    return IntervalAdvice(
        mtti_seconds=round(mean, 3),
        stall_seconds=None if stall is None else round(stall, 3),
        durable_latency_seconds=None if latency is None else round(latency, 3),
        durable_saved_at=saved_at,
        actual_seconds=actual,
        recommended_seconds=round(interval.clamped(best, durable_latency=latency or 0.0), 3),
        rule=rule,
    )


def _durable(status: Status) -> tuple[float | None, float | None]:
    """Of the newest durable save: seconds from finished to durable, and when it was finished.

    While a later save is on its way the durable one's own end is no longer known: the way of the
    last save that could be followed stands for it.
    """
    old, seen = status.interval, status.checkpoint
    latency = old.durable_latency_seconds if old is not None else None
    durable, saved = seen.last_durable_time, seen.last_saved_time
    if durable is None:
        return latency, None
    is_same = seen.last_durable_step is not None and seen.last_durable_step == seen.last_saved_step
    if is_same and saved is not None and saved <= durable:
        return durable - saved, saved
    return latency, durable - (latency or 0.0)


def troubles(status: Status) -> list[tuple[str, str]]:
    """What the advice of the last write finds wrong, with the remedy. No figures: they move."""
    advice = status.interval
    if advice is None or advice.actual_seconds is None or status.hold is not None:
        return []
    stall, mean = advice.stall_seconds or 0.0, advice.mtti_seconds
    best = (
        interval.daly(stall=stall, mtti=mean)
        if advice.stall_seconds is not None
        else interval.mtti_fraction(mtti=mean)
    )

    def lost_by(spacing: float) -> float:
        whole = interval.overhead(interval=spacing, stall=stall, mtti=mean)
        return whole - interval.overhead(interval=best, stall=stall, mtti=mean)

    found: list[tuple[str, str]] = []
    latency = advice.durable_latency_seconds or 0.0
    if latency > best and lost_by(latency) > _WORTH_TELLING:
        found.append(
            (
                Reason.STORE_TOO_SLOW,
                "a save takes longer to become durable than saves should be apart: see "
                "status.interval; give the upload more bandwidth, or save less",
            )
        )
    spacing = advice.actual_seconds
    if spacing > advice.recommended_seconds and lost_by(spacing) > _WORTH_TELLING:
        found.append(
            (
                Reason.SAVES_TOO_RARE,
                "saves are so far apart that a large part of the time goes to work made again: "
                "let the trainer save every status.interval.recommendedSeconds",
            )
        )
    return found


def work_at_risk(status: Status, *, now: float) -> float | None:
    """Seconds of training that a fault now would lose; None while the gang makes no steps."""
    current = status.current
    if current is None or status.hold is not None or status.is_terminal or not status.is_started:
        return None
    if current.first_step_at is None:
        return None
    saved = status.interval.durable_saved_at if status.interval is not None else None
    return max(0.0, now - max(current.first_step_at, saved or 0.0))
