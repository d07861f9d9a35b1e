"""Killed anywhere, a run ends with the very bits of the run that nobody killed.

Real PyTorch, real SIGKILL: at a step, at an fsync of a save, while a sample is made (in a worker
where there are workers), at any moment. `make test-long` tries every combination with ten kills
each; RTJ_EXACT_SEED repeats the kills of a run that printed it.
"""

from __future__ import annotations

import itertools
import os
import random
from typing import Any

import pytest
from kit import exact
from kit.exact import needs_torch

pytestmark = [needs_torch, pytest.mark.timeout(900)]
SEED = int(os.environ.get("RTJ_EXACT_SEED") or random.SystemRandom().randrange(1 << 30))

SMALL: list[dict[str, Any]] = [
    {
        "model": "transformer",
        "data": "map",
        "optimizer": "adamw",
        "schedule": "one-cycle",
        "workers": 2,
        "amp": 1,
    },
    {"model": "convnet", "data": "stream", "optimizer": "sgd", "schedule": "cosine"},
    {"model": "convnet", "data": "map", "optimizer": "adamw", "schedule": "cosine", "ranks": 2},
]


def every_case() -> list[dict[str, Any]]:
    return [
        {
            "model": model,
            "data": data,
            "optimizer": optimizer,
            "schedule": schedule,
            "workers": workers,
            "lasting": workers == 4,
            "amp": int(optimizer == "adamw"),
            "ranks": ranks,
        }
        for model, data, optimizer, schedule, workers, ranks in itertools.product(
            ("transformer", "convnet"),
            ("map", "stream"),
            ("adamw", "sgd"),
            ("cosine", "one-cycle"),
            (0, 2, 4),
            (1, 2),
        )
    ]


def name_of(case: dict[str, Any]) -> str:
    return "-".join(f"{name}={value}" for name, value in case.items())


def test_three_killed_runs_end_as_if_nothing_had_been() -> None:
    print(f"RTJ_EXACT_SEED={SEED}")
    for told in exact.matrix(SMALL, kills=3, seed=SEED):
        assert "error" not in told, told
        assert len(told["kills"]) >= 2, told


def test_what_is_not_registered_is_seen_by_the_same_comparison() -> None:
    """Or the comparison above could not fail."""
    case = {"model": "convnet", "data": "map", "optimizer": "adamw", "schedule": "cosine"}
    lacking = [{**case, "without": name} for name in ("optimizer", "rng", "dataloader")]
    for told in exact.matrix(lacking, kills=3, seed=4):
        assert "without interruption" in told["error"] or "ends as" in told["error"], told


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", every_case(), ids=name_of)
def test_each_combination_with_ten_kills(case: dict[str, Any]) -> None:
    print(f"RTJ_EXACT_SEED={SEED}")
    (told,) = exact.matrix([case], kills=10, seed=SEED, timeout=3500)
    assert "error" not in told, told
