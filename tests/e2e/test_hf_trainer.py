"""The Hugging Face Trainer killed in the middle of a save resumes from the last complete one.

That it crashes on the half-written one when it is alone is shown in
tests/contract/examples/test_example_trainers.py.
"""

from __future__ import annotations

import pytest
from kit import manifests
from kit.kube import Kube
from kit.rtj import Job
from kit.stack import Stack

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


@pytest.mark.long  # the same trainer killed and resumed: tests/contract/examples
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
