"""The first losses after a resume, against those recorded with the save: a finding, no decision."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.podlike import PodLike, make_pod
from rtj_api.wire import LossState, Phase, Report, Resume, SidecarPhase

SCRATCH = Resume(scratch=True)
# Saves once after twenty steps; resumed, its loss is that of before plus what a file says.
TRAINER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from kit.toy_trainer import load, save
out, shift = Path(sys.argv[2]), Path(sys.argv[3])
step = load(Path(sys.argv[-1]))["step"] if "--resume" in sys.argv else 0
more = float(shift.read_text()) if step else 0.0
while step < 40:
    step += 1
    time.sleep(0.02)
    print(f"step {step} loss {2 + 0.1 * (step * 7 % 5) + more}", flush=True)
    if step == 20:
        time.sleep(1)  # as a trainer whose steps take their time
        out.mkdir(parents=True, exist_ok=True)
        state = {"step": step, "model": {"weight": b"x"}, "optimizer": {"state": {}}}
        save(out / f"ckpt_{step}.pt", state)
        time.sleep(600 if "--resume" not in sys.argv else 0)
"""


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[PodLike]:
    def command(path: Path) -> list[str]:
        place = str(Path(__file__).parents[2])
        return [sys.executable, "-u", "-c", TRAINER, place, str(path), str(tmp_path / "shift")]

    made = make_pod(tmp_path, store=tmp_path / "store", command=command)
    yield made.start()
    made.end()


def resumed(pod: PodLike, attempt: int, resume: Resume) -> Report:
    pod.direct(Phase.PREPARE, attempt)
    pod.until_phase(SidecarPhase.PREPARED, attempt)
    pod.direct(Phase.RESTORE, attempt, resume=resume)
    report = pod.until_phase(SidecarPhase.RESTORED, attempt)
    assert report.phase is SidecarPhase.RESTORED, report.problem
    assert report.loss_check is None
    pod.direct(Phase.GO, attempt, resume=resume)
    return pod.until(lambda r: r.attempt == attempt and r.loss_check is not None)


def test_within_and_outside(pod: PodLike, tmp_path: Path) -> None:
    pod.direct(Phase.PREPARE, 1)
    pod.until_phase(SidecarPhase.PREPARED, 1)
    pod.direct(Phase.RESTORE, 1, resume=SCRATCH)
    pod.until_phase(SidecarPhase.RESTORED, 1)
    pod.direct(Phase.GO, 1, resume=SCRATCH)
    report = pod.until(lambda r: r.checkpoint.last_durable_step == 20)
    assert report.loss_check is None  # nothing was resumed
    (place,) = (tmp_path / "store/ns/gpt/manifests").glob("*.json")
    manifest = json.loads(place.read_text())
    band = manifest["facts"]["loss_band"]
    assert band["samples"] == 20
    assert 2.0 <= band["loss"] <= 2.4
    resume = Resume(run="ns/gpt", name=manifest["name"], step=20)

    (tmp_path / "shift").write_text("0")
    found = resumed(pod, 2, resume).loss_check
    assert found is not None
    assert (found.state, found.expected) == (LossState.WITHIN, band["loss"])

    (tmp_path / "shift").write_text("7")
    found = resumed(pod, 3, resume).loss_check
    assert found is not None
    assert found.state is LossState.OUTSIDE
    assert found.seen is not None
    assert found.seen > 9
    pod.kill_agent()  # one that comes back knows what was found
    pod.start_agent()
    assert pod.until(lambda r: r.loss_check is not None).loss_check == found
