"""What a sidecar makes of its supervisor's word about a trainer without a sign of life."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from rtj_api.rules.hang import Standing
from rtj_api.wire import StallView, StillView
from rtj_sidecar.hanging import watch
from rtj_sidecar.station import Station
from rtj_sidecar.trainer.life import Life
from rtj_sidecar.trainer.progress import Progress


class Told:
    """The report, as far as it is about this."""

    def __init__(self) -> None:
        self.current = SimpleNamespace(transfers=[])
        self.stall: StallView | None = None

    def set(self, *, stall: StallView | None) -> None:
        self.stall = stall


def a_station(**state: Any) -> Any:
    """A trainer with a step a second, the last one at 1005."""
    life = Life().begun(now=990.0)
    for step in range(1, 17):
        life = life.with_step(step, now=989.0 + step)
    word = {"still": None, "open_for_writing": [], "written_at": 1005.0, "stacks": None, **state}
    return SimpleNamespace(
        supervisor=SimpleNamespace(**word),
        is_training=True,
        is_after_go=True,
        is_writing=False,
        attempt=1,
        asked_for_stacks=None,
        life=life,
        progress=Progress(),
        reporter=Told(),
        link=SimpleNamespace(look=lambda wish: None),
        site=SimpleNamespace(config=SimpleNamespace(hang_timeout_seconds=None, stack_signal=None)),
    )


def stall_of(at: Any, *, now: float, written_at: float) -> StallView | None:
    at.supervisor.written_at = written_at
    watch(cast(Station, at), [], now=now)
    return cast("StallView | None", at.reporter.stall)


STILL = StillView(kind="still", since=1005.0)


def test_one_that_does_nothing_is_told() -> None:
    stall = stall_of(a_station(still=STILL), now=1011.0, written_at=1010.5)
    assert stall is not None
    assert (stall.standing, stall.since) == (Standing.STILL, 1005.0)


@pytest.mark.parametrize("kind", ["still", "stopped"])
def test_what_a_supervisor_said_that_is_paused_itself_is_no_news(kind: str) -> None:
    """A container that is paused with all that is in it, to be copied or to save power."""
    at = a_station(still=StillView(kind=kind, since=1005.0))
    assert stall_of(at, now=1011.0, written_at=1005.5) is None


def test_a_rank_with_a_helper_that_its_program_paused_is_not_stopped() -> None:
    at = a_station(still=StillView(kind="stopped", since=992.0))
    assert stall_of(at, now=1012.0, written_at=1011.5) is None
    at = a_station(still=StillView(kind="stopped", since=1005.0))
    stall = stall_of(at, now=1012.0, written_at=1011.5)
    assert stall is not None
    assert stall.standing is Standing.STOPPED


def test_before_the_first_step_of_an_attempt_the_pace_of_its_steps_says_nothing() -> None:
    """It reads its save, looks for its data, meets the other ranks: the first step is apart."""
    at = a_station(still=StillView(kind="still", since=2002.0))
    assert at.life.pace.usual == 1
    at.life = at.life.begun(now=2000.0)
    stall = stall_of(at, now=2020.0, written_at=2019.5)
    assert stall is not None
    assert stall.pace.usual is None
    at.life = at.life.with_step(17, now=2021.0)
    at.supervisor.still = StillView(kind="still", since=2021.0)
    stall = stall_of(at, now=2030.0, written_at=2029.5)
    assert stall is not None
    assert stall.pace.usual == 1
