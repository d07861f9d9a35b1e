"""The operator cut off from the pods' status port, as by a NetworkPolicy: the store carries it all.

The rule drops what the operator's pod sends to that port; the pods reach each other, and this test
looks at their reports from the machine under the nodes, only to see when something has happened.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from kit import manifests
from kit.kube import Kube, wait_for
from kit.reference import final_weights, uninterrupted_ddp
from kit.rtj import Job
from kit.s3_objects import list_keys, read_object
from kit.stack import Stack
from rtj_api.contract import PORT_STATUS
from rtj_api.reasons import Reason

STEPS = 160
SAVE_EVERY = 5


@pytest.fixture
def deaf(product: Stack) -> Iterator[Stack]:
    """The operator hears no pod while this lasts."""
    pods = product.operator.list("pods", selector="app.kubernetes.io/component=operator")
    try:
        for address in (pod["status"]["podIP"] for pod in pods):
            product.cluster.firewall_block(source=address, port=PORT_STATUS)
        yield product
    finally:
        product.cluster.firewall_clear()


def fences(product: Stack, space: Kube) -> list[dict]:
    prefix = f"{space.namespace}/{space.namespace}/gpt/"
    keys = [key for key in list_keys(product.s3, prefix=prefix) if "/fences/" in key]
    return [json.loads(read_object(product.s3, key=key)) for key in sorted(keys)]


def until_durable(job: Job, step: int) -> int:
    """By rank 0's own word: the operator's status cannot know it."""

    def look() -> int | None:
        found = job.report(0)["checkpoint"].get("lastDurableStep")
        return found if found is not None and found >= step else None

    return wait_for(look, within=120, what=f"durable step {step}")


@pytest.mark.timeout(900)
def test_a_job_whose_pods_the_operator_cannot_hear(deaf: Stack, space: Kube) -> None:
    product = deaf
    with ThreadPoolExecutor(1) as pool:
        expected = pool.submit(uninterrupted_ddp, steps=STEPS)
        store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
        job = Job(kube=space, name="gpt")
        space.apply(
            manifests.ddp(
                "gpt",
                store=store,
                save_every=SAVE_EVERY,
                steps=STEPS,
                step_seconds=0.25,
                # A node's end leaves survivors, who fail first.
                pod=manifests.apart("gpt"),
            )
        )

        # 1. It starts, and says what is wrong and what to do.
        job.wait_training(1, within=240)
        degraded = job.condition("Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", Reason.REPORTS_UNREACHABLE)
        assert job.condition("Running")["status"] == "Unknown"
        status = job.status()
        assert status["current"]["throughStore"] is True
        assert (status["starts"], status["restarts"]) == (1, 0)
        durable = until_durable(job, SAVE_EVERY)

        # 2. SIGKILL of one rank's trainer: same pods, counted once, from the newest checkpoint.
        pods = [pod["metadata"]["uid"] for pod in job.pods()]
        job.kill_trainer(1)
        job.wait_training(2, within=240)
        assert [pod["metadata"]["uid"] for pod in job.pods()] == pods
        status = job.status()
        assert (status["starts"], status["restarts"], status["attempt"]) == (2, 1, 2)
        assert status["current"]["kind"] == "InPlace"
        assert status["current"]["culprit"]["exitCode"] == 137
        assert fences(product, space)[-1]["choice"]["step"] >= durable
        durable = until_durable(job, durable + SAVE_EVERY)

        # 3. A node's power cut: its pod runs elsewhere; one start, whoever died of it first.
        charged = status["budgets"]["restartsSinceProgress"]
        rank = job.rank_off(product.operator_node())
        lost = job.node(rank)
        product.cluster.node_kill(lost)
        try:
            job.wait_training(3, within=300)
            assert job.node(rank) != lost
            status = job.status()
            assert (status["starts"], status["restarts"]) == (3, 2)
            assert status["budgets"]["restartsSinceProgress"] <= charged
            assert fences(product, space)[-1]["choice"]["step"] >= durable
            log = space.run("logs", "-f", job.pod_name(0), "-c", "trainer", timeout=600)
        finally:
            product.cluster.node_heal(lost)

        # 4. It ends, and ends the same.
        status = job.wait_phase("Succeeded", within=240)
        assert final_weights(log) == expected.result()
    assert (status["completions"], status["starts"], status["failures"]) == (1, 3, 1)
    assert status["checkpoint"]["lastDurableStep"] == STEPS
    assert fences(product, space)[-1]["outcome"] == "complete"
    wait_for(lambda: not job.pods(), within=60, what="all pods gone with the terminal condition")
