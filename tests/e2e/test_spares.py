"""A spare on a real cluster: it takes a deleted pod's rank, then a dead node's, and is made up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from kit import manifests
from kit.kube import Kube, wait_for
from kit.reference import final_weights, uninterrupted_ddp
from kit.rtj import Job
from kit.stack import Stack
from rtj_api import contract

STEPS = 300


def spare_at_hand(job: Job, *, beyond: int = -1) -> str | None:
    """The spare's name once it is ready and has the newest durable save."""
    status = job.status()
    shown = status.get("spares") or {}
    durable = status["checkpoint"].get("lastDurableName")
    if shown.get("ready") != 1 or durable is None:
        return None
    if status["checkpoint"]["lastDurableStep"] <= beyond:
        return None
    for pod in job.spares():
        waits = job.report_of(pod).get("standby") or {}
        if waits.get("name") == durable:
            return str(pod["metadata"]["name"])
    return None


def wait_spare(job: Job, *, beyond: int = -1) -> str:
    try:
        return wait_for(
            lambda: spare_at_hand(job, beyond=beyond), within=150, what="a spare with the save"
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{job.describe()}") from None


@pytest.mark.timeout(540)
def test_a_spare_takes_the_rank_of_a_pod_and_of_a_node(product: Stack, space: Kube) -> None:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    space.apply(
        manifests.ddp(
            "gpt",
            store=store,
            steps=STEPS,
            save_every=20,
            step_seconds=0.3,
            recovery={"spares": 1},
            grace_seconds=2,
        )
    )
    job = Job(kube=space, name="gpt")
    with ThreadPoolExecutor(1) as pool:
        expected = pool.submit(uninterrupted_ddp, steps=STEPS)
        job.wait_phase("Running", within=180)

        # 1. A pod is deleted: no pod is made for its rank.
        first = wait_spare(job)
        assert [p["metadata"]["labels"].get(contract.LABEL_RANK) for p in job.spares()] == [None]
        space.run("delete", "pod", job.pod_name(1), "--wait=false")
        job.wait_training(2)
        status = job.status()
        assert job.pod_name(1) == first
        assert status["standIns"] == [{"rank": 1, "spare": 0, "madeIn": 1}]
        assert (status["current"]["kind"], status["current"]["takenOver"]) == ("Replace", [1])
        assert status["resume"]["step"] > 0
        assert any(e["reason"] == "SpareTookOver" for e in job.events())

        # 2. The spare is made up; then rank 0's node, or the stand-in's, loses its power.
        second = wait_spare(job, beyond=status["resume"]["step"])
        assert second != first
        rank = job.rank_off(product.operator_node())
        lost = job.node(rank)
        on_lost = lost == space.get("pod", second)["spec"]["nodeName"]
        product.cluster.node_kill(lost)
        try:
            job.wait_training(3, within=240)
            assert job.node(rank) != lost
            assert on_lost or job.pod_name(rank) == second
        finally:
            product.cluster.node_heal(lost)

        # 3. It ends as if nothing had happened, and nothing is left.
        log = space.run("logs", "-f", job.pod_name(0), "-c", "trainer", timeout=400)
        job.wait_phase("Succeeded", within=200)
        assert final_weights(log) == expected.result()
    wait_for(lambda: not job.pods() and not job.spares(), within=60, what="no pod is left")
