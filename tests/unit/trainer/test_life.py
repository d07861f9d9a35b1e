"""Signs of life, and the pace that they make."""

from __future__ import annotations

import pytest
from rtj_api.rules.hang import Standing, limit_of
from rtj_sidecar.trainer.life import Life, silence


def stepped(*gaps: float, at: float = 1000.0) -> Life:
    life = Life().begun(now=at)
    now = at + 30  # the first step compiles
    life = life.with_step(1, now=now)
    for step, gap in enumerate(gaps, 2):
        now += gap
        life = life.with_step(step, now=now)
    return life


def test_the_first_step_and_too_few_make_no_pace() -> None:
    assert Life().pace.usual is None
    assert stepped(1, 1, 1, 1).pace.usual is None
    life = stepped(1, 1, 1, 1, 1.5)
    assert life.pace.usual == 1.5
    assert life.longest == 1.5, "the thirty seconds before the first step are none of it"


def test_the_pace_goes_from_attempt_to_attempt_and_the_clock_begins_anew() -> None:
    life = stepped(1, 1, 1, 1, 1).begun(now=5000.0)
    assert life.pace.usual == 1
    assert life.with_step(900, now=5300.0).pace.usual == 1
    assert life.sign_at == 5000.0


def test_a_save_between_two_steps_is_treated_apart() -> None:
    life = stepped(1, 1, 1, 1, 1)
    now = (life.step_at or 0) + 60
    life = life.with_saving(now=now - 20, moves=True).with_step(99, now=now)
    assert life.pace.usual == 1
    assert life.longest == 60
    assert life.with_step(100, now=now + 1).pace.usual == 1


def test_a_save_is_a_sign_while_it_moves() -> None:
    life = stepped(1, at=0.0)
    assert life.with_saving(now=90.0, moves=True).sign_at == 90
    assert life.with_saving(now=90.0, moves=False).sign_at == 31


@pytest.mark.parametrize(
    "line",
    [
        "[rank0]:[W1130 10:00:00 ProcessGroupNCCL.cpp:1785] Heartbeat monitor",
        "[PG ID 0 PG GUID 0(default_pg) Rank 3] watchdog still waits",
        "still waiting for ranks 3",
        "Current thread 0x00007f2b (most recent call first):",
        '  File "/app/train.py", line 12 in fetch',
    ],
)
def test_what_a_watchdog_or_our_own_look_prints_is_no_sign(line: str) -> None:
    life = stepped(1, at=0.0)
    assert life.with_lines([line], now=99.0).sign_at == 31
    assert life.with_lines([line, "evaluating"], now=99.0).sign_at == 99


def test_a_stillness_that_ends_by_itself_was_survived() -> None:
    life = stepped(1, at=0.0).with_stillness(40.0, now=42.0).with_stillness(40.0, now=49.0)
    assert life.survived == 0
    assert life.with_stillness(None, now=52.0).survived == 12


def test_a_stillness_that_a_restart_ended_is_given_more_time_the_next_time() -> None:
    """A last upload that takes a minute must not be cut short by each restart."""
    life = stepped(1, 1, 1, 1, 1, at=0.0).with_stillness(31.0, now=51.0).begun(now=51.0)
    assert life.survived == 20
    assert limit_of(Standing.STILL, life.pace) == 40
    stopped = stepped(1, at=0.0).with_stillness(40.0, now=47.0, is_stopped=True)
    assert stopped.begun(now=47.0).survived == 0
    assert stopped.with_stillness(None, now=90.0).survived == 0


def test_a_silence_that_a_restart_ended_is_given_more_time_the_next_time() -> None:
    """An evaluation of forty minutes that prints nothing must not be cut short by each restart."""
    life = stepped(1, 1, 1, 1, 1, at=0.0)
    for now in range(36, 1836, 9):
        life = life.with_look(now=float(now))
    assert limit_of(Standing.WORKING, life.pace) == 1800
    # The pods may wait long for the next attempt: nothing trains meanwhile.
    assert limit_of(Standing.WORKING, life.begun(now=90_000.0).pace) == pytest.approx(2 * 1792)
    crashed = stepped(1, 1, 1, 1, 1, at=0.0).with_look(now=36.0).begun(now=90_000.0)
    assert limit_of(Standing.WORKING, crashed.pace) == 1800


def test_time_that_nobody_watched_is_no_silence() -> None:
    """A pod that was paused with its node, or a clock that was set."""
    life = stepped(1, 1, 1, 1, 1, at=0.0).with_look(now=36.0).with_stillness(35.0, now=36.0)
    for later in (3600.0, 2.0):
        woken = life.with_look(now=later)
        assert silence(woken, standing=Standing.WORKING, now=later) is None
        assert silence(woken, standing=Standing.STILL, now=later) is None
        assert woken.with_stillness(None, now=later).survived == 0
        assert woken.with_step(99, now=later + 1).longest == 1
    assert life.with_look(now=36.5).sign_at == life.sign_at


def test_a_helper_that_its_program_has_paused_stops_nothing() -> None:
    life = stepped(1, 1, 1, 1, 1, at=0.0)
    assert life.sign_at == 35
    assert life.goes_on_without(20.0)
    assert not life.goes_on_without(34.0), "these lines may have been printed before"
    found_late = life.with_sign(at=60.0)
    assert not found_late.goes_on_without(34.0), "a save of before the signal"
