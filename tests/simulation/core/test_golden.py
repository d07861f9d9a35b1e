"""The log of each named scenario, kept as a file that a person can read and review.

RTJ_UPDATE_GOLDEN=1 writes them anew; what changed then shows in the diff of the commit.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.scenarios import SCENARIOS
from kit.scenarios_of_leaving import LEAVINGS
from kit.scenarios_of_scaling import SCALINGS
from kit.scenarios_of_spares import SPARES
from kit.scenarios_of_trouble import TROUBLES

STORIES = {**SCENARIOS, **TROUBLES, **LEAVINGS, **SPARES, **SCALINGS}
GOLDEN = Path(__file__).parent / "golden"


def as_text(log: list[str]) -> str:
    """Without the writes that only refresh what is shown: they would drown the decisions."""
    return "\n".join(line for line in log if " refresh: " not in line) + "\n"


@pytest.mark.parametrize("name", sorted(STORIES))
def test_the_story_is_the_one_on_file(name: str) -> None:
    text = as_text(STORIES[name].run().log)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("RTJ_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"no golden log for {name}: run with RTJ_UPDATE_GOLDEN=1 and review it"
    assert text == path.read_text()


def test_no_golden_log_without_its_scenario() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} == set(STORIES)
