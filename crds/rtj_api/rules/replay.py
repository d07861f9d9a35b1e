"""Overlap replay: steps that a trainer runs twice, around a restart, against their first pass.

A trainer that is given a save makes the steps after it again. Learning rate and data cursor have
to be exactly what they were; loss and gradient norm have to lie within the job's own noise. Costs
nothing, for the steps are made anyway. What was never told is never missed: only what both passes
say is compared. Must never convict on log lines: see `ignored`. Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median
from typing import Any

from rtj_api.rules.noise import noise_of, raw_noise_of

LEAST = 3  # steps run twice from which Match, Drift or Diverged is said
WIDTH = 6.0  # standard deviations of the job's own noise: what is within is the same
FAR = 3.0  # widths: from here on it is another training
LEAST_WIDTH = 0.02  # of the value: one that is printed with two digits has no noise
EXACT = 1e-4  # relative: two prints of one number
JUMP = 0.01  # relative: a learning rate that moves by more from one step to the next has jumped
MARGIN = 0.01  # of the step resumed from: counters of other habits lie so near to it
HISTORY = 8  # values from which a noise is taken


class ReplayState(StrEnum):
    MATCH = "Match"
    DRIFT = "Drift"  # something differs that has to be equal, or a little more than noise
    DIVERGED = "Diverged"  # another training than before
    IGNORED = "Ignored"  # it began far below the save that it was given
    NO_OVERLAP = "NoOverlap"  # no step was told of twice


class Lost(StrEnum):
    """The part of the state that the trainer did not restore, by what shows it."""

    SCHEDULER = "scheduler"  # the learning rate is that of the job's first steps again
    LOADER = "loader"  # the data cursor, or the batch, is that of the job's first steps again


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a trainer told of one step. `samples`: the data cursor; `batch`: a hash of its data."""

    step: int
    loss: float | None = None
    grad_norm: float | None = None
    lr: float | None = None
    samples: float | None = None
    batch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What came of a comparison. `compared`: steps that both passes told something of."""

    state: ReplayState
    compared: int = 0
    step: int | None = None  # the first that differs
    lost: Lost | None = None
    message: str = ""  # what was expected and what was seen, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPass:
    """What is known of the steps before the restart: by step, and how the job began."""

    records: Mapping[int, Record]  # before and beyond the save
    begin: Sequence[Record] = ()  # its first steps from nothing, in order


def ignored(
    first: FirstPass, second: Sequence[Record], *, resumed: int, is_exact: bool
) -> Replay | None:
    """The trainer was given step `resumed` and began far below it: it did not load the save.

    Only the progress file convicts (`is_exact`), and only where its counter is known to run with
    the saves' (the first pass had told a step near the save's): a counter that begins anew in each
    epoch, or counts micro batches, proves nothing; nor does one whose loss or data cursor goes on
    from the save, for in the first epoch such a counter runs with the saves'. Three steps in a row,
    so that a line of before the load is none.
    """
    if not is_exact or len(second) < LEAST or resumed <= LEAST:
        return None
    margin = max(LEAST, math.ceil(MARGIN * resumed))
    if not any(abs(step - resumed) <= margin for step in first.records):
        return None
    began = second[0].step
    if any(record.step >= resumed - margin for record in second):
        return None
    if any(b.step <= a.step for a, b in itertools.pairwise(second)):
        return None
    near = [r for step, r in sorted(first.records.items()) if abs(step - resumed) <= margin]
    if _goes_on(first, near, second):
        return None
    return Replay(
        state=ReplayState.IGNORED,
        step=began,
        message=f"it was given step {resumed}, and its progress file begins at step {began}",
    )


def _goes_on(first: FirstPass, near: Sequence[Record], second: Sequence[Record]) -> bool:
    """The second pass has the data cursor, or the loss, of the steps `near` the save rather than
    those of the job's beginning, where these are surely apart."""
    cursor = min((r.samples for r in near if r.samples is not None), default=None)
    if cursor is not None and any(r.samples is not None and r.samples >= cursor for r in second):
        return True
    begun, saved, now = (_losses(rows) for rows in (first.begin, near, second))
    if len(begun) < LEAST or len(saved) < LEAST or len(now) < LEAST:
        return False
    noise = noise_of(_losses([r for _, r in sorted(first.records.items())]))
    old, new, seen = median(begun), median(saved), median(now)
    if abs(old - new) <= max(WIDTH * noise, LEAST_WIDTH * abs(new)):
        return False
    return abs(seen - new) < abs(seen - old)


def _losses(records: Sequence[Record]) -> list[float]:
    return [r.loss for r in records if r.loss is not None and math.isfinite(r.loss)]


def compared(first: FirstPass, second: Sequence[Record], *, resumed: int) -> Replay | None:
    """The steps run twice so far; None while too few are known to say anything.

    `second`: this attempt's records, in order. NoOverlap once this attempt has gone beyond all
    that was told of the first pass.
    """
    known = [step for step in first.records if step > resumed]
    pairs = [
        (first.records[record.step], record)
        for record in second
        if record.step > resumed and record.step in first.records and _both(first, record)
    ]
    beyond = not known or any(record.step > max(known) for record in second)
    if not second or (len({now.step for _, now in pairs}) < LEAST and not beyond):
        return None
    if not pairs:
        return _across(first, second, resumed=resumed)
    wrong = _exact(first, pairs, resumed=resumed)
    noisy = _noisy(first, pairs)
    worse = noisy if noisy is not None and noisy.state is ReplayState.DIVERGED else None
    found = worse or wrong or noisy
    if found is not None:
        return found
    return Replay(
        state=ReplayState.MATCH,
        compared=len(pairs),
        message=f"{len(pairs)} steps run twice are as they were",
    )


def _both(first: FirstPass, record: Record) -> bool:
    before = first.records[record.step]
    return any(
        getattr(before, name) is not None and getattr(record, name) is not None
        for name in ("loss", "grad_norm", "lr", "samples", "batch")
    )


def _exact(
    first: FirstPass, pairs: Sequence[tuple[Record, Record]], *, resumed: int
) -> Replay | None:
    for before, now in _told_alike(pairs):
        if before.lr is not None and now.lr is not None and not _equal(before.lr, now.lr):
            lost = Lost.SCHEDULER if _is_back(first, now, "lr", resumed=resumed) else None
            return _differs("learning rate", before.lr, now.lr, now.step, len(pairs), lost)
        if before.samples is not None and now.samples is not None and before.samples != now.samples:
            lost = Lost.LOADER if _is_back(first, now, "samples", resumed=resumed) else None
            return _differs("data cursor", before.samples, now.samples, now.step, len(pairs), lost)
        if before.batch is not None and now.batch is not None and before.batch != now.batch:
            lost = Lost.LOADER if any(b.batch == now.batch for b in first.begin) else None
            return _differs("batch", before.batch, now.batch, now.step, len(pairs), lost)
    return None


def _told_alike(pairs: Sequence[tuple[Record, Record]]) -> list[tuple[Record, Record]]:
    """Without what several writers of one file, such as the ranks of a pod, tell of one step
    otherwise: each has its own, and which of them the first pass kept is chance."""
    differs: dict[str, Any] = {}
    for name in ("lr", "samples", "batch"):
        told: dict[int, object] = {}
        for _, now in pairs:
            value = getattr(now, name)
            if value is not None and told.setdefault(now.step, value) != value:
                differs[name] = None
    return [(before, replace(now, **differs)) for before, now in pairs]


def _across(first: FirstPass, second: Sequence[Record], *, resumed: int) -> Replay:
    """No step was told of twice; a learning rate may still show that it began anew, by where it
    stood at the save."""
    now = next((r for r in second if r.step > resumed and r.lr is not None), None)
    last = max(
        (s for s, r in first.records.items() if s <= resumed and r.lr is not None), default=0
    )
    before = first.records.get(last)
    if now is not None and now.lr is not None and before is not None and before.lr is not None:
        jumped = abs(now.lr - before.lr) > max(
            JUMP * max(abs(now.lr), abs(before.lr)), FAR * _widest(first)
        )
        if jumped and _is_back(first, now, "lr", resumed=resumed):
            return _differs("learning rate", before.lr, now.lr, now.step, 0, Lost.SCHEDULER)
    return Replay(state=ReplayState.NO_OVERLAP, message="no step was told of twice")


def _widest(first: FirstPass) -> float:
    """The largest move of the learning rate from one told step to the next."""
    rates = [r.lr for _, r in sorted(first.records.items()) if r.lr is not None]
    return max((abs(b - a) for a, b in itertools.pairwise(rates)), default=0.0)


def _is_back(first: FirstPass, now: Record, name: str, *, resumed: int) -> bool:
    """The value is what the job's own beginning had: `now.step - resumed` steps in, or so."""
    value, away = getattr(now, name), now.step - resumed
    near = [
        getattr(b, name)
        for b in first.begin
        if abs(b.step - away) <= 1 and getattr(b, name) is not None
    ]
    return any(_equal(value, begun) for begun in near)


def _equal(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= EXACT * max(abs(a), abs(b))


def _noisy(first: FirstPass, pairs: Sequence[tuple[Record, Record]]) -> Replay | None:
    """Loss and gradient norm, in widths of their own noise; the worse of the two."""
    found: list[tuple[float, Replay]] = []
    for name, word in (("loss", "loss"), ("grad_norm", "gradient norm")):
        history = [
            value
            for _, record in sorted(first.records.items())
            if (value := getattr(record, name)) is not None and math.isfinite(value)
        ]
        if len(history) < HISTORY:
            continue
        noise = raw_noise_of(history)
        both = [
            (getattr(before, name), getattr(now, name), now.step)
            for before, now in pairs
            if getattr(before, name) is not None and getattr(now, name) is not None
        ]
        away = [_widths(before, now, noise) for before, now, _ in both]
        if len(away) < LEAST:
            continue
        middle = median(away)
        # A norm with one outlier a step is a norm; a loss that is everywhere beside is another. One
        # that is everywhere below may be a mean since the trainer's start.
        is_below = name == "loss" and 2 * sum(now < before for before, now, _ in both) > len(both)
        is_far = middle > FAR and not is_below
        state = ReplayState.DIVERGED if is_far else ReplayState.DRIFT
        if middle > 1.0:
            before, now, step = next(p for p, w in zip(both, away, strict=True) if w > 1.0)
            found.append((middle, _differs(word, before, now, step, len(both), None, state=state)))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _widths(before: float, now: float, noise: float) -> float:
    if not math.isfinite(now) or not math.isfinite(before):
        return 0.0 if math.isfinite(now) or not math.isfinite(before) else math.inf
    return abs(now - before) / max(WIDTH * noise, LEAST_WIDTH * abs(before), 1e-12)


def _differs(
    what: str,
    before: float | str,
    now: float | str,
    step: int,
    count: int,
    lost: Lost | None,
    *,
    state: ReplayState = ReplayState.DRIFT,
) -> Replay:
    why = {
        None: "",
        Lost.SCHEDULER: "; that is where the schedule began: the trainer does not restore its "
        "learning-rate scheduler",
        Lost.LOADER: "; those are the job's first samples again: the trainer does not restore its "
        "data loader's position",
    }[lost]
    text = f"step {step}: {what} was {_shown(before)} and is {_shown(now)}{why}"
    return Replay(state=state, compared=count, step=step, lost=lost, message=text)


def _shown(value: float | str) -> str:
    return value[:16] if isinstance(value, str) else f"{value:.6g}"
