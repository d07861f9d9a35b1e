"""What a trainer of an elastic gang is told of its batches, as plain words of its command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.orders import SCRATCH, prepared
from kit.podlike import PodLike, make_pod
from kit.supervised import wait_for
from rtj_api.wire import Batches, Phase, SidecarPhase

TRAINER = """
import os, sys, time
scale, whole = (os.environ.get(f"RTJ_{name}") for name in ("LEARNING_RATE_SCALE", "GLOBAL_BATCH"))
print("told", *sys.argv[1:], scale, whole, os.environ["RTJ_WORLD_SIZE"], flush=True)
time.sleep(600)
"""


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[PodLike]:
    def command(_: Path) -> list[str]:
        return [sys.executable, "-u", "-c", TRAINER, "--accumulation=$(RTJ_GRADIENT_ACCUMULATION)"]

    made = make_pod(tmp_path, store=tmp_path / "store", command=command)
    yield made.start()
    made.end()


def go(pod: PodLike, attempt: int, batches: Batches | None) -> None:
    prepared(pod, attempt)
    pod.direct(Phase.RESTORE, attempt, resume=SCRATCH)
    pod.until_phase(SidecarPhase.RESTORED, attempt)
    pod.direct(Phase.GO, attempt, resume=SCRATCH, batches=batches)
    pod.until_phase(SidecarPhase.TRAINING, attempt)


def says(pod: PodLike, words: str) -> None:
    wait_for(lambda: words in pod.output(), why=words)


def test_each_attempt_is_told_its_own_and_a_job_of_one_size_nothing(pod: PodLike) -> None:
    go(pod, 1, Batches(accumulation=2, global_batch=12))
    says(pod, "told --accumulation=2 1 12 1\n")
    go(pod, 2, Batches(learning_rate_scale=0.6666666667))
    says(pod, "told --accumulation=$(RTJ_GRADIENT_ACCUMULATION) 0.666666667 None 1\n")
    go(pod, 3, None)
    says(pod, "told --accumulation=$(RTJ_GRADIENT_ACCUMULATION) None None 1\n")
    assert pod.output().count("told ") == 3, "each trainer was told once"
