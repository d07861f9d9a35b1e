"""kill -9 of the operator and of sidecars at random moments, while trainers die: one end state.

The moments are drawn from a seed that a failure prints; RTJ_CHAOS_SEED replays one.
"""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kit import host, manifests
from kit.kube import Kube, KubectlError, wait_for
from kit.reference import final_weights, uninterrupted_ddp
from kit.rtj import Job
from kit.stack import OPERATOR_NAMESPACE, Stack

STEPS = 300
SAVE_EVERY = 5
ROUNDS = 4


def kill_operator(product: Stack) -> None:
    """SIGKILL of the operator's process: the kubelet starts the container again."""
    pod = product.kube.within(OPERATOR_NAMESPACE).get("pod", product.operator_pod())
    host.kill_container(pod, "operator")


@pytest.mark.long  # each kill at its exact moment: tests/contract/operator/test_fault_matrix.py
@pytest.mark.timeout(900)
def test_operator_and_sidecars_killed_at_random_end_the_same(product: Stack, space: Kube) -> None:
    seed = int(os.environ.get("RTJ_CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"RTJ_CHAOS_SEED={seed}")
    draw = random.Random(seed)
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    with ThreadPoolExecutor(1) as pool:
        expected = pool.submit(uninterrupted_ddp, steps=STEPS)
        space.apply(
            manifests.ddp("gpt", store=store, steps=STEPS, save_every=SAVE_EVERY, step_seconds=0.3)
        )
        job = Job(kube=space, name="gpt")
        job.wait_durable(SAVE_EVERY, within=240)
        for number in range(ROUNDS):
            before = job.status()
            hurt = draw.choice(["trainer", "pod", "evict"])
            rank, other = draw.choice([(0, 1), (1, 0)])
            also = draw.choice(["operator", "sidecar", "both"])
            delay = draw.uniform(0, 1.5)
            print(f"round {number}: {hurt} of rank {rank}, then {also} after {delay:.2f} s")

            def later(also: str = also, delay: float = delay, other: int = other) -> None:
                time.sleep(delay)
                if also in ("operator", "both"):
                    kill_operator(product)
                if also in ("sidecar", "both"):
                    try:
                        job.kill_sidecar(other)
                    except (KeyError, KubectlError):
                        print(f"no sidecar of rank {other} at that moment")

            killer = threading.Thread(target=later)
            killer.start()
            if hurt == "trainer":
                job.kill_trainer(rank)
            elif hurt == "pod":
                space.run("delete", "pod", job.pod_name(rank), "--wait=false")
            else:
                job.evict(rank)
            killer.join()
            job.wait_training(before["attempt"] + 1, within=240)
            step = before["checkpoint"]["lastDurableStep"]
            job.wait_durable(step + 2 * SAVE_EVERY, within=180)
            after = job.status()
            counted = after["restarts"] - before["restarts"]
            started = [
                r for r in after["attempts"] if r["attempt"] > before["attempt"] and r["started"]
            ]
            assert counted == len(started) >= 1, f"{counted} counted, {len(started)} recorded"
            assert after["starts"] - before["starts"] == counted
        log = space.run("logs", "-f", job.pod_name(0), "-c", "trainer", timeout=600)
        status = job.wait_phase("Succeeded", within=300)
        assert final_weights(log) == expected.result()
    assert status["starts"] == status["restarts"] + 1
    assert status["completions"] == 1
    wait_for(lambda: not job.pods(), within=90, what="all pods gone")
