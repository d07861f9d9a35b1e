"""What a progress bar shows of the loss, and when that is news."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rtj_api.rules.divergence import diverged
from rtj_sidecar.following import fresh
from rtj_sidecar.trainer.bars import Shown
from rtj_sidecar.trainer.signs import read_line


def told(losses: Iterable[float], *, printed: bool = False) -> list[tuple[int | None, float]]:
    """What is believed of the lines of one attempt: a bar's, or printed ones."""
    shown, found = Shown(), []
    for step, loss in enumerate(losses, start=1):
        line = f"  3%|3   | {step}/1000 [00:10<05:23,  3.00it/s, loss={loss}]"
        sign = read_line(f"step {step} loss {loss}" if printed else line)
        shown, sign = fresh(shown, sign)
        if sign.loss is not None:
            found.append((sign.step, sign.loss))
        assert sign.step == step, "the step is news in any case"
    return found


def usual(count: int) -> list[float]:
    return [round(2.0 - 0.01 * at, 3) for at in range(count)]


def test_a_nan_that_was_set_once_condemns_nothing() -> None:
    assert diverged(told([math.nan] * 200)) is None, "before the first loss"
    every_tenth = [loss for loss in usual(12) for _ in range(10)]
    assert diverged(told([*every_tenth, *[math.nan] * 25])) is None, "until the next is set"
    assert diverged(told([*usual(30), *[math.nan] * 3])) is None


def test_a_nan_that_stays_far_longer_than_any_loss_did_condemns() -> None:
    found = diverged(told([*usual(30), *[math.nan] * 12]))
    assert found is not None
    every_tenth = [loss for loss in usual(12) for _ in range(10)]
    assert diverged(told([*every_tenth, *[math.nan] * 80])) is not None


def test_what_is_printed_is_believed_at_once() -> None:
    assert diverged(told([*usual(30), math.nan, math.nan], printed=True)) is not None


def test_a_loss_that_stands_is_one_loss() -> None:
    assert told([2.0, 2.0, 2.0, 1.5, 1.5]) == [(1, 2.0), (4, 1.5)]


def test_a_bar_that_begins_anew() -> None:
    shown, is_new = Shown(loss=2.0, at=900).with_line(3, 2.0)
    assert is_new
    assert shown.at == 3
