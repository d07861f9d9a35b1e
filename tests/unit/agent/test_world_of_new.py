"""By which world what is new in the directory is judged: that of the attempt that makes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from rtj_sidecar.journal import Entry
from rtj_sidecar.opening import world_of_new


@pytest.mark.parametrize(
    ("went", "noted", "world"),
    [
        (0, None, None),  # no trainer ran in this pod: all was there before
        (3, 4, 4),  # the trainer of this attempt
        (2, 2, 2),  # scaled up, and the trainer before it has not ended yet
        (2, 8, 8),  # scaled down
        (2, None, 4),  # the journal of an older sidecar
    ],
)
def test_world_of_what_is_new(went: int, noted: int | None, world: int | None) -> None:
    station: Any = SimpleNamespace(
        link=SimpleNamespace(told_to_go=lambda: went),
        journal=SimpleNamespace(entry=Entry(world_of_go=noted)),
    )
    directive: Any = SimpleNamespace(attempt=3, world_size=4)
    assert world_of_new(station, directive) == world
