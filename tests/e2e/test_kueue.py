"""The real Kueue on the real cluster: admission, preemption, the way back from the checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import manifests
from kit.kube import Kube, wait_for
from kit.kueue import LOCAL_QUEUE, VARIABLE, Kueue, directory, kueue
from kit.rtj import Job
from kit.stack import Stack
from rtj_api import contract

GROUP = "kueue.x-k8s.io/pod-group-name"


@pytest.fixture
def queue(product: Stack, space: Kube, tmp_path: Path) -> Iterator[Kueue]:
    place = directory()
    if place is None:
        message = f"NOT RUN: {VARIABLE} names no Kueue; see docs/testing.md"
        warnings.warn(message, stacklevel=1)
        pytest.skip(message)
    with kueue(product.kube, space=space, gpus=2, place=place, work=tmp_path) as made:
        yield made
        # Shown for a test that failed.
        print(made.process.log.read_text()[-200_000:])


def wish(priority: str) -> dict[str, Any]:
    scheduling = {"gang": "kueue", "queue": LOCAL_QUEUE, "priorityClass": priority}
    return {"spec": {"scheduling": scheduling}}


def queued(product: Stack, space: Kube, name: str, *, priority: str, **more: Any) -> Job:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    space.apply(manifests.counter(name, store=store, **wish(priority), **more))
    return Job(kube=space, name=name)


def running_condition(status: dict[str, Any]) -> dict[str, Any]:
    return next((c for c in status.get("conditions", []) if c["type"] == "Running"), {})


def waits_in_queue(status: dict[str, Any]) -> bool:
    """And says which quota is short."""
    running = running_condition(status)
    return running.get("reason") == "Queued" and "quota" in running["message"]


def groups(job: Job) -> set[str]:
    return {pod["metadata"]["labels"][GROUP] for pod in job.pods()}


def no_pods(space: Kube, name: str) -> bool:
    return not space.list("pods", selector=f"{contract.LABEL_JOB}={name}")


@pytest.mark.timeout(500)
def test_a_preempted_gang_queues_and_goes_on_from_its_checkpoint(
    product: Stack, space: Kube, queue: Kueue
) -> None:
    low = queued(product, space, "low", priority="low")
    low.wait_durable(10, within=180)
    assert queue.reserved() == 1
    (first,) = groups(low)

    high = queued(product, space, "high", priority="high", steps=150)
    status = low.wait_status("waits in the queue", waits_in_queue, within=120)
    current = status["current"]
    assert current["cause"] == "PreemptedByQueue", f"{current}\n{low.describe()}"
    assert "Preempted to accommodate a workload" in current["message"]
    assert status["budgets"]["restartsSinceProgress"] == 0
    saved = status["checkpoint"]["lastDurableStep"]
    high.wait_phase("Running", within=120)
    low.wait_status("still waits", waits_in_queue, within=10)

    high.wait_phase("Succeeded", within=180)
    status = low.wait_status("starts again", lambda s: s.get("starts") == 2, within=120)
    assert status["resume"]["step"] >= saved >= 10
    low.wait_durable(saved + 10, within=120)
    (second,) = groups(low)
    assert second != first
    assert low.status()["ledger"]["seconds"]["queue"] > 1
    assert queue.reserved() == 1

    # A lost rank comes back within its group, and nothing is queued for it.
    attempt = low.status()["attempt"]
    space.run("delete", "pod", low.pod_name(1), "--wait=false")
    status = low.wait_status("starts a third time", lambda s: s.get("starts") == 3, within=120)
    assert (status["attempt"], status["current"]["kind"]) == (attempt + 1, "Replace")
    assert groups(low) == {second}
    low.wait_durable(status["resume"]["step"] + 10, within=120)


@pytest.mark.timeout(500)
def test_whoever_is_suspended_waits_or_is_deleted_keeps_no_quota(
    product: Stack, space: Kube, queue: Kueue
) -> None:
    first = queued(product, space, "first", priority="high")
    first.wait_durable(5, within=180)
    waiting = queued(product, space, "waiting", priority="low")
    waiting.wait_status("waits in the queue", waits_in_queue, within=60)

    # Suspended while it waits: its pods never began, and yet they go.
    space.run("patch", "rtj", "waiting", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    waiting.wait_phase("Suspended", within=60)
    wait_for(lambda: no_pods(space, "waiting"), within=60, what="no pod of the suspended job")
    space.run("patch", "rtj", "waiting", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    waiting.wait_status("waits again", waits_in_queue, within=60)

    # Who runs is suspended: the other gets the quota at once.
    space.run("patch", "rtj", "first", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    first.wait_phase("Suspended", within=120)
    waiting.wait_durable(5, within=120)
    assert queue.reserved() == 1

    # A job that waits is deleted, and nothing of it stays.
    extra = queued(product, space, "extra", priority="low")
    extra.wait_status("waits in the queue", waits_in_queue, within=60)
    extra.delete()
    wait_for(lambda: no_pods(space, "extra"), within=60, what="no pod of the deleted job")
    waiting.delete()
    wait_for(lambda: no_pods(space, "waiting"), within=90, what="no pod of the ended job")
    wait_for(lambda: queue.reserved() == 0, within=60, what="all quota given back")
