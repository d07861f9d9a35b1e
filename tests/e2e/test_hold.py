"""Held and let go again, by the cause and its remedy, with nothing lost on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kit import manifests
from kit.fault_proxy import Fault, FaultProxy, Mode
from kit.kube import Kube, wait_for
from kit.rtj import KIND, Job
from kit.stack import Stack, credentials_secret
from rtj_api import contract

GPUS = 2


@pytest.fixture
def proxy(product: Stack) -> Iterator[FaultProxy]:
    with FaultProxy(upstream=product.s3.endpoint, address=product.host_address) as made:
        yield made


def suspend(job: Job, *, value: bool) -> None:
    patch = f'{{"spec": {{"suspend": {str(value).lower()}}}}}'
    job.kube.run("patch", KIND, job.name, "--type=merge", "-p", patch)


def wait_said(job: Job, kind: str, *words: str, within: float = 90) -> str:
    def look() -> str | None:
        condition = job.condition(kind)
        text = f"{condition['reason']} {condition.get('message', '')}"
        return text if all(word in text for word in words) else None

    try:
        return wait_for(look, within=within, what=f"{kind} says {words}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{job.describe()}") from None


def wait_gone(job: Job, *, within: float = 150) -> None:
    """Until all its pods are gone; else with what their sidecars say."""
    try:
        wait_for(lambda: not job.pods(), within=within, what="all durable, all pods gone")
    except AssertionError as error:
        said = [
            job.report(int(pod["metadata"]["labels"][contract.LABEL_RANK])) for pod in job.pods()
        ]
        raise AssertionError(f"{error}\n{json.dumps(said, indent=1)}\n{job.describe()}") from None


@pytest.mark.timeout(540)
def test_a_secret_that_is_made_late_and_a_suspend_while_the_store_is_away(
    product: Stack, space: Kube, proxy: FaultProxy
) -> None:
    store = manifests.store(endpoint=proxy.endpoint, prefix=space.namespace, secret="late")
    extra = ("--save-ranks", "all", "--lockstep")
    space.apply(
        manifests.counter("held", store=store, gpus=0, extra=extra, recovery={"maxRestarts": 50})
    )
    job = Job(kube=space, name="held")
    wait_said(job, "Running", "late")
    assert job.status().get("starts", 0) == 0
    space.apply(credentials_secret(product.s3, name="late"))
    job.wait_durable(10, within=240)

    # The store goes away, saves pile up, a rank is lost: nothing can be chosen, the job is held.
    proxy.switch(Fault(Mode.REFUSE))
    wait_for(
        lambda: all(job.report(r)["checkpoint"].get("pendingSaves") for r in (0, 1)),
        within=60,
        what="saves that are not durable on both ranks",
    )
    starts = job.status()["starts"]
    pods = {pod["metadata"]["name"] for pod in job.pods()}
    suspend(job, value=True)
    text = wait_said(job, "Suspended", "Suspending", "rank 0", "not in the store yet", within=120)
    assert "keep" in text or "kept" in text
    saved = max(job.report(r)["checkpoint"]["lastSavedStep"] for r in (0, 1))
    assert {pod["metadata"]["name"] for pod in job.pods()} == pods, "nothing may be deleted"

    proxy.heal()
    status = job.wait_phase("Suspended", within=60)
    wait_gone(job)
    status = job.wait_status(
        "suspended",
        lambda s: any(c["type"] == "Suspended" and c["status"] == "True" for c in s["conditions"]),
    )
    # The stop may have come between the two ranks' files of the very last save.
    durable = status["checkpoint"]["lastDurableStep"]
    assert durable >= saved - 5
    suspend(job, value=False)
    status = job.wait_status("it goes on", lambda s: s["starts"] == starts + 1, within=180)
    assert status["resume"]["step"] == durable
    assert status["restarts"] == 0


def blocker(name: str) -> dict:
    """Takes all GPUs of one node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "sleep",
                    "image": manifests.IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "100000"],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "resources": {"limits": {"nvidia.com/gpu": GPUS}},
                }
            ],
        },
    }


@pytest.mark.timeout(420)
def test_a_gang_that_finds_half_its_nodes_lets_a_smaller_job_run(
    product: Stack, space: Kube
) -> None:
    """Three nodes with two GPUs each; two are taken, and the gang wants two."""
    space.apply(blocker("one"), blocker("two"))
    for name in ("one", "two"):
        space.run("wait", "pod", name, "--for=condition=Ready", "--timeout=90s", timeout=100)
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    recovery = {"placementTimeoutSeconds": 12}
    space.apply(manifests.counter("big", store=store, gpus=GPUS, recovery=recovery))
    big = Job(kube=space, name="big")
    wait_said(big, "Running", "Insufficient nvidia.com/gpu")
    space.apply(manifests.counter("small", store=store, replicas=1, gpus=GPUS, steps=25))
    small = Job(kube=space, name="small")
    status = big.wait_status("all given back", lambda s: s["attempt"] >= 2, within=60)
    assert status.get("starts", 0) == 0
    small.wait_phase("Succeeded", within=240)
    causes = {record["cause"] for record in big.status()["attempts"]}
    assert "PlacementTimeout" in causes | {big.status()["current"]["cause"]}
    space.run("delete", "pod", "one", "two", "--wait=false")
    status = big.wait_durable(10, within=240)
    assert (status["starts"], status["restarts"]) == (1, 0)
