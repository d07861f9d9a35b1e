"""The interval formulas against published and computed vectors (minutes)."""

from __future__ import annotations

import math

import pytest
from rtj_api.rules import interval

VECTORS = [
    # stall, mtti, Young, Daly, exact
    (5, 1440, 120.000, 116.69, 116.69),
    (5, 360, 60.000, 56.713, 56.714),
    (5, 15, 12.247, 9.141, 9.167),
    (5, 150, 38.730, 35.468, 35.471),
    (2, 150, 24.495, 23.180, 23.180),
    (0.75, 150, 15.000, 14.504, 14.504),
    (0.5, 150, 12.247, 11.916, 11.916),
    (1 / 300, 150, 1.000, 0.998, 0.998),
]


@pytest.mark.parametrize(("stall", "mtti", "young", "daly", "exact"), VECTORS)
def test_vectors(stall: float, mtti: float, young: float, daly: float, exact: float) -> None:
    assert interval.exact(stall=stall, mtti=mtti) == pytest.approx(exact, abs=6e-4)
    assert interval.young(stall=stall, mtti=mtti) == pytest.approx(young, abs=6e-4)
    assert interval.daly(stall=stall, mtti=mtti) == pytest.approx(daly, abs=6e-3)


def test_a_stall_beyond_twice_the_mtti_gives_the_mtti() -> None:
    assert interval.daly(stall=40, mtti=15) == 15


@pytest.mark.parametrize("mtti", [1e-3, 1.0, 150.0, 1e7])
@pytest.mark.parametrize("cost", [1e-15, 1e-11, 1e-6, 0.01, 0.3, 1.0, 2.0, 40.0, 1e6])
def test_the_exact_one_costs_no_more_than_its_neighbours(cost: float, mtti: float) -> None:
    """Against what it is the optimum of: wall time by work, (e^((τ+C)/M) − 1)/τ (C5)."""
    best = interval.exact(stall=cost * mtti, mtti=mtti) / mtti
    assert 0 < best <= 1

    def costs(share: float) -> float:
        segment = share + cost
        return segment + math.log(-math.expm1(-segment)) - math.log(share)

    for other in (0.9 * best, 1.1 * best):
        assert costs(best) <= costs(other)


def test_a_save_that_costs_nothing_has_no_interval() -> None:
    assert interval.exact(stall=0, mtti=150) == 0


def test_two_tiers() -> None:
    """C9 has Young's form: 1.000 and 24.495; the exact one is a little less, as in C3."""
    found = interval.tiers(local_stall=1 / 300, durable_stall=0.5, mtti=150, local_loss_share=0.25)
    assert found.local == pytest.approx(0.998, abs=1e-3)
    assert interval.young(stall=0.5, mtti=150 / 0.25) == pytest.approx(24.495, abs=1e-3)
    assert found.durable == pytest.approx(24.163, abs=1e-3)


def test_the_share_of_faults_that_lose_local_copies() -> None:
    assert interval.share_seen(losses=0, faults=0) == 0.25
    assert interval.share_seen(losses=2, faults=4) == pytest.approx(0.45)


def test_the_size_of_a_full_state_and_the_bandwidth_it_needs() -> None:
    assert interval.full_state_bytes(405e9) == pytest.approx(4.86e12)
    for size, needed in ((350e9, 1.17e9), (500e9, 1.67e9)):
        found = interval.needed_bandwidth(size=size, seconds=300)
        assert found == pytest.approx(needed, rel=5e-3)


def test_clamps() -> None:
    free = interval.daly(stall=0.5, mtti=150)
    assert free == pytest.approx(11.916, abs=1e-3)
    assert interval.clamped(free) == free
    assert interval.clamped(free, durable_latency=20) == 20
    assert interval.clamped(free, step=30) == 30
    assert interval.clamped(free, durable_latency=20, step=30, longest=5) == 5


def test_live_estimate() -> None:
    seen = interval.interruption_mean(uptime=600, interruptions=3, prior_mtti=1730.77)
    assert seen == pytest.approx(582.69, abs=0.01)
    none = interval.interruption_mean(uptime=600, interruptions=0, prior_mtti=1730.77)
    assert none == pytest.approx(2330.77, abs=0.01)


def test_nodes_in_series_fail_together() -> None:
    hours = [(8, 461.538), (128, 28.846), (1024, 3.606), (2048, 1.803), (16384, 0.225)]
    for nodes, expected in hours:
        seen = interval.series_mtti(nodes=nodes, per_node_day=6.5e-3) / 60
        assert seen == pytest.approx(expected, abs=5e-4)


def test_overhead() -> None:
    some = interval.overhead(stall=0.75, interval=15, mtti=150, down=1 + 5)
    assert some == pytest.approx(0.14000, abs=5e-6)
    little = interval.overhead(stall=0.1, interval=5.48, mtti=150, down=0.5 + 2)
    assert little == pytest.approx(0.05318, abs=5e-6)


def test_a_budget_for_stalls_would_cost_more_than_it_saves() -> None:
    """Why C8's is no clamp: at most 3.5 % for stalls of 45 s, every 150 minutes a fault."""
    budgeted = 0.75 * (1 - 0.035) / 0.035
    assert budgeted == pytest.approx(20.679, abs=1e-3)
    best = interval.exact(stall=0.75, mtti=150)
    costs = [interval.overhead(interval=i, stall=0.75, mtti=150) for i in (best, budgeted)]
    assert costs[0] < costs[1]


def test_steps() -> None:
    assert interval.steps_of(14.504 * 60, step=12) == 73
    assert interval.steps_of(1, step=12) == 1


def test_the_tenth_is_right_where_the_stall_is_a_two_hundredth() -> None:
    assert interval.mtti_fraction(mtti=150) == pytest.approx(interval.young(stall=0.75, mtti=150))
