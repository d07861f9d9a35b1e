"""What a resume will miss, in words; only what was looked for and not found counts."""

from __future__ import annotations

from typing import Any

import pytest
from rtj_api.rules import quality
from rtj_api.rules.quality import Fitness, Quality, fitness
from rtj_api.v1alpha1 import LayoutName
from rtj_api.wire import Candidate

ALL = dict.fromkeys(quality.PARTS, True)


def save(**fields: Any) -> Candidate:
    return Candidate(
        name="f1-n1-s8", step=8, durable=True, **{"has": ALL, "world_size": 2} | fields
    )


CASES = {
    "all": (save(), Fitness(Quality.EXACT)),
    "no scaler, as most": (save(has={k: v for k, v in ALL.items() if k != "scaler"}), None),
    "no schedule": (
        save(has={**ALL, "scheduler": False}),
        Fitness(Quality.PARTIAL, "without learning rate schedule"),
    ),
    "two parts": (
        save(has={**ALL, "rng": False, "loader": False}),
        Fitness(Quality.PARTIAL, "without random state, position in the data"),
    ),
    "weights": (
        save(has={"optimizer": False}, full_state=False),
        Fitness(Quality.WEIGHTS_ONLY, "without optimizer"),
    ),
    "weights, of an older sidecar": (
        save(has={}, full_state=False),
        Fitness(Quality.WEIGHTS_ONLY, "without optimizer"),
    ),
    "nobody can tell": (
        save(has={"optimizer": True, "scheduler": True}),
        Fitness(
            Quality.EXACT,
            "nothing is known to be missing; it cannot be told: random state, position in the data",
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_missing(case: str) -> None:
    found, wanted = fitness(CASES[case][0], world_size=2), CASES[case][1]
    assert found == (wanted or Fitness(Quality.EXACT))


WORLDS = {
    "dcp": "split anew",
    "deepspeed": "cannot be loaded",
    "torch": "up to the training script",
}


@pytest.mark.parametrize("layout", WORLDS)
def test_another_number_of_ranks(layout: str) -> None:
    found = fitness(save(layout=layout), world_size=4)
    assert found.quality is Quality.PARTIAL
    assert "saved by 2 ranks, resumed by 4" in found.message
    assert WORLDS[layout] in found.message
    assert fitness(save(layout=layout, world_size=None), world_size=4).quality is Quality.EXACT


def test_the_table_speaks_of_layouts_that_there_are() -> None:
    assert set(quality.RESHARDS) <= {name.value for name in LayoutName}
