"""A gang of real PyTorch ranks of which one does nothing any more: found, named, started again."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from kit import manifests
from kit.kube import Kube
from kit.rtj import Job
from kit.stack import Stack

STEPS = 400


@pytest.mark.timeout(400)
def test_a_stopped_rank_is_found_by_the_gangs_own_pace(product: Stack, space: Kube) -> None:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    space.apply(manifests.ddp("gpt", store=store, steps=STEPS, save_every=10, step_seconds=0.5))
    job = Job(kube=space, name="gpt")
    job.wait_durable(10, within=240)
    pods = [pod["metadata"]["uid"] for pod in job.pods()]
    stopped_at = time.time()
    job.kill_trainer(1, signal="SIGSTOP")
    status = job.wait_status("a restart", lambda s: s["attempt"] == 2)
    current = status["current"]
    assert (current["cause"], current["kind"]) == ("TrainerHung", "InPlace")
    assert current["culprit"]["rank"] == 1
    assert "stopped by a signal" in current["message"]
    told_at = datetime.fromisoformat(current["recordedAt"]).timestamp()
    print(f"SIGSTOP to decision: {told_at - stopped_at:.1f} s")

    job.wait_training(2)
    assert [pod["metadata"]["uid"] for pod in job.pods()] == pods, "healed in place"
    status = job.wait_status("one restart", lambda s: s["restarts"] == 1)
    job.wait_durable(status["resume"]["step"] + 20)
    assert job.status()["attempt"] == 2, "a gang that makes steps is left alone"
    events = [event for event in job.events() if event["reason"] == "TrainerHung"]
    assert len(events) == 1
