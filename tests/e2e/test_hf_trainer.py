"""The Hugging Face Trainer killed in the middle of a save: crashes alone, resumes with us."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from kit import manifests
from kit.kube import Kube
from kit.reference import trainer_python
from kit.rtj import Job
from kit.stack import Stack

SCRIPT = manifests.ROOT / "examples" / "hf-trainer" / "train.py"
WIDE = ("--hidden_size", "512")  # a save that takes long enough to be caught in the middle

KILL_IN_SAVE = """
import glob, json, os, signal, sys, time
first = int(sys.argv[1])
deadline = time.time() + 120
while time.time() < deadline:
    for path in glob.glob("/checkpoints/checkpoint-*"):
        step = int(path.rsplit("-", 1)[1])
        if step >= first and not os.path.exists(path + "/trainer_state.json"):
            if os.path.exists(path + "/config.json"):
                state = json.load(open("/rtj/run/supervisor.json"))
                os.kill(state["trainer"]["pid"], signal.SIGKILL)
                print(step)
                sys.exit(0)
    time.sleep(0.001)
sys.exit("no save was caught in the middle")
"""


def half_written(directory: Path, *, first: int) -> Path | None:
    for path in sorted(directory.glob("checkpoint-*")):
        step = int(path.name.rsplit("-", 1)[1])
        begun = (path / "config.json").exists() and not (path / "trainer_state.json").exists()
        if step >= first and begun:
            return path
    return None


def run_alone(out: Path, *more: str) -> subprocess.Popen:
    command = [str(trainer_python()), str(SCRIPT), "--output_dir", str(out), *more]
    command += ["--save_steps", "3", "--max_steps", "40", *WIDE]
    environment = {**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


@pytest.mark.timeout(300)
def test_without_us_a_half_written_directory_is_resumed_and_crashes(tmp_path: Path) -> None:
    process = run_alone(tmp_path)
    deadline = time.monotonic() + 200
    torn = None
    while torn is None and time.monotonic() < deadline and process.poll() is None:
        torn = half_written(tmp_path, first=6)
        if torn:
            process.send_signal(signal.SIGKILL)
        time.sleep(0.001)
    process.communicate(timeout=60)
    assert torn is not None, "no save was caught in the middle"
    assert not (torn / "trainer_state.json").exists()
    again = run_alone(tmp_path, "--resume_from_checkpoint", "True")
    said, _ = again.communicate(timeout=200)
    assert again.returncode != 0, "it was expected to crash on the half-written directory"
    assert torn.name in said or "trainer_state.json" in said or "FileNotFoundError" in said


@pytest.mark.timeout(600)
@pytest.mark.parametrize("resume", ["path", "True"])
def test_killed_in_a_save_it_resumes_from_the_last_complete_one(
    product: Stack, space: Kube, resume: str
) -> None:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    options = {} if resume == "path" else {"resume_args": ("--resume_from_checkpoint", "True")}
    space.apply(
        manifests.hf_trainer(
            "llama", store=store, steps=24, save_every=3, step_seconds=0.5, extra=WIDE, **options
        )
    )
    job = Job(kube=space, name="llama")
    job.wait_durable(6, within=240)
    torn = int(job.kube.exec(job.pod_name(0), "python3", "-c", KILL_IN_SAVE, "9", timeout=150))
    status = job.wait_status("resumed", lambda s: s["restarts"] == 1, within=120)
    assert 6 <= status["resume"]["step"] < torn
    status = job.wait_phase("Succeeded", within=300)
    assert status["restarts"] == 1
    assert status["checkpoint"]["lastDurableStep"] == 24
