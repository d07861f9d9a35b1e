"""How far apart saves should lie, from what this job has lived through; and what is at risk.

Written to status and told to rank 0's trainer; advice, for trainers save when they will. Mean time
to interruption and stalls come from the time ledger, sizes and latencies from the saves themselves.
What was not seen stays unknown. Must never be read by a rule, but for what saves cost. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rtj_api import contract
from rtj_api.reason_texts import TEXTS
from rtj_api.reasons import Charge, Reason
from rtj_api.rules import interval
from rtj_api.status import IntervalAdvice, RestartKind, Status, TimeLedger
from rtj_api.v1alpha1 import Interval

from rtj_operator.core.absorb import own_reports
from rtj_operator.core.gang import Gang

# Meta's measured rate of a node of 8 GPUs (failures-and-formulas C1).
_FAILURES_PER_NODE_DAY = 6.5e-3
# Small jobs fail more often than nodes in series say (C1, caution): one interruption a day at
# least is taken for granted until the job's own time has shown more.
_LONGEST_PRIOR = 86_400.0
# Steps are heard of about twice a second: what a save costs is not known to less than that.
_SHORTEST = 30.0
# What is told changes only by so much: each change is a write, and a trainer has no use for less.
_SAME = 0.2
# A share of the time that better spaced saves would win back, from which on it is worth a word.
_WORTH_TELLING = 0.05
AUTO = Interval()
_NOTHING = IntervalAdvice(mtti_seconds=0, recommended_seconds=0, rule="")


def mtti(ledger: TimeLedger, *, nodes: int) -> float:
    """Seconds of training between interruptions: those seen, with a prior of one (C2)."""
    series = 60 * interval.series_mtti(nodes=nodes, per_node_day=_FAILURES_PER_NODE_DAY)
    spent = ledger.seconds
    return interval.interruption_mean(
        uptime=spent.productive + spent.lost + spent.checkpoint_stall,
        interruptions=ledger.interruptions,
        prior_mtti=min(series, _LONGEST_PRIOR),
    )


def local_loss_share(status: Status, *, is_shared: bool) -> float:
    """Share of this job's faults that lose what lies only in its pods, by the attempts kept in
    status: those after which every pod went on, or with a directory that outlives them, lost
    nothing."""
    faults = [r for r in status.attempts if r.phases.detect is not None and not _is_asked(r.cause)]
    losses = sum(r.kind != RestartKind.IN_PLACE for r in faults)
    return interval.share_seen(losses=0 if is_shared else losses, faults=len(faults))


def _is_asked(cause: str) -> bool:
    return cause in TEXTS and TEXTS[Reason(cause)].charge == Charge.INTENT


def optimum(*, stall: float | None, mean: float) -> float:
    """Seconds between saves: exact where a stall was seen, a tenth of the mean otherwise (C4)."""
    if stall is None:
        return interval.mtti_fraction(mtti=mean)
    return interval.exact(stall=stall, mtti=mean)


def advised(gang: Gang, status: Status) -> IntervalAdvice | None:
    """The advice to write with `status`, whose ledger is up to date."""
    ledger, old = status.ledger, status.interval
    if ledger is None or not status.starts or status.is_terminal:
        return old
    mean = mtti(ledger, nodes=gang.spec.replicas)
    stall = ledger.seconds.checkpoint_stall / ledger.stalls if ledger.stalls else None
    latency, saved_at = _durable(status)
    seen = _Seen.of(gang, old)
    best = optimum(stall=stall, mean=mean)
    found = interval.clamped(
        best,
        durable_latency=seen.writing_seconds or 0.0,
        step=max(_SHORTEST, _step_seconds(gang)),
        longest=gang.spec.interval.max_seconds or math.inf,
    )
    share = local_loss_share(status, is_shared=gang.spec.shared_directory)
    rule, wanted = _wanted(gang.spec.interval, mean=mean, found=found, is_known=stall is not None)
    return IntervalAdvice(
        mtti_seconds=round(mean, 3),
        stall_seconds=_rounded(stall),
        durable_latency_seconds=_rounded(latency),
        durable_saved_at=saved_at,
        actual_seconds=seen.actual_seconds,
        recommended_seconds=round(found, 3),
        rule=rule,
        published_seconds=_published(old, wanted, wish=gang.spec.interval),
        durable_seconds=round(max(optimum(stall=stall, mean=mean / share), latency or 0.0), 3),
        local_loss_share=round(share, 3),
        writing_seconds=seen.writing_seconds,
        save_bytes=seen.save_bytes,
        upload_bytes_per_second=_rounded(seen.upload_bytes_per_second),
    )


def _step_seconds(gang: Gang) -> float:
    """Of the slowest rank; 0 where no pace is known. Nobody can save between two steps."""
    paces = [r.progress.pace_seconds for r in own_reports(gang)]
    return max((pace for pace in paces if pace is not None), default=0.0)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _wanted(wish: Interval, *, mean: float, found: float, is_known: bool) -> tuple[str, float]:
    """Rule and seconds: what the spec asks for, or what was found."""
    if wish.seconds is not None:
        return "Fixed", wish.seconds
    if wish.mtti_fraction is not None:
        share = interval.mtti_fraction(mtti=mean, fraction=wish.mtti_fraction)
        return "MttiFraction", interval.clamped(share, longest=wish.max_seconds or math.inf)
    return ("Exact" if is_known else "MttiFraction"), found


def _published(old: IntervalAdvice | None, wanted: float, *, wish: Interval) -> float:
    said = old.published_seconds if old is not None else None
    if said is None or wish.seconds is not None or said > (wish.max_seconds or math.inf):
        return round(wanted, 1)
    return said if abs(wanted - said) <= _SAME * said else round(wanted, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the ranks report of their saves, put together; else as it was known."""

    actual_seconds: float | None
    writing_seconds: float | None
    save_bytes: int | None
    upload_bytes_per_second: float | None

    @staticmethod
    def of(gang: Gang, old: IntervalAdvice | None) -> _Seen:
        views = [r.checkpoint for r in own_reports(gang)]
        spacings = [v.interval_seconds for v in views if v.interval_seconds]
        writing = [v.writing_seconds for v in views if v.writing_seconds is not None]
        sizes = [v.save_bytes for v in views if v.save_bytes]
        rates = [
            v.upload_bytes / v.upload_seconds for v in views if v.upload_bytes and v.upload_seconds
        ]
        was = old if old is not None else _NOTHING
        return _Seen(
            actual_seconds=max(spacings) if spacings else was.actual_seconds,
            writing_seconds=max(writing) if writing else was.writing_seconds,
            save_bytes=sum(sizes) if sizes else was.save_bytes,
            upload_bytes_per_second=sum(rates) if rates else was.upload_bytes_per_second,
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


def troubles(status: Status, *, wish: Interval = AUTO) -> list[tuple[str, str]]:
    """What the advice of the last write finds wrong, with the remedy. Figures are those of the
    newest save, with two digits: what moves by less is no news."""
    advice = status.interval
    if advice is None or advice.actual_seconds is None or status.hold is not None:
        return []
    found: list[tuple[str, str]] = []
    slow = _too_slow(advice)
    if slow is not None:
        found.append((Reason.STORE_TOO_SLOW, slow))
    best = optimum(stall=advice.stall_seconds, mean=advice.mtti_seconds)
    spacing = advice.actual_seconds
    is_costly = _lost_by(spacing, best=best, advice=advice, mean=advice.mtti_seconds)
    if spacing > advice.recommended_seconds and is_costly:
        found.append((Reason.SAVES_TOO_RARE, f"{_TOO_RARE}: {_remedy(wish)}"))
    if spacing < best and is_costly:
        found.append((Reason.SAVES_TOO_OFTEN, f"{_TOO_OFTEN}: {_remedy(wish)}"))
    return found


_TOO_RARE = "saves are so far apart that a large part of the time goes to work made again"
_TOO_OFTEN = "saves stop the steps so often that a large part of the time goes to them"


def _remedy(wish: Interval) -> str:
    if wish.seconds is not None:
        return "set spec.checkpoint.interval.seconds to about status.interval.recommendedSeconds"
    return (
        "let the trainer save every status.interval.recommendedSeconds, which it is told in "
        f"{contract.ENV_CHECKPOINT_INTERVAL}"
    )


def _lost_by(spacing: float, *, best: float, advice: IntervalAdvice, mean: float) -> bool:
    """Whether `spacing` costs a share of the time that is worth a word, beyond what `best` does."""
    stall = advice.stall_seconds or 0.0
    whole = interval.overhead(interval=spacing, stall=stall, mtti=mean)
    least = interval.overhead(interval=max(best, 1.0), stall=stall, mtti=mean)
    return whole - least > _WORTH_TELLING


def _too_slow(advice: IntervalAdvice) -> str | None:
    latency = advice.durable_latency_seconds or 0.0
    mean = advice.mtti_seconds / (advice.local_loss_share or 1.0)
    # A stall too short to be measured has its optimum at 0.
    best = max(_SHORTEST, optimum(stall=advice.stall_seconds, mean=mean))
    if latency <= best or not _lost_by(latency, best=best, advice=advice, mean=mean):
        return None
    text = f"a save takes {told_seconds(latency)} to become durable"
    if advice.save_bytes:
        needed = interval.needed_bandwidth(size=advice.save_bytes, seconds=best)
        now = advice.upload_bytes_per_second
        text = (
            f"a save of {told_bytes(advice.save_bytes)} takes {told_seconds(latency)} to become "
            f"durable, and one should be every {told_seconds(best)}: the upload needs "
            f"{told_bytes(needed)}/s" + (f" and has {told_bytes(now)}/s" if now else "")
        )
    return (
        f"{text}. Give it more bandwidth (a nearer store, a higher "
        "checkpoint.store.maxUploadBytesPerSecond, more CPU in spec.sidecar.resources), or save "
        "less"
    )


def _two_digits(value: float) -> str:
    return f"{float(f'{value:.2g}'):g}"


def told_bytes(count: float) -> str:
    """`count` bytes with two digits: 1.2 GB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if float(f"{count:.2g}") < 1000 or unit == "TB":
            return f"{_two_digits(count)} {unit}"
        count /= 1000
    raise AssertionError("the last unit takes all")


def told_seconds(seconds: float) -> str:
    """`seconds` with two digits, in the unit that people would use: 24 min."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{_two_digits(seconds / size)} {unit}"
    return f"{_two_digits(seconds)} s"


def work_at_risk(status: Status, *, now: float) -> float | None:
    """Seconds of training that a fault now would lose; None while the gang makes no steps."""
    current = status.current
    if current is None or status.hold is not None or status.is_terminal or not status.is_started:
        return None
    if current.first_step_at is None:
        return None
    saved = status.interval.durable_saved_at if status.interval is not None else None
    return max(0.0, now - max(current.first_step_at, saved or 0.0))
