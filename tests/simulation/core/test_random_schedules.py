"""Random schedules of faults, then quiet: the job comes to rest and stays, and no law is broken.

Two dozen here, each its own test by its seed; ten thousand by `make schedules`.
"""

from __future__ import annotations

import functools
import os

import pytest
from kit.doors import DOOR_FAULTS
from kit.schedules import drawn, play
from kit.weather import FAULTS

COUNT = int(os.environ.get("RTJ_SCHEDULES", "24"))
FIRST = int(os.environ.get("RTJ_FIRST_SEED", "0"))

pytestmark = pytest.mark.xdist_group("schedules")
played = functools.cache(play)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_it_comes_to_rest_and_stays(seed: int) -> None:
    """`play` asserts the laws after each event, and rest at the end."""
    assert played(seed).log


def test_a_seed_is_a_schedule() -> None:
    """Else nothing could be replayed."""
    assert play(7).log == played(7).log
    assert drawn(7).words() != drawn(8).words()


def test_every_fault_strikes() -> None:
    """Each kind is drawn by some of these seeds, and can be carried out."""
    seen = {name for seed in range(FIRST, FIRST + 24) for name in _struck(seed)}
    assert seen >= set(DOOR_FAULTS), set(DOOR_FAULTS) - seen
    assert len(seen & set(FAULTS)) >= len(FAULTS) - 3, set(FAULTS) - seen


def _struck(seed: int) -> set[str]:
    done = played(seed)
    return {name for name, count in (done.weather.counts + done.doors.counts).items() if count}
