"""Three ranks, two, three again, with the real example trainer: places go away and come back."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kit import manifests
from kit.kube import Kube
from kit.rtj import Job
from kit.stack import Stack

STEPS, SAVE_EVERY, BATCH = 260, 10, 12
LAUNCH = re.compile(r"^rank 0 of (\d+) takes (\d+) batches of (\d+)$", re.M)
STEP = re.compile(r"^step (\d+)/\d+ epoch \d+ loss ([\d.]+)$", re.M)


def has_size(job: Job, size: int) -> dict[str, Any]:
    """The status once a gang of that size trains."""
    return job.wait_status(
        f"{size} pods train",
        lambda s: (s.get("elastic") or {}).get("size") == size and s["phase"] == "Running",
        within=180,
    )


def degraded(job: Job) -> tuple[str, str]:
    found = job.condition("Degraded")
    return found["reason"], found["message"]


@pytest.mark.timeout(540)
def test_a_gang_of_three_goes_on_with_two_and_is_three_again(product: Stack, space: Kube) -> None:
    made = manifests.ddp(
        "gpt",
        store=manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace),
        steps=STEPS,
        save_every=SAVE_EVERY,
        step_seconds=0.2,
        extra=["--batch=2", "--samples=480", "--accumulation=$(RTJ_GRADIENT_ACCUMULATION)"],
        replicas=3,
        gpus=2,  # a node's: each pod fills one
        grace_seconds=2,
        spec={
            "procsPerReplica": 1,
            "elastic": {
                "minReplicas": 2,
                "scaleDownAfterSeconds": 5,
                "globalBatch": BATCH,
                "microBatch": 2,
            },
        },
    )
    space.apply(made)
    job = Job(kube=space, name="gpt")
    whole = has_size(job, 3)
    assert whole["elastic"]["gradientAccumulation"] == 2
    # Where the pods of the test before still end, it begins small and has just grown: a growth is
    # proved by a save of its own.
    known = (whole.get("checkpoint") or {}).get("lastDurableStep") or 0
    saved = job.wait_durable(known + 2 * SAVE_EVERY, within=180)
    durable = saved["checkpoint"]["lastDurableStep"]

    # 1. Rank 1 loses its place, and there is no other: two go on, with more accumulation.
    node = job.node(1)
    space.run("cordon", node)
    try:
        space.run("delete", "pod", job.pod_name(1), "--wait=false")
        small = has_size(job, 2)
        assert small["elastic"]["gradientAccumulation"] == 3
        assert small["elastic"]["reason"] == small["current"]["cause"] == "ScaledDown"
        assert small["resume"]["step"] >= durable
        assert small["budgets"].get("restartsSinceProgress", 0) == 0, small["budgets"]
        reason, text = degraded(job)
        assert reason == "ScaledDown", text
        assert text.startswith("2 of 3 pods train. 1 of 3 pods found no place for 5 s: "), text
        assert "nvidia.com/gpu" in text, text
        durable = job.wait_durable(small["resume"]["step"] + SAVE_EVERY, within=120)
        shown = job.wait_status(
            "a pod asks for room", lambda s: (s.get("spares") or {}).get("message")
        )
        assert (shown["spares"]["wanted"], shown["spares"]["ready"]) == (1, 0)
    finally:
        space.run("uncordon", node)

    # 2. The place is back: the pod that waited takes rank 2 at a save.
    grown = has_size(job, 3)
    assert grown["elastic"]["gradientAccumulation"] == 2
    assert grown["elastic"]["reason"] == grown["current"]["cause"] == "ScaledUp"
    assert [s["rank"] for s in grown["standIns"]] == [2]
    assert grown["resume"]["step"] >= durable["checkpoint"]["lastDurableStep"]
    told = {event["reason"] for event in job.events()}
    assert {"ScaledDown", "ScalingUp", "ScaledUp", "SpareTookOver"} <= told

    # 3. Rank 0 has the whole story: every step was made, with the same number of samples.
    log = space.run("logs", "-f", job.pod_name(0), "-c", "trainer", timeout=300)
    ended = job.wait_phase("Succeeded", within=120)
    assert ended["restarts"] == 1, "the lost pod's"
    assert ended["failures"] == 0
    launches = [tuple(map(int, found)) for found in LAUNCH.findall(log)]
    assert launches == [(3, 2, 2), (2, 3, 2), (3, 2, 2)]
    assert {world * parts * batch for world, parts, batch in launches} == {BATCH}
    check_steps(log, begun_at=[small["resume"]["step"], grown["resume"]["step"]])


def check_steps(log: str, *, begun_at: list[int]) -> None:
    """Each attempt goes on from its save and trains on: no step is left out, none begins anew."""
    steps = [(int(step), float(loss)) for step, loss in STEP.findall(log)]
    begins = [i for i in range(1, len(steps)) if steps[i][0] != steps[i - 1][0] + 1]
    goes_on = [steps[i][0] - 1 for i in begins]
    assert set(goes_on) <= set(begun_at), goes_on
    assert {step for step, _ in steps} == set(range(1, STEPS + 1))
    first = sum(loss for _, loss in steps[:10]) / 10
    for step in begun_at:
        at = max(i for i, (made, _) in enumerate(steps) if made == step + 1)
        before = [loss for made, loss in steps[:at] if made <= step][-10:]
        after = [loss for _, loss in steps[at : at + 10]]
        assert sum(after) / 10 < (sum(before) / 10 + first) / 2, f"it began anew at {step}"
