"""What a save costs a trainer, told from outside: its steps come late, its files are written."""

from __future__ import annotations

import pytest
from rtj_sidecar.trainer.pace import Pace, Saved, usual_spacing


def ran(*, until: float, steps: dict[int, float], usual: float = 10.0) -> Pace:
    """Steps of `usual` seconds, each told at its end; `steps` says which of them took longer."""
    pace, at, step = Pace(), 0.0, 0
    while at < until:
        step += 1
        at += usual + steps.get(step, 0.0)
        pace = pace.with_sign(step, at=at)
    return pace


def told(pace: Pace) -> tuple[float, int]:
    return round(pace.stall, 6), pace.stalls


def test_a_save_between_two_steps_stalls_for_as_long_as_the_next_one_is_late() -> None:
    # Step 10 ends at 100, the save is written from 100 to 145, step 11 ends at 155.
    pace = ran(until=150, steps={11: 45})
    assert told(pace.with_save(Saved(begun=100.5, ended=145, step=10))) == (45, 1)


def test_a_save_that_no_step_has_followed_yet_is_measured_when_one_does() -> None:
    pace = ran(until=100, steps={}).with_save(Saved(begun=100.5, ended=145, step=10))
    assert told(pace) == (0, 0)
    assert told(pace.with_sign(11, at=155)) == (45, 1)


def test_a_step_printed_after_its_save_hides_nothing() -> None:
    # The save of step 10 lies before the line of step 10.
    pace = ran(until=150, steps={10: 45})
    assert told(pace.with_save(Saved(begun=100.5, ended=140, step=10))) == (45, 1)


def test_of_a_save_that_is_written_behind_the_steps_only_the_snapshot_stalls() -> None:
    # 3 s for the snapshot after step 10 and 1 s for each of four steps that run beside the writing.
    slow = {11: 3.0} | dict.fromkeys(range(12, 16), 1.0)
    pace = ran(until=300, steps=slow)
    assert told(pace.with_save(Saved(begun=110, ended=157, step=10))) == (7, 1)
    assert told(ran(until=300, steps={}).with_save(Saved(begun=110, ended=157, step=10))) == (0, 1)


def test_two_saves_in_one_gap_stall_once() -> None:
    pace = ran(until=200, steps={11: 45})
    pace = pace.with_save(Saved(begun=101, ended=120, step=10))
    assert told(pace.with_save(Saved(begun=121, ended=144, step=10))) == (45, 2)


def test_steps_of_another_count_and_too_few_steps_measure_nothing() -> None:
    pace = Pace()
    for at, step in enumerate((1, 2, 3, 4, 1, 2, 3), start=1):  # a counter of each epoch
        pace = pace.with_sign(step, at=10.0 * at)
    assert told(pace.with_save(Saved(begun=41, ended=49, step=4))) == (0, 0)
    few = Pace().with_sign(1, at=10).with_sign(2, at=70)
    assert told(few.with_save(Saved(begun=11, ended=60, step=1))) == (0, 0)


def test_lines_that_tell_every_tenth_step() -> None:
    pace = Pace()
    for number in range(1, 30):
        late = 45.0 if number > 12 else 0.0
        pace = pace.with_sign(10 * number, at=100.0 * number + late)
    assert told(pace.with_save(Saved(begun=1250, ended=1294, step=125))) == (45, 1)


def test_the_same_step_told_again_is_no_sign() -> None:
    pace = ran(until=100, steps={})
    assert pace.with_sign(10, at=500) == pace


@pytest.mark.parametrize(
    ("ends", "spacing"),
    [
        ([], None),
        ([(10, 100.0)], None),
        ([(10, 100.0), (20, 1000.0)], 900.0),
        # Two files of one step are one save, whenever each was finished.
        ([(10, 100.0), (10, 100.004), (20, 1000.0), (20, 1000.02)], 900.0),
        # The last save, at the trainer's end, says nothing of the usual ones.
        ([(10, 0.0), (20, 900.0), (30, 1810.0), (33, 1900.0), (40, 2700.0)], 850.0),
        # Without steps each is one.
        ([(None, 0.0), (None, 60.0)], 60.0),
    ],
)
def test_spacing(ends: list[tuple[int | None, float]], spacing: float | None) -> None:
    assert usual_spacing(ends) == spacing
