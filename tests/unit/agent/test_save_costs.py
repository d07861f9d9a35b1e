"""What saves cost a trainer, through a real sidecar: stall, spacing, writing, upload."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.orders import SCRATCH
from kit.podlike import PodLike, make_pod
from rtj_api.wire import Phase, Report, SidecarPhase

# Steps of 0.1 s. 'stands': every 20 of them it stands still for 2 s and saves. 'moves': two saves,
# 3 s apart, are written elsewhere and appear together.
TRAINER = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from kit.toy_trainer import save
out, how = Path(sys.argv[2]), sys.argv[3]
out.mkdir(parents=True, exist_ok=True)
aside = out.with_name("aside")
aside.mkdir(exist_ok=True)
def keep(step, place):
    save(place / f"ckpt_{step}.pt", {"step": step, "model": {"weight": b"x"}, "optimizer": {}})
step = 0
while True:
    step += 1
    time.sleep(0.1)
    print("step", step, flush=True)
    if how == "moves" and step in (20, 50):
        keep(step, aside)
    if how == "moves" and step == 50:
        for path in sorted(aside.iterdir()):
            path.rename(out / path.name)
        time.sleep(600)
    if how == "stands" and step % 20 == 0:
        time.sleep(2)
        keep(step, out)
"""


@pytest.fixture
def pods() -> Iterator[list[PodLike]]:
    made: list[PodLike] = []
    yield made
    for pod in made:
        pod.end()


def trained(pods: list[PodLike], place: Path, *, how: str) -> PodLike:
    def command(path: Path) -> list[str]:
        kit = str(Path(__file__).parents[2])
        return [sys.executable, "-u", "-c", TRAINER, kit, str(path), how]

    pods.append(make_pod(place, store=place / "store", command=command).start())
    pod = pods[0]
    pod.direct(Phase.PREPARE, 1)
    pod.until_phase(SidecarPhase.PREPARED, 1)
    pod.direct(Phase.RESTORE, 1, resume=SCRATCH)
    pod.until_phase(SidecarPhase.RESTORED, 1)
    pod.direct(Phase.GO, 1, resume=SCRATCH)
    return pod


def test_a_trainer_that_stands_still_for_its_saves(pods: list[PodLike], tmp_path: Path) -> None:
    def has_all(report: Report) -> bool:
        seen = report.checkpoint
        return seen.stalls >= 2 and seen.upload_seconds is not None

    seen = trained(pods, tmp_path, how="stands").until(has_all).checkpoint
    # A busy machine makes a stall longer, and the steps too; half of it cannot be missed.
    assert seen.stall_seconds / seen.stalls > 1
    assert seen.interval_seconds is not None
    assert seen.interval_seconds > 3
    assert seen.writing_seconds is not None
    assert 0 <= seen.writing_seconds < seen.interval_seconds
    assert seen.upload_bytes is not None
    assert seen.save_bytes is not None
    assert 0 < seen.upload_bytes <= 2 * seen.save_bytes


def test_saves_that_are_found_in_one_look_lie_as_far_apart_as_they_were_made(
    pods: list[PodLike], tmp_path: Path
) -> None:
    pod = trained(pods, tmp_path, how="moves")
    report = pod.until(lambda r: r.checkpoint.last_saved_step == 50)
    assert report.checkpoint.interval_seconds is not None
    assert report.checkpoint.interval_seconds >= 3
