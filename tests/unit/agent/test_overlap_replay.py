"""Steps that a trainer runs twice, through a real sidecar: what it finds, and what it stops."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.podlike import PodLike, make_pod
from rtj_api.reasons import Reason
from rtj_api.rules.replay import Lost, ReplayState
from rtj_api.wire import Phase, Report, Resume, SidecarPhase

SCRATCH = Resume(scratch=True)
# Saves at step 20 and goes on to 40, telling all of it. Resumed, it does what a file says.
TRAINER = """
import json, math, os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from kit.toy_trainer import load, save
out, how = Path(sys.argv[2]), Path(sys.argv[3]).read_text()
given = load(Path(sys.argv[-1]))["step"] if "--resume" in sys.argv else 0
step = 0 if how == "ignores" else given
lost = given if how == "scheduler" else 0
told = open(os.environ["RTJ_PROGRESS_FILE"], "a")
while step < 40:
    step += 1
    time.sleep(0.25 if how == "ignores" else 0.02)  # it is seen before it comes to step 20
    loss = 2 + 0.1 * (step * 7 % 5)
    if given and how == "weights":
        loss += 9
    if given and how == "nan" and step > 25:
        loss = math.nan
    line = {"step": step, "loss": loss, "lr": 1e-3 * (step - lost) / 100, "samples": 8 * step}
    told.write(json.dumps(line) + "\\n")
    told.flush()
    if step == 20 and not given:
        time.sleep(1)
        out.mkdir(parents=True, exist_ok=True)
        state = {"step": step, "model": {"weight": b"x"}, "optimizer": {"state": {}}}
        save(out / f"ckpt_{step}.pt", state)
        time.sleep(1)
time.sleep(600)
"""


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[PodLike]:
    def command(path: Path) -> list[str]:
        place = str(Path(__file__).parents[2])
        return [sys.executable, "-u", "-c", TRAINER, place, str(path), str(tmp_path / "how")]

    (tmp_path / "how").write_text("as before")
    made = make_pod(tmp_path, store=tmp_path / "store", command=command)
    yield made.start()
    made.end()


@pytest.fixture
def resume(pod: PodLike, tmp_path: Path) -> Resume:
    """Attempt 1 made step 40; its save is of step 20."""
    go(pod, 1, SCRATCH)
    pod.until(lambda r: r.checkpoint.last_durable_step == 20 and r.progress.step == 40)
    (place,) = (tmp_path / "store/ns/gpt/manifests").glob("*.json")
    manifest = json.loads(place.read_text())
    assert len(manifest["facts"]["trail"]["records"]) == 16
    assert manifest["facts"]["trail"]["begin"][0][0] == 1
    return Resume(run="ns/gpt", name=manifest["name"], step=20)


def go(pod: PodLike, attempt: int, resume: Resume) -> None:
    pod.direct(Phase.PREPARE, attempt)
    pod.until_phase(SidecarPhase.PREPARED, attempt)
    pod.direct(Phase.RESTORE, attempt, resume=resume)
    report = pod.until_phase(SidecarPhase.RESTORED, attempt)
    assert (report.replay, report.divergence) == (None, None)
    pod.direct(Phase.GO, attempt, resume=resume)


def resumed(pod: PodLike, resume: Resume, *, how: str, attempt: int = 2) -> Report:
    (pod.root.parent / "how").write_text(how)
    go(pod, attempt, resume)
    return pod.until(
        lambda r: r.attempt == attempt and (r.replay is not None or r.divergence is not None)
    )


def test_a_right_resume_and_then_a_lost_scheduler(pod: PodLike, resume: Resume) -> None:
    found = resumed(pod, resume, how="as before")
    assert found.replay is not None
    assert found.replay.state is ReplayState.MATCH, found.replay
    assert found.phase is SidecarPhase.TRAINING

    found = resumed(pod, resume, how="scheduler", attempt=3)
    assert found.replay is not None
    assert (found.replay.state, found.replay.lost) == (ReplayState.DRIFT, Lost.SCHEDULER)
    assert found.phase is SidecarPhase.TRAINING, "a drift is only told"


def test_another_training_is_stopped(pod: PodLike, resume: Resume) -> None:
    resumed(pod, resume, how="weights")
    report = pod.until_phase(SidecarPhase.FAILED, 2)
    assert report.problem is not None
    assert report.problem.reason == Reason.TRAINING_DIVERGED
    assert "another training" in report.problem.message
    assert report.replay is not None
    assert report.replay.state is ReplayState.DIVERGED
    # Those steps were no first pass: the next resume is compared with what was before them.
    found = resumed(pod, resume, how="as before", attempt=3)
    assert found.replay is not None
    assert found.replay.state is ReplayState.MATCH, found.replay


def test_a_loss_that_is_no_number_stops_the_trainer(pod: PodLike, resume: Resume) -> None:
    (pod.root.parent / "how").write_text("nan")
    go(pod, 2, resume)
    report = pod.until_phase(SidecarPhase.FAILED, 2)
    assert report.problem is not None
    assert report.problem.reason == Reason.TRAINING_DIVERGED
    assert "since step 26" in report.problem.message
    assert report.divergence is not None
    assert report.divergence.step == 26


def test_a_trainer_that_begins_at_step_1_is_stopped_before_it_saves(
    pod: PodLike, resume: Resume
) -> None:
    (pod.root.parent / "how").write_text("ignores")
    go(pod, 2, resume)
    report = pod.until_phase(SidecarPhase.FAILED, 2)
    assert report.problem is not None
    assert report.problem.reason == Reason.CHECKPOINT_IGNORED
    assert "given step 20" in report.problem.message
    assert "RTJ_RESUME_CHECKPOINT" in report.problem.message
    assert report.checkpoint.last_saved_step == 20


def test_a_new_pod_knows_where_the_learning_rate_stood(
    pod: PodLike, resume: Resume, tmp_path: Path
) -> None:
    """Its own memory is gone; the save has brought the end of the first pass along."""
    pod.kill_agent()
    (pod.root / "run" / "trail.json").unlink(missing_ok=True)
    pod.start_agent()
    found = resumed(pod, resume, how="scheduler")
    assert found.replay is not None
    assert found.replay.lost is Lost.SCHEDULER
