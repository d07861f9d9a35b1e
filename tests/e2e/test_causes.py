"""Real PyTorch trainings whose trouble a restart alone does not mend: each ends in the right state,
with the cause in its words. All five train at once in one namespace."""

from __future__ import annotations

from typing import Any

import pytest
from kit import manifests
from kit.kube import Kube
from kit.rtj import Job
from kit.stack import Stack

TROUBLED = f"{manifests.CODE}/kit/trainers/troubled.py"
BAD_NODE = "node-2"
TROUBLES = ("nan", "raise", "scheduler", "leak", "node")


def troubled(
    trouble: str, space: Kube, product: Stack, *words: str, pod: dict[str, Any] | None = None
) -> manifests.Manifest:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=f"{space.namespace}/{trouble}")
    command = ["python3", TROUBLED, trouble, "--out", "/checkpoints", *words]
    backoff = {"initialSeconds": 0.5, "maxSeconds": 2}
    return manifests.job(
        trouble,
        store=store,
        command=command,
        replicas=1,
        gpus=0,
        pod=pod,
        # Not the node ledger: what other tests, and these, have found of nodes says nothing here.
        recovery={"backoff": backoff, "avoidNodes": "Never"},
    )


def prefers(node: str) -> dict[str, Any]:
    """The scheduler puts the pod there as long as nothing speaks against it."""
    name = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    term = {"weight": 100, "preference": {"matchExpressions": [name]}}
    return {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


@pytest.fixture
def jobs(product: Stack, space: Kube) -> dict[str, Job]:
    node = troubled(
        "node",
        space,
        product,
        "--node",
        BAD_NODE,
        "--every",
        "10",
        "--steps",
        "30",
        pod=prefers(BAD_NODE),
    )
    told = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    manifests.trainer_of(node)["env"].append(told)
    leak = troubled("leak", space, product, "--steps", "40")
    # PyTorch takes some 400 MiB, a step 24: more than one save is durable before each end.
    manifests.trainer_of(leak)["resources"] = {"limits": {"memory": "800Mi"}}
    space.apply(
        troubled("nan", space, product, "--at", "23"),
        troubled("raise", space, product, "--at", "17"),
        troubled("scheduler", space, product, "--steps", "150"),
        leak,
        node,
    )
    return {name: Job(kube=space, name=name) for name in TROUBLES}


@pytest.mark.timeout(600)
def test_each_cause_is_named_and_ends_as_it_should(jobs: dict[str, Job]) -> None:
    a_scheduler_that_was_not_loaded_is_named(jobs["scheduler"])
    an_exception_at_one_step_ends_the_job_early(jobs["raise"])
    a_bad_row_of_data_is_named_by_its_step(jobs["nan"])
    a_bad_node_is_left(jobs["node"])
    a_leak_is_named_and_the_work_goes_on(jobs["leak"])
    for name in ("nan", "raise"):
        reasons = {event["reason"] for event in jobs[name].events()}
        assert "CheckpointPoison" not in reasons, f"{name}: no save was to blame"


def a_scheduler_that_was_not_loaded_is_named(job: Job) -> None:
    job.wait_durable(20, within=300)
    step = job.status()["checkpoint"]["lastDurableStep"]
    job.wait_step(step + 3)
    job.kill_trainer(0)
    status = job.wait_status(
        "the lost scheduler", lambda s: (s["checkpoint"].get("resumeReplay") or {}).get("lost")
    )
    found = status["checkpoint"]["resumeReplay"]
    assert (found["state"], found["lost"]) == ("Drift", "scheduler")
    assert "learning rate" in found["message"]
    assert any(event["reason"] == "ResumedOtherwise" for event in job.events())
    assert status["phase"] == "Running"


def an_exception_at_one_step_ends_the_job_early(job: Job) -> None:
    status = job.wait_phase("Failed", within=300)
    # Again in place, then on another node; a save that becomes durable in between is progress.
    assert 2 <= status["restarts"] <= 4, status["attempts"]
    told = job.condition("Failed")
    assert told["reason"] == "DeterministicFailure"
    assert "Look at the data of steps 17" in told["message"]
    ends = [a["culprit"]["message"] for a in status["attempts"] if a.get("culprit")]
    assert any("ValueError: sample 17" in end for end in ends), ends
    assert status["checkpoint"]["lastDurableStep"] == 15


def a_bad_row_of_data_is_named_by_its_step(job: Job) -> None:
    status = job.wait_phase("Failed", within=300)
    told = job.condition("Failed")
    assert "not a finite number since step 23" in told["message"]
    assert "Look at the data of steps" in told["message"]
    assert status["checkpoint"]["lastDurableStep"] >= 20
    assert status["resume"]["step"] <= 20, "never from a save that has the bad row in it"


def a_bad_node_is_left(job: Job) -> None:
    status = job.wait_phase("Succeeded", within=300)
    attempts = status["attempts"]
    assert status["restarts"] == 2
    assert [a["culprit"]["node"] for a in attempts if a.get("culprit")][:1] == [BAD_NODE]


def a_leak_is_named_and_the_work_goes_on(job: Job) -> None:
    status = job.wait_phase("Succeeded", within=400)
    causes = [a["cause"] for a in status["attempts"]]
    assert "OutOfMemory" in causes
