"""Killed anywhere, a run ends with the very bits of the run that nobody killed.

Real PyTorch, real SIGKILL: at a step, at an fsync of a save, while a sample is made (in a worker
where there are workers), at any moment. `make test-long` tries every combination with ten kills
each; RTJ_EXACT_SEED repeats the kills of a run that printed it.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
from typing import Any

import pytest
from kit import exact
from kit.exact import needs_torch
from kit.reference import trainer_python

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


SAME_SAMPLES = """
import sys, torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SubsetRandomSampler
from torch.utils.data import WeightedRandomSampler
from rtj_trainer.map_style import MapPosition

data = list(range(50))
own = torch.Generator()
makers = {
    "shuffle": lambda: DataLoader(data, 4, shuffle=True),
    "in order": lambda: DataLoader(data, 4, drop_last=True),
    "generator": lambda: DataLoader(data, 4, shuffle=True, generator=own),
    "replacement": lambda: DataLoader(data, 4, sampler=RandomSampler(data, replacement=True)),
    "subset": lambda: DataLoader(data, 4, sampler=SubsetRandomSampler(data[10:40])),
    "weighted": lambda: DataLoader(data, 4, sampler=WeightedRandomSampler([1.0] * 50, 30)),
    "batches": lambda: DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 3, True)),
    "single": lambda: DataLoader(data, batch_size=None, shuffle=True),
}
for name, make in makers.items():
    torch.manual_seed(5); own.manual_seed(6)
    plain = make()
    expected = [[b.tolist() for b in map(torch.as_tensor, plain)] for _ in range(3)]
    torch.manual_seed(5); own.manual_seed(6)
    position = MapPosition(make(), rank=0, world=1)
    found = [[torch.as_tensor(b).tolist() for b in position.begin(epoch=e)] for e in range(3)]
    assert found == expected, (name, found[0][:3], expected[0][:3])
    assert found[0] != found[1] or name == "in order"
    print(name, "same")
"""


def test_the_samples_are_those_that_the_loader_gives_without_the_library() -> None:
    done = subprocess.run(
        [str(trainer_python()), "-c", SAME_SAMPLES],
        capture_output=True,
        text=True,
        timeout=exact.SECONDS,
        env=exact.environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("same") == 8
