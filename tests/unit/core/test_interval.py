"""The interval formulas against published and computed vectors (minutes)."""

from __future__ import annotations

import pytest
from rtj_api.rules import interval

VECTORS = [
    # stall, mtti, Young, Daly
    (5, 1440, 120.000, 116.69),
    (5, 360, 60.000, 56.713),
    (5, 15, 12.247, 9.141),
    (5, 150, 38.730, 35.468),
    (2, 150, 24.495, 23.180),
    (0.75, 150, 15.000, 14.504),
    (0.5, 150, 12.247, 11.916),
    (1 / 300, 150, 1.000, 0.998),
]


@pytest.mark.parametrize(("stall", "mtti", "young", "daly"), VECTORS)
def test_vectors(stall: float, mtti: float, young: float, daly: float) -> None:
    assert interval.young(stall=stall, mtti=mtti) == pytest.approx(young, abs=6e-4)
    assert interval.daly(stall=stall, mtti=mtti) == pytest.approx(daly, abs=6e-3)


def test_a_stall_beyond_twice_the_mtti_gives_the_mtti() -> None:
    assert interval.daly(stall=40, mtti=15) == 15


def test_clamps() -> None:
    free = interval.recommended(stall=0.5, mtti=150)
    assert free == pytest.approx(11.916, abs=1e-3)
    assert interval.recommended(stall=0.5, mtti=150, durable_latency=20) == 20
    assert interval.recommended(stall=0.5, mtti=150, step=30) == 30
    assert interval.recommended(stall=0.5, mtti=150, longest=5) == 5


def test_live_estimate() -> None:
    seen = interval.interruption_mean(uptime=600, interruptions=3, prior_mtti=1730.77)
    assert seen == pytest.approx(582.69, abs=0.01)
    none = interval.interruption_mean(uptime=600, interruptions=0, prior_mtti=1730.77)
    assert none == pytest.approx(2330.77, abs=0.01)
