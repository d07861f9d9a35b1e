"""What a trainer is told of how far apart its saves should be: at its start, and later."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.orders import SCRATCH, prepared
from kit.podlike import PodLike, make_pod
from kit.supervised import wait_for
from rtj_api.wire import Phase, SidecarPhase
from rtj_sidecar.trainer.supervisor_link import write_whole

TRAINER = """
import os, time
print("at the start", os.environ.get("RTJ_CHECKPOINT_INTERVAL_SECONDS"), flush=True)
place, told = os.environ.get("RTJ_CHECKPOINT_INTERVAL_FILE"), None
while True:
    time.sleep(0.02)
    found = open(place).read() if place else None
    if found != told:
        told = found
        print("now", float(told), flush=True)
"""


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[PodLike]:
    def command(_: Path) -> list[str]:
        return [sys.executable, "-u", "-c", TRAINER]

    made = make_pod(tmp_path, store=tmp_path / "store", command=command)
    yield made.start()
    made.end()


def go(pod: PodLike, *, interval: float | None) -> None:
    prepared(pod, 1)
    pod.direct(Phase.RESTORE, 1, resume=SCRATCH)
    pod.until_phase(SidecarPhase.RESTORED, 1)
    pod.direct(Phase.GO, 1, resume=SCRATCH, interval=interval)
    pod.until_phase(SidecarPhase.TRAINING, 1)


def says(pod: PodLike, words: str) -> None:
    wait_for(lambda: words in pod.output(), why=words)


def test_at_the_start_and_whenever_it_changes(pod: PodLike) -> None:
    go(pod, interval=900)
    says(pod, "at the start 900\n")
    says(pod, "now 900.0\n")
    pod.direct(Phase.GO, 1, resume=SCRATCH, interval=1234.5)
    says(pod, "now 1234.5\n")
    assert pod.output().count("at the start") == 1, "the same trainer runs on"
    pod.kill_agent()
    write_whole(pod.root / "rtj/run/checkpoint-interval", "1\n")
    pod.start_agent()
    wait_for(lambda: pod.output().count("now 1234.5\n") == 2, why="what the annotation says")


def test_of_an_operator_that_tells_none(pod: PodLike) -> None:
    go(pod, interval=None)
    says(pod, "at the start None\n")
    assert "now " not in pod.output()
    assert not (pod.root / "rtj/run/checkpoint-interval").exists()
