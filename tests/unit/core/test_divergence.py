"""When a loss is beyond repair, and when it only looks so."""

from __future__ import annotations

import math
import random

import pytest
from rtj_api.rules.divergence import Kind, diverged


def losses(*values: float) -> list[tuple[int | None, float]]:
    return list(enumerate(values, 100))


def usual(count: int = 40, *, centre: float = 2.0) -> list[float]:
    source = random.Random(5)
    return [centre + source.gauss(0, 0.05) for _ in range(count)]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_two_that_are_no_numbers_are_enough(bad: float) -> None:
    found = diverged(losses(*usual(), bad, bad))
    assert found is not None
    assert (found.kind, found.step) == (Kind.NOT_FINITE, 140)
    assert "since step 140" in found.message


def test_a_job_whose_very_first_losses_are_no_numbers() -> None:
    found = diverged([(None, math.nan), (None, math.nan)])
    assert found is not None
    assert (found.kind, found.step) == (Kind.NOT_FINITE, None)


def test_one_skipped_step_is_none() -> None:
    assert diverged(losses(*usual(), math.nan)) is None
    assert diverged(losses(*usual(), math.nan, 2.0)) is None
    assert diverged(losses(*usual(), math.inf, 2.1, math.inf)) is None


def test_an_explosion_that_lasts() -> None:
    found = diverged(losses(*usual(), 9.0, 11.0, 14.0))
    assert found is not None
    assert (found.kind, found.step) == (Kind.EXPLODED, 140)
    assert "is 14" in found.message


def test_a_spike_that_passes_is_none() -> None:
    assert diverged(losses(*usual(), 9.0, 11.0, 2.4)) is None
    assert diverged(losses(*usual(), 9.0, 11.0)) is None


def test_a_noisy_loss_around_zero_is_judged_by_its_noise() -> None:
    source = random.Random(9)
    rewards = [source.gauss(0, 1.0) for _ in range(60)]
    assert diverged(losses(*rewards, 3.0, 4.0, 5.0)) is None
    assert diverged(losses(*rewards, 300.0, 400.0, 500.0)) is not None


def test_no_prefix_of_a_usual_training_is_taken_for_one() -> None:
    for seed in range(50):
        source = random.Random(seed)
        curve = [
            8 * math.exp(-at / 60) + 2 + source.gauss(0, 0.2) + (6 if at % 97 == 96 else 0)
            for at in range(400)
        ]
        told = losses(*curve)
        found = [diverged(told[max(0, n - 64) : n]) for n in range(len(told))]
        assert not any(found), seed


def test_a_beginning_has_no_history_to_explode_from() -> None:
    assert diverged(losses(1.0, 50.0, 60.0, 70.0)) is None


def test_what_several_ranks_say_of_one_step_is_one_loss() -> None:
    """One skipped step, told by eight ranks, or by the micro batches of one."""
    skipped = [(140, math.nan)] * 8
    assert diverged([*losses(*usual()), *skipped]) is None
    assert diverged([*losses(*usual()), *skipped, (141, 2.0)]) is None
    found = diverged([*losses(*usual()), *skipped, *[(141, math.nan)] * 8])
    assert found is not None
    assert found.step == 140
    # Of one rank's bad batch the others know nothing.
    one = [(step, math.nan if rank == 3 else 2.0) for step in (140, 141) for rank in range(4)]
    assert diverged([*losses(*usual()), *one[:4]]) is None
    assert diverged([*losses(*usual()), *one]) is None


def test_an_explosion_that_eight_ranks_tell_of_is_one() -> None:
    every = [(step, loss) for step, loss in losses(*usual(), 9.0, 11.0, 14.0) for _ in range(8)]
    found = diverged(every)
    assert found is not None
    assert (found.kind, found.step) == (Kind.EXPLODED, 140)


def test_an_evaluation_told_under_one_step_is_no_explosion() -> None:
    assert diverged([*losses(*usual()), *[(139, 9.0 + at) for at in range(20)]]) is None
