"""Where a job's time went: seconds by bucket that sum to the time since its creation.

Each guarded status write enters the time since the last one, from moments that the status holds
by then; nothing is kept elsewhere, so an operator that dies loses nothing and counts nothing
twice. Time goes only forward: an end that is told late, or a clock that steps back, finds its
time entered already. What was made once is productive for good; when it has to be made again,
that is what is lost (failures-and-formulas C11). What no durable save holds is told apart, for
it is gone when the job fails. Must never be read by a rule. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rtj_api.reasons import Charge, Reason
from rtj_api.status import (
    ConditionType,
    CurrentAttempt,
    Status,
    TimeBuckets,
    TimeLedger,
)

_MICRO = 1_000_000


def _micros(seconds: float) -> int:
    return round(seconds * _MICRO)


@dataclass
class _Book:
    """A ledger being written, in whole microseconds so that sums are exact. Local to one call."""

    since: int
    until: int
    now: int
    spent: dict[str, int]
    marks: dict[str, object] = field(default_factory=dict)

    def to(self, moment: float, bucket: str) -> None:
        """The time up to `moment` went to `bucket`; no further than now, and never back."""
        end = min(_micros(moment), self.now)
        if end > self.until:
            self.spent[bucket] += end - self.until
            self.until = end

    def closed(self, old: TimeLedger) -> TimeLedger:
        seconds = {name: micros / _MICRO for name, micros in self.spent.items()}
        return old.model_copy(
            update={
                "until": self.until / _MICRO,
                "seconds": TimeBuckets(**seconds),
                **self.marks,
            }
        )


def begun(status: Status, *, created_at: float | None, now: float) -> TimeLedger:
    """The ledger so far; a new one begins at the creation, or now where that is long history."""
    if status.ledger is not None:
        return status.ledger
    since = now
    if status.attempt == 0 and created_at is not None:
        since = min(created_at, now)
    return TimeLedger(since=since, until=since)


def settled(
    before: Status, after: Status, *, now: float, created_at: float | None = None
) -> TimeLedger:
    """The ledger with everything entered that is certain by `now`.

    `before` is the status with all that reports say, `after` the decision that is written at
    `now` (the same object where nothing is decided).
    """
    old = begun(before, created_at=created_at, now=now)
    if before.is_terminal:
        return old
    spent = {name: _micros(value) for name, value in old.seconds.model_dump().items()}
    book = _Book(since=_micros(old.since), until=_micros(old.until), now=_micros(now), spent=spent)
    if before.hold is not None:
        book.to(now, _hold_bucket(before))
    elif before.current is None:
        book.to(now, "queue")
    else:
        _enter_attempt(book, old, before, after, now=now)
    if after.hold is not None and after.hold.reason == Reason.SUSPENDED:
        book.marks |= {"down_since": None, "behind_since": None}
    _mark_unsaved(book, old, after)
    return book.closed(old)


def _mark_unsaved(book: _Book, old: TimeLedger, status: Status) -> None:
    """Productive time of steps beyond the newest durable one.

    How long each of them took is not kept: when one in between becomes durable, the time is taken
    to be spread evenly over them.
    """
    new = book.spent["productive"] - _micros(old.seconds.productive)
    unsaved = _micros(old.unsaved_seconds) + new
    durable, reached = status.checkpoint.last_durable_step, book.marks.get("reached", old.reached)
    if durable is not None and isinstance(reached, int) and durable != old.durable_step:
        begun = min(old.durable_step or 0, durable)
        left = max(0, reached - durable)
        unsaved = unsaved * left // max(1, reached - begun)
        book.marks["durable_step"] = durable
    book.marks["unsaved_seconds"] = unsaved / _MICRO


def _hold_bucket(status: Status) -> str:
    hold = status.hold
    return "suspended" if hold is not None and hold.reason == Reason.SUSPENDED else "hold"


def _is_over(before: Status, after: Status) -> bool:
    """This write ends the attempt that was."""
    return (
        after.attempt != before.attempt
        or after.is_terminal
        or (after.hold is not None and before.hold is None)
    )


def _enter_attempt(
    book: _Book, old: TimeLedger, before: Status, after: Status, *, now: float
) -> None:
    """The stages of an attempt, in their order, as far as they are known to be passed."""
    is_over = _is_over(before, after)
    status = before if is_over else after
    current, resume = status.current, status.resume
    assert current is not None  # the caller's case
    first = status.starts == 0 or (status.starts == 1 and status.is_started)
    waits = "queue" if first or current.fault_at is None else "schedule"
    if current.not_before is not None:
        book.to(current.not_before, "hold")
    if current.group_since == current.attempt:  # a new group: it queues for quota first
        book.to(now if current.admitted_at is None else current.admitted_at, "queue")
    if current.scheduled_at is None and not status.is_started:
        book.to(now, waits)
        return
    if current.scheduled_at is not None:
        book.to(current.scheduled_at, waits)
    if resume is None or not status.is_started:
        book.to(now, "start")
        return
    book.to(resume.at, "start")
    if current.restored_at is None and current.training_at is None and not current.through_store:
        book.to(now, "restore")
        return
    if current.restored_at is not None:
        book.to(current.restored_at, "restore")
    _enter_training(book, old, status)
    if is_over:
        _enter_end(book, old, before, after, now=now)


def _first_sign(status: Status, current: CurrentAttempt) -> float | None:
    """The first step of this attempt, or a save where its steps are not known."""
    if current.first_step_at is not None:
        return current.first_step_at
    began = current.training_at
    if began is None and status.resume is not None:
        began = status.resume.at
    saved = status.checkpoint.last_saved_time
    return saved if saved is not None and began is not None and saved > began else None


def _enter_training(book: _Book, old: TimeLedger, status: Status) -> None:
    """Start until the first sign of a step, then work as far as steps and saves tell of it.

    Both are told by sidecars' clocks, later than they were: what is after them is left open.
    """
    current, resume = status.current, status.resume
    assert current is not None  # the caller's case
    assert resume is not None
    first = _first_sign(status, current)
    if first is None:
        return
    if old.step is None:
        book.to(first, "start")
    if old.down_since is not None:
        book.marks |= {
            "down_since": None,
            "recoveries": old.recoveries + 1,
            "recovery_seconds": _later(old.recovery_seconds, old.down_since, first),
        }
    if old.step is not None:
        at, reached = old.step, old.reached
    else:
        asked = resume.asked is not None  # a person chose to go back: what comes is new
        at = (resume.step or 0) if resume.step is not None or resume.scratch else (old.reached or 0)
        reached = at if asked else old.reached
    reached = at if reached is None else reached
    progress = status.progress
    saved, saved_step = status.checkpoint.last_saved_time, status.checkpoint.last_saved_step
    if progress.step is not None and progress.at is not None and progress.at >= first:
        _enter_stall(book, old, current, until=progress.at)
        at, reached = _enter_steps(
            book, old, start=at, end=progress.step, reached=reached, moment=progress.at
        )
    elif saved is not None and (saved_step is None or saved_step <= at):
        book.to(saved, "lost" if at < reached else "productive")
    if saved is not None and saved >= first and saved_step is not None and saved_step > at:
        # A save tells of steps that nothing else told of: lines come late, or rarely.
        at, reached = _enter_steps(
            book, old, start=at, end=saved_step, reached=reached, moment=saved
        )
    if old.behind_since is not None and at >= reached and "behind_since" not in book.marks:
        _mark_regain(book, old, moment=first)
    book.marks |= {"step": at, "reached": reached}


def _enter_stall(book: _Book, old: TimeLedger, current: CurrentAttempt, *, until: float) -> None:
    """What saves took of the time up to `until`, as far as the sidecars have measured it. A stall
    is measured by the step after it, so it lies in time that is not entered yet, or just was."""
    measured = _micros(current.stall_seconds or 0.0)
    new = max(0, measured - _micros(old.attempt_stall_seconds))
    end = min(_micros(until), book.now)
    taken = min(new, max(0, end - book.until))
    book.to((book.until + taken) / _MICRO, "checkpoint_stall")
    counted = max(old.attempt_stalls, current.stalls or 0)
    book.marks |= {
        "stalls": old.stalls + counted - old.attempt_stalls,
        "attempt_stalls": counted,
        "attempt_stall_seconds": (_micros(old.attempt_stall_seconds) + taken) / _MICRO,
    }


def _later(total: float, start: float, end: float) -> float:
    return (_micros(total) + max(0, _micros(end) - _micros(start))) / _MICRO


def _mark_regain(book: _Book, old: TimeLedger, *, moment: float) -> None:
    assert old.behind_since is not None  # the callers' case
    book.marks |= {
        "behind_since": None,
        "regains": old.regains + 1,
        "regain_seconds": _later(old.regain_seconds, old.behind_since, moment),
    }


def _enter_steps(
    book: _Book, old: TimeLedger, *, start: int, end: int, reached: int, moment: float
) -> tuple[int, int]:
    """Steps `start`..`end` up to `moment`: those made before are lost time, the rest is new.

    Returns the step that is stood at and the furthest one.
    """
    span = max(0, min(_micros(moment), book.now) - book.until)
    if end <= start:
        book.to(moment, "lost" if start < reached else "productive")
        return start, reached
    again = min(max(0, reached - start), end - start)
    regained = book.until + span * again // (end - start)
    book.to(regained / _MICRO, "lost")
    book.to(moment, "productive" if end > reached else "lost")
    if old.behind_since is not None and end >= reached:
        _mark_regain(book, old, moment=regained / _MICRO)
    return end, max(end, reached)


def _enter_end(book: _Book, old: TimeLedger, before: Status, after: Status, *, now: float) -> None:
    """From the last sign of work to the write that ends the attempt."""
    new, seen = after.current, before.checkpoint
    has_worked = before.current is not None and _first_sign(before, before.current) is not None
    step = book.marks.get("step", old.step)
    if has_worked and seen.last_saved_time is not None and seen.last_saved_step == step is not None:
        # Of the last save no step tells: nothing was lost before it was finished.
        if min(_micros(seen.last_saved_time), book.now) > book.until:
            known = book.marks.get("stalls", old.stalls)
            book.marks["stalls"] = known + 1 if isinstance(known, int) else 1
        book.to(seen.last_saved_time, "checkpoint_stall")
    book.marks |= {"step": None, "attempt_stalls": 0, "attempt_stall_seconds": 0.0}
    rest = "lost" if has_worked else "start"
    if after.attempt != before.attempt and new is not None and new.fault_at is not None:
        book.to(new.fault_at, rest)
        if new.detected_at is not None:
            book.to(new.detected_at, "detect")
        book.to(now, "decide")
        if new.charge != Charge.INTENT:
            down = book.marks.get("down_since", old.down_since)
            behind = book.marks.get("behind_since", old.behind_since)
            book.marks |= {
                "interruptions": old.interruptions + has_worked,
                "down_since": new.fault_at if down is None else down,
                "behind_since": new.fault_at if behind is None else behind,
            }
    elif after.hold is not None:
        book.to(now, _hold_bucket(after))
    elif after.is_true(ConditionType.COMPLETE):
        book.to(now, "checkpoint_stall" if has_worked else "start")
    else:
        book.to(now, rest)
