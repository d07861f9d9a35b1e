"""What a job's ledger comes to: the share of its time that was work, and how long it was not.

Must never be read by a rule. Pure.
"""

from __future__ import annotations

from rtj_api.status import ConditionType, Status, TimeBuckets, TimeLedger


def total(seconds: TimeBuckets) -> float:
    """Seconds of all buckets; whole microseconds, so that it is exact."""
    micros: int = sum(round(value * 1e6) for value in seconds.model_dump().values())
    return micros / 1e6


def kept(status: Status) -> float:
    """Seconds of steps made for the first time; of a job that failed, without those that no
    durable save holds."""
    ledger = status.ledger
    if ledger is None:
        return 0.0
    gone = ledger.unsaved_seconds if status.is_true(ConditionType.FAILED) else 0.0
    return max(0.0, ledger.seconds.productive - gone)


def goodput(status: Status) -> float | None:
    """Time of new steps by all time (failures-and-formulas C11); None before there is any."""
    whole = total(status.ledger.seconds) if status.ledger is not None else 0.0
    return kept(status) / whole if whole > 0 else None


def ettr(status: Status, *, with_queue: bool = True) -> float | None:
    """Time of new steps by the time in which capacity was asked for (C10)."""
    if status.ledger is None:
        return None
    seconds = status.ledger.seconds
    whole = total(seconds) - seconds.suspended - (0.0 if with_queue else seconds.queue)
    return kept(status) / whole if whole > 0 else None


def mttr(ledger: TimeLedger) -> float | None:
    """Mean seconds from a fault to the next step."""
    return ledger.recovery_seconds / ledger.recoveries if ledger.recoveries else None


def time_to_regain(ledger: TimeLedger) -> float | None:
    """Mean seconds from a fault to the first step that was never made before."""
    return ledger.regain_seconds / ledger.regains if ledger.regains else None
