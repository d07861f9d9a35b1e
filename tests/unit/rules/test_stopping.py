"""Whether one stop step for all ranks can be kept in the time that is left: a table."""

from __future__ import annotations

import pytest
from rtj_api.rules.stopping import (
    RankPace,
    SaveCosts,
    StopVerdict,
    first_step_after,
    lead_seconds,
    plan_stop,
    seconds_to_signal,
)

AGREED, FINISH_LAST, TOO_LATE = StopVerdict
USUAL = SaveCosts(save=4.0, upload=10.0)


def ranks(*steps: int | None, pace: float | None = 1.0, age: float = 0.0) -> list[RankPace]:
    return [RankPace(rank=n, step=s, pace=pace, age=age) for n, s in enumerate(steps)]


@pytest.mark.parametrize(
    ("gang", "left", "costs", "verdict", "words"),
    [
        # 6 s to step 106, 1.5 x 4 s to save, 10 s to ship, 2 s to spare: 24 s
        (ranks(100, 100), 24.1, USUAL, AGREED, "6.0 s to step 106 from 100 at 1 s a step"),
        (ranks(100, 100), 23.9, USUAL, FINISH_LAST, "= 24.0 s, and 23.9 s are left"),
        (ranks(100, 100), 23.9, SaveCosts(save=4, upload=10, pending=20), FINISH_LAST, "20.0 s"),
        (ranks(100, 100), 23.9, SaveCosts(save=4, upload=10, pending=30), TOO_LATE, "30.0 s more"),
        # one rank is behind in what it told: the step lies ahead of the first
        (ranks(100, 90), 34.1, USUAL, AGREED, "16.0 s to step 106 from 90"),
        # a word that is old: the rank went on since
        (ranks(100, age=20), 60, USUAL, AGREED, "to step 128"),
        # slow steps cost more than the grace of most templates
        (ranks(100, pace=30), 75, USUAL, FINISH_LAST, "60.0 s to step 102"),
        (ranks(100, pace=30), 90, USUAL, AGREED, "60.0 s to step 102"),
        # nothing measured yet: a careful guess, and said to be one
        (ranks(5), 18.1, SaveCosts(), AGREED, "5.0 s to save (assumed: none was measured)"),
        (ranks(5), 17.9, SaveCosts(), FINISH_LAST, "5.0 s to ship it (assumed: none was measured)"),
        # what cannot be known or told
        (ranks(100, None), 330, USUAL, FINISH_LAST, "the step of rank 1 is not known"),
        (ranks(100, pace=None), 330, USUAL, FINISH_LAST, "the pace of rank 0 is not known"),
        ([*ranks(1), RankPace(rank=1, is_reachable=False)], 330, USUAL, FINISH_LAST, "rank 1 can"),
        ([], 330, USUAL, FINISH_LAST, "no ranks"),
        (ranks(100), -3, USUAL, FINISH_LAST, "-3.0 s are left"),
    ],
)
def test_the_sum(
    gang: list[RankPace], left: float, costs: SaveCosts, verdict: StopVerdict, words: str
) -> None:
    found = plan_stop(gang, left=left, costs=costs)
    assert found.verdict is verdict, found.why
    assert words in found.why
    assert (found.step is not None) == (verdict is AGREED)


@pytest.mark.parametrize(
    ("count", "step", "words"),
    [
        (2, 106, "6.0 s to step 106 from 100 at 1 s a step (of which 4.0 s to tell 2 ranks)"),
        (200, 111, "11.0 s to step 111 from 100 at 1 s a step (of which 8.0 s to tell 200 ranks)"),
        (1000, 128, "(of which 24.0 s to tell 1000 ranks)"),
    ],
)
def test_many_ranks_take_longer_to_tell(count: int, step: int, words: str) -> None:
    """A step that some have passed when they are told would be another for each."""
    found = plan_stop(ranks(*[100] * count), left=330, costs=USUAL)
    assert found.step == step
    assert words in found.why
    assert first_step_after(100, age=0, pace=1.0, lead=lead_seconds(count)) == step
    assert plan_stop(ranks(*[100] * 1000), left=40, costs=USUAL).verdict is FINISH_LAST


@pytest.mark.parametrize(
    ("grace", "seconds"), [(330, 322), (30, 22), (10, 3.5), (4, 0.5), (3, 0), (0, 0)]
)
def test_a_trainer_is_signalled_while_its_pod_still_has_time(grace: float, seconds: float) -> None:
    assert seconds_to_signal(grace) == seconds


def test_where_pods_stay_until_the_save_is_shipped_only_the_save_counts() -> None:
    found = plan_stop(ranks(100), left=14.1, costs=USUAL, ships=False)
    assert found.verdict is AGREED
    assert "ship" not in found.why
    assert plan_stop(ranks(100), left=13.9, costs=USUAL, ships=False).verdict is FINISH_LAST


@pytest.mark.parametrize("pace", [0.001, 0.05, 1.0, 7.0, 300.0])
def test_nobody_can_be_there_before_it_is_told(pace: float) -> None:
    """A rank that runs a tenth faster than it did, told four seconds later."""
    step = first_step_after(1000, age=0.5, pace=pace)
    reached = 1000 + (0.5 + 4.0) / pace * 1.1
    assert reached < step
    assert step <= reached + 0.5 / pace * 1.1 + 3


def test_the_trainers_get_the_time_that_shipping_leaves_and_not_much_more_than_they_need() -> None:
    assert plan_stop(ranks(100), left=24.1, costs=USUAL).last_for == pytest.approx(13.1)
    assert plan_stop(ranks(100), left=1000, costs=USUAL).last_for == pytest.approx(24.0)
