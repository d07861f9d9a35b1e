"""The band of a loss, and the first losses after a resume against it."""

from __future__ import annotations

import math
import random

import pytest
from rtj_api.wire import LossState
from rtj_sidecar.trainer.losses import FIRST, KEPT, LEAST, Losses, check


def followed(*losses: float) -> Losses:
    trail = Losses(from_start=True)
    for loss in losses:
        trail = trail.with_log(loss)
    return trail


def noisy(count: int, *, centre: float, noise: float, slope: float = 0.0) -> list[float]:
    source = random.Random(7)
    return [centre + slope * at + source.gauss(0, noise) for at in range(count)]


def test_a_loss_that_falls_steadily_is_not_noisy() -> None:
    band = followed(*[2.0 - 0.01 * at for at in range(40)]).band()
    assert band is not None
    assert band["noise"] == pytest.approx(0, abs=1e-9)
    assert band["loss"] == pytest.approx(2.0 - 0.01 * 35.5)
    noisily = followed(*noisy(60, centre=2, noise=0.1, slope=-0.01)).band()
    assert noisily is not None
    assert 0.05 < noisily["noise"] < 0.2
    assert noisily["samples"] == 60


def test_too_few_or_none_make_no_band() -> None:
    assert Losses().band() is None
    assert followed(*[1.0] * (LEAST - 1)).band() is None
    assert followed(*[math.nan] * 50).band() is None
    assert len(followed(*[1.0] * 500).log) == KEPT


def test_the_progress_file_goes_before_the_log() -> None:
    trail = followed(*[9.0] * 20)
    for _ in range(20):
        trail = trail.with_file(1.0)
    band = trail.band()
    assert band is not None
    assert band["loss"] == 1.0
    assert trail.first == (1.0,) * FIRST


BAND = {"loss": 2.0, "noise": 0.1, "samples": 40.0}
CASES = {
    "the same": (BAND, [2.0, 2.1, 1.9, 2.05], LossState.WITHIN),
    "a little lower": (BAND, [1.7, 1.8, 1.6, 1.7], LossState.WITHIN),
    "as from the beginning": (BAND, [8.1, 7.9, 8.0, 8.2], LossState.OUTSIDE),
    "far lower": (BAND, [0.2, 0.1, 0.2, 0.1], LossState.OUTSIDE),
    "not finite": (BAND, [2.0, math.nan], LossState.OUTSIDE),
    "infinite": (BAND, [math.inf], LossState.OUTSIDE),
    "no noise, printed with two digits": (
        {**BAND, "noise": 0.0},
        [2.01, 2.02, 1.99, 2.0],
        LossState.WITHIN,
    ),
    "one odd batch": (BAND, [2.0, 9.0, 2.1, 1.9], LossState.WITHIN),
    "nothing recorded": (None, [2.0] * 4, LossState.UNKNOWN),
    "nonsense recorded": ({"loss": "x", "noise": True}, [2.0] * 4, LossState.UNKNOWN),
}


@pytest.mark.parametrize("case", CASES)
def test_the_first_losses_against_the_band(case: str) -> None:
    band, first, state = CASES[case]
    found = check(band, first)
    assert found is not None
    assert found.state is state
    if state is LossState.WITHIN:
        assert (found.expected, found.samples) == (2.0, 4)
        assert found.seen is not None


def test_it_waits_for_enough_of_them() -> None:
    assert check(BAND, []) is None
    assert check(BAND, [2.0] * (FIRST - 1)) is None


def test_what_was_not_followed_from_the_start_has_no_first() -> None:
    trail = Losses()  # a sidecar that came back in the middle
    for _ in range(20):
        trail = trail.with_log(1.0)
    assert trail.first == ()
    assert trail.band() is not None
