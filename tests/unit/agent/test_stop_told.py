"""A stop step with the real sidecar and supervisor: told to the trainer once, obeyed, kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.orders import SCRATCH, prepared
from kit.podlike import PodLike, make_pod
from kit.supervised import wait_for
from rtj_api.wire import Phase, SidecarPhase

# Saves every 1,000 steps, and at the stop step, where it ends with 0.
TRAINER = """
import json, os, pathlib, pickle, sys, time, zipfile
out, stop = pathlib.Path(sys.argv[1]), os.environ["RTJ_STOP_FILE"]
progress = open(os.environ["RTJ_PROGRESS_FILE"], "a", buffering=1)
step = 0
while True:
    time.sleep(0.02)
    step += 1
    if os.path.exists(str(out) + ".enough"):
        sys.exit(0)
    progress.write(json.dumps({"step": step}) + "\\n")
    if os.path.exists(stop) and step >= json.load(open(stop))["step"]:
        with zipfile.ZipFile(out / f"step_{step:07d}.pt", "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps({"step": step, "model": {}}))
            archive.writestr("archive/version", "3\\n")
        print("saved and ends at", step, flush=True)
        sys.exit(0)
"""
Make = Callable[..., PodLike]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[PodLike] = []

    def pod(**options: object) -> PodLike:
        def command(path: Path) -> list[str]:
            return [sys.executable, "-u", "-c", TRAINER, str(path)]

        one = make_pod(
            tmp_path,
            store=tmp_path / "store",
            command=command,
            **options,  # type: ignore[arg-type]
        )
        made.append(one)
        return one.start()

    yield pod
    for one in made:
        one.end()


def train(pod: PodLike) -> None:
    prepared(pod, 1)
    pod.direct(Phase.RESTORE, 1, resume=SCRATCH)
    pod.until_phase(SidecarPhase.RESTORED, 1)
    pod.direct(Phase.GO, 1, resume=SCRATCH)
    pod.until_phase(SidecarPhase.TRAINING, 1)
    wait_for(lambda: pod.report().progress.pace_seconds, why="a few steps")


def stop_file(pod: PodLike) -> Path:
    return pod.root / "rtj/run/trainer.stop"


def test_it_saves_there_ships_the_save_and_that_is_no_success(make: Make) -> None:
    pod = make(obeys_stop=True)
    train(pod)
    report = pod.report()
    assert report.can_stop
    assert report.progress.pace_seconds == pytest.approx(0.02, rel=1.0)
    step = (report.progress.step or 0) + 60
    pod.direct(Phase.GO, 1, resume=SCRATCH, stop=(step, 60))
    wait_for(lambda: pod.report().stop_step == step, why="told")
    word = json.loads(stop_file(pod).read_text())
    assert (word["attempt"], word["step"], word["reason"]) == (1, step, "PodEvicted")
    report = pod.until_phase(SidecarPhase.DRAINED, 1)
    assert f"saved and ends at {step}" in pod.output()
    assert (report.trainer.exit_code, report.trainer.asked_to_stop) == (0, True)
    assert report.checkpoint.last_saved_step == step
    assert report.checkpoint.last_durable_step == step
    assert not report.run_complete


def test_an_ending_pod_ships_what_it_saves_at_the_stop_step(make: Make) -> None:
    pod = make(obeys_stop=True)
    train(pod)
    assert pod.trainer is not None
    pod.trainer.terminate()
    report = wait_for(lambda: (r := pod.report()).terminating and r, why="heard")
    assert report.term_received_at is not None
    step = (report.progress.step or 0) + 60
    pod.direct(Phase.GO, 1, resume=SCRATCH, stop=(step, 60))
    report = pod.until_phase(SidecarPhase.DRAINED, 1)
    assert f"saved and ends at {step}" in pod.output()
    assert report.checkpoint.last_durable_step == step


def test_it_is_known_after_a_restart_of_the_sidecar_and_never_another(make: Make) -> None:
    pod = make(obeys_stop=True)
    train(pod)
    pod.direct(Phase.GO, 1, resume=SCRATCH, stop=(10**6, 60))
    wait_for(lambda: pod.report().stop_step == 10**6, why="told")
    told = stop_file(pod).read_text()
    pod.kill_agent()
    pod.start_agent()
    wait_for(lambda: pod.report().stop_step == 10**6, why="from the file")
    pod.direct(Phase.GO, 1, resume=SCRATCH, stop=(2 * 10**6, 60))
    pod.direct(Phase.GO, 1, resume=SCRATCH, stop=(3 * 10**6, 60))
    wait_for(lambda: pod.report().seq == 3, why="heard")
    assert stop_file(pod).read_text() == told


def test_less_time_for_the_same_step_is_told(make: Make) -> None:
    pod = make(obeys_stop=True)
    train(pod)
    pod.direct(Phase.GO, 1, resume=SCRATCH, stop=(10**6, 600))
    wait_for(lambda: pod.report().stop_step == 10**6, why="told")
    until = json.loads(stop_file(pod).read_text())["until"]
    pod.direct(Phase.GO, 1, resume=SCRATCH, stop=(10**6, 60))
    wait_for(lambda: json.loads(stop_file(pod).read_text())["until"] < until - 500, why="less")
    word = stop_file(pod).read_text()
    assert json.loads(word)["step"] == 10**6
    pod.direct(Phase.GO, 1, resume=SCRATCH, stop=(10**6, 300))
    pod.direct(Phase.GO, 1, resume=SCRATCH, stop=(10**6, 301))
    wait_for(lambda: pod.report().seq == 3, why="heard")
    assert stop_file(pod).read_text() == word


def test_a_trainer_that_knows_no_stop_step_is_told_of_none(make: Make) -> None:
    pod = make()
    train(pod)
    assert not pod.report().can_stop
    pod.direct(Phase.GO, 1, resume=SCRATCH, stop=(10**6, 60))
    before = pod.report().progress.step or 0
    wait_for(lambda: (pod.report().progress.step or 0) > before + 60, why="it trains on")
    assert not stop_file(pod).exists()
    assert pod.report().stop_step is None


def test_a_trainer_that_was_done_by_itself_is_told_of_none(make: Make) -> None:
    """Else its end would be no success of the job."""
    pod = make(obeys_stop=True)
    train(pod)
    Path(f"{pod.path}.enough").touch()
    pod.until(lambda r: r.trainer.exit_code == 0)
    pod.direct(Phase.GO, 1, resume=SCRATCH, stop=(10**6, 60))
    with pytest.raises(AssertionError):
        pod.until(lambda r: r.stop_step, seconds=2)
    assert not stop_file(pod).exists()
    assert not pod.report().trainer.asked_to_stop
