"""The user's probe on a real cluster: a save that every gate takes and the probe refuses."""

from __future__ import annotations

import json

import pytest
from kit import manifests
from kit.kube import Kube, wait_for
from kit.rtj import KIND, Job
from kit.s3_objects import list_keys, read_object
from kit.stack import Stack

# In the trainer's image, with its PyTorch: loads the save as the trainer would.
PROBE = """
import os, sys, torch
state = torch.load(os.environ["RTJ_RESUME_CHECKPOINT"], map_location="cpu")
print("loaded step", os.environ["RTJ_RESUME_STEP"], len(state), "parts", flush=True)
raise SystemExit(9 if os.environ["RTJ_RESUME_STEP"] == sys.argv[1] else 0)
"""


@pytest.mark.timeout(600)
def test_the_older_save_is_taken_and_the_refused_one_marked(product: Stack, space: Kube) -> None:
    prefix = f"{space.namespace}/"
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    space.apply(manifests.ddp("picky", store=store, steps=100_000, save_every=4, step_seconds=0.2))
    job = Job(kube=space, name="picky")
    job.wait_durable(8, within=240)
    patch(job, {"suspend": True})
    job.wait_phase("Suspended", within=120)
    wait_for(lambda: not job.pods(), within=120, what="suspended pods gone")
    keys = [key for key in list_keys(product.s3, prefix=prefix) if "/manifests/" in key]
    found = [json.loads(read_object(product.s3, key=key)) for key in keys]
    *_, older, newest = sorted(found, key=lambda record: (record["fence"], record["n"]))

    words = ["python3", "-c", PROBE, str(newest["step"])]
    probe = {"command": words, "timeoutSeconds": 120}
    patch(job, {"suspend": False, "checkpoint": {"validation": {"probe": probe}}})
    status = job.wait_status(
        "resumed from the older save",
        lambda s: s["phase"] == "Running" and s["resume"]["name"] == older["name"],
        within=240,
    )
    assert status["current"]["cause"] == "ProbeFailed"
    told = status["current"]["message"]
    for part in (newest["name"], "exit code 9", f"loaded step {newest['step']}", "python3 -c"):
        assert part in told, told
    # By evidence: the older one passed, so the newer is marked, and the job went on.
    # It lies on a branch from now on, so it is no more counted among the run's saves.
    assert status["checkpoint"]["resumeQuality"] == "Partial", status["checkpoint"]
    marks = [
        json.loads(read_object(product.s3, key=key))
        for key in list_keys(product.s3, prefix=prefix)
        if f"/marks/f{newest['fence']}-n{newest['n']}/" in key
    ]
    (mark,) = [mark for mark in marks if mark["kind"] == "invalid"]
    assert mark["reason"] == "ProbeFailed"
    assert mark["evidence"]["passed"] == older["name"]
    wait_for(
        lambda: {"ProbeFailed", "ResumedPartially"} <= {event["reason"] for event in job.events()},
        within=30,
        what="an Event for the refused save, and one for what the resume misses",
    )


def patch(job: Job, spec: dict) -> None:
    job.kube.run("patch", KIND, job.name, "--type=merge", "-p", json.dumps({"spec": spec}))
