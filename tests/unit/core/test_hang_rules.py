"""When a gang hangs, and who is to blame: tables."""

from __future__ import annotations

import pytest
from rtj_api.rules.hang import Pace, Stall, Standing, hanging, limit_of, p99

FAST = Pace(usual=1.0, longest=1.4)
NONE = Pace()


def stall(standing: Standing = Standing.STILL, *, since: float = 100, **fields: object) -> Stall:
    return Stall(standing=standing, since=since, **{"pace": FAST, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("standing", "pace", "limit"),
    [
        (Standing.STOPPED, FAST, 6),
        (Standing.STOPPED, Pace(usual=20), 60),
        (Standing.STOPPED, NONE, 30),
        (Standing.STILL, FAST, 30),
        (Standing.STILL, Pace(usual=60), 180),
        (Standing.STILL, Pace(usual=1, survived=45), 90),
        (Standing.STILL, Pace(usual=0.1, survived=2), 30),
        (Standing.STILL, NONE, 600),
        (Standing.WORKING, FAST, 1800),
        (Standing.WORKING, Pace(usual=300), 3000),
        (Standing.WORKING, Pace(usual=1, longest=1200), 3600),
        (Standing.WORKING, NONE, 7200),
    ],
)
def test_limits(standing: Standing, pace: Pace, limit: float) -> None:
    assert limit_of(standing, pace) == limit


def test_p99() -> None:
    assert p99([1.0]) == 1.0
    assert p99([float(n) for n in range(1, 101)]) == 99.0
    assert p99([1.0] * 199 + [60.0]) == 1.0, "one slow step of two hundred is not the usual one"


def test_all_ranks_have_to_stand() -> None:
    assert hanging({0: stall(), 1: None}) is None
    assert hanging({}) is None
    found = hanging({0: stall(since=100), 1: stall(since=103)})
    assert found is not None
    assert (found.since, found.limit) == (103, 30)


def test_one_that_works_may_be_what_the_others_wait_for() -> None:
    """Rank 0 evaluates or saves alone, the others wait for it and do nothing."""
    found = hanging({0: stall(Standing.WORKING), 1: stall(), 2: stall()})
    assert found is not None
    assert found.limit == 1800
    assert found.rank == 0


def test_one_that_is_stopped_by_a_signal_hangs_whatever_the_others_do() -> None:
    """They may spin in a collective on their GPUs, or not be silent for long enough to be told."""
    found = hanging({0: None, 1: stall(Standing.STOPPED, since=50)})
    assert found is not None
    assert (found.rank, found.since, found.limit) == (1, 50, 30 if FAST.usual is None else 6)
    assert "stopped by a signal" in found.why


def test_the_pace_of_the_rank_that_prints_is_the_gangs() -> None:
    found = hanging({0: stall(), 1: stall(pace=NONE)})
    assert found is not None
    assert found.limit == 30


def test_a_persons_own_limit_counts_alone() -> None:
    found = hanging({0: stall(Standing.WORKING), 1: stall()}, timeout=42)
    assert found is not None
    assert found.limit == 42


WAITS = ("process 7: python (sleeps)", "  thread 7: all_reduce (torch/distributed)")
LOADS = ("process 7: python (sleeps)", "  thread 7: fetch_next (loader.py:12)")


def test_the_culprit_is_the_rank_that_is_not_in_the_collective() -> None:
    found = hanging(
        {0: stall(stacks=WAITS, fell_at=90), 1: stall(stacks=LOADS, fell_at=95), 2: stall()}
    )
    assert found is not None
    assert found.rank == 1
    assert "not in it" in found.why


def test_where_no_stack_tells_the_culprit_is_who_fell_still_first() -> None:
    found = hanging({0: stall(fell_at=91.5), 1: stall(fell_at=90.2), 2: stall(fell_at=91.4)})
    assert found is not None
    assert found.rank == 1


def test_who_alone_does_nothing_while_the_others_spin() -> None:
    spin = Standing.WORKING
    found = hanging({0: stall(spin), 1: stall(spin), 2: stall(), 3: stall(spin)})
    assert found is not None
    assert found.rank == 2
