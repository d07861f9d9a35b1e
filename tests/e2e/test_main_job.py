"""The main job: a plain PyTorch script, killed in every way, ends as if nothing had happened."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from kit import manifests
from kit.kube import Kube, wait_for
from kit.reference import final_weights, uninterrupted_ddp
from kit.rtj import Job
from kit.s3_objects import list_keys, read_object
from kit.stack import Stack

STEPS = 500
SAVE_EVERY = 5
# A holder that had every part stored may still write its manifest while the next one claims; the
# next one then lists that manifest, or writes the equal one itself.
ROLL_FORWARD_SECONDS = 5.0


def started(space: Kube, product: Stack, name: str = "gpt", **options) -> Job:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    more = {"pod": manifests.apart(name), **options}
    space.apply(manifests.ddp(name, store=store, save_every=SAVE_EVERY, **more))
    return Job(kube=space, name=name)


def committed(product: Stack, space: Kube, name: str = "gpt") -> list[dict]:
    """Commit records of the run, by key."""
    prefix = f"{space.namespace}/{space.namespace}/{name}/"
    keys = [k for k in list_keys(product.s3, prefix=prefix) if "/manifests/" in k]
    return [json.loads(read_object(product.s3, key=key)) for key in sorted(keys)]


def published_too_late(product: Stack, space: Kube, name: str = "gpt") -> list[str]:
    """Saves committed by an attempt after a later attempt had claimed the run and chosen."""
    prefix = f"{space.namespace}/{space.namespace}/{name}/"
    keys = [key for key in list_keys(product.s3, prefix=prefix) if "/fences/" in key]
    claims = {
        record["fence"]: record["claimedAt"]
        for record in (json.loads(read_object(product.s3, key=key)) for key in keys)
        if record.get("parent")
    }
    return [
        record["name"]
        for record in committed(product, space, name)
        if record["committedByFence"] == record["fence"]
        and any(
            fence > record["fence"] and record["committedAt"] > at + ROLL_FORWARD_SECONDS
            for fence, at in claims.items()
        )
    ]


def newest_on_both(job: Job) -> str | None:
    """The newest save of the run, just now pinned on both ranks, so that no newer one is near."""
    pinned = [job.report(rank)["pinned"] for rank in (1, 0)]
    named = [found["name"] for found in job.report(0)["candidates"]]
    return named[0] if named and all(named[0] in names for names in pinned) else None


@pytest.mark.timeout(900)
def test_killed_in_every_way_it_ends_bitwise_equal(product: Stack, space: Kube) -> None:
    with ThreadPoolExecutor(1) as pool:
        expected = pool.submit(uninterrupted_ddp, steps=STEPS)
        job = started(space, product, steps=STEPS, step_seconds=0.25)

        # 1. First start: nothing to resume, step 0; checkpoints appear, commit records last.
        job.wait_phase("Running", within=180)
        status = job.wait_durable(SAVE_EVERY)
        assert status["resume"]["scratch"] is True
        assert (status["starts"], status["restarts"]) == (1, 0)
        records = committed(product, space)
        assert records, "a durable step without a commit record"
        keys = set(list_keys(product.s3, prefix=f"{space.namespace}/"))
        for record in records:
            for file in record["files"]:
                assert any(key.endswith(file["key"]) for key in keys), f"{file} is not in the store"
        assert job.node(0) != job.node(1)

        # 2. SIGKILL of one rank's trainer: same pods, newest checkpoint, nothing downloaded.
        shared = wait_for(
            lambda: newest_on_both(job), within=60, what="the newest save pinned on both ranks"
        )
        pods = [pod["metadata"]["uid"] for pod in job.pods()]
        job.kill_trainer(1)
        job.wait_training(2)
        status = job.wait_status("one restart", lambda s: s["restarts"] == 1)
        assert [pod["metadata"]["uid"] for pod in job.pods()] == pods
        assert status["current"]["kind"] == "InPlace"
        assert status["resume"]["step"] >= SAVE_EVERY
        assert job.report(0)["checkpoint"]["restoredBytes"] == 0
        # A save that rank 0 finished between the look and the kill is newer than what was shared.
        newer = status["resume"]["name"] != shared
        assert newer or job.report(1)["checkpoint"]["restoredBytes"] == 0

        # 3. A pod deleted, a pod evicted: only that pod is new, no budget used.
        charged = job.status()["budgets"]["restartsSinceProgress"]
        for attempt, hurt in (
            (3, lambda: space.run("delete", "pod", job.pod_name(1), "--wait=false")),
            (4, lambda: job.evict(0)),
        ):
            step = job.status()["checkpoint"]["lastDurableStep"]
            job.wait_durable(step + SAVE_EVERY)
            before = {pod["metadata"]["uid"] for pod in job.pods()}
            hurt()
            job.wait_training(attempt)
            after = {pod["metadata"]["uid"] for pod in job.pods()}
            assert len(before & after) == 1, "exactly one of two pods is new"
            assert job.status()["budgets"]["restartsSinceProgress"] <= charged

        # 4a. A node's power cut: its pod runs elsewhere and the gang trains on.
        job.wait_durable(job.status()["checkpoint"]["lastDurableStep"] + SAVE_EVERY)
        rank = job.rank_off(product.operator_node())
        lost = job.node(rank)
        product.cluster.node_kill(lost)
        job.wait_training(5, within=240)
        assert job.node(rank) != lost
        product.cluster.node_heal(lost)

        # 4b. A node cut off: its old pod is a zombie; nothing of it is ever a candidate.
        job.wait_durable(job.status()["checkpoint"]["lastDurableStep"] + SAVE_EVERY)
        rank = job.rank_off(product.operator_node())
        lost = job.node(rank)
        zombie = job.pod(rank)["metadata"]["uid"]
        product.cluster.node_cut(lost)
        job.wait_training(6, within=240)
        assert job.node(rank) != lost
        job.wait_durable(job.status()["checkpoint"]["lastDurableStep"] + SAVE_EVERY)
        product.cluster.node_heal(lost)
        assert zombie not in {pod["metadata"]["uid"] for pod in job.pods()}
        job.wait_durable(job.status()["checkpoint"]["lastDurableStep"] + 2 * SAVE_EVERY)
        assert not published_too_late(product, space), "a fenced-off attempt published"

        # 6. kill -9 of the operator and of a sidecar.
        step = job.status()["checkpoint"]["lastDurableStep"]
        product.operator.run("delete", "pod", product.operator_pod(), "--grace-period=0", "--force")
        job.kill_sidecar(0)
        job.kill_trainer(0)
        job.wait_training(7, within=240)
        job.wait_durable(step + SAVE_EVERY, within=180)

        # 7. It ends, and ends the same.
        log = space.run("logs", "-f", job.pod_name(0), "-c", "trainer", timeout=600)
        status = job.wait_phase("Succeeded", within=400)
        assert final_weights(log) == expected.result()
    assert status["completions"] == 1
    wait_for(lambda: not job.pods(), within=60, what="all pods gone with the terminal condition")
    owners = {record["fence"] for record in committed(product, space)}
    assert owners, "no commit records at the end"
