"""A changed template at its moment, and an upgrade of the operator that changes no pod."""

from __future__ import annotations

import json

import pytest
from kit import manifests
from kit.kube import Kube, wait_for
from kit.rtj import KIND, Job
from kit.stack import Stack, install


def uids(job: Job) -> set[str]:
    return {pod["metadata"]["uid"] for pod in job.pods()}


def installed(product: Stack) -> tuple[str, str]:
    """The images of the operator that runs, and of the sidecars that it adds."""
    pod = product.operator.get("pod", product.operator_pod())
    [container] = pod["spec"]["containers"]
    told = {entry["name"]: entry.get("value") for entry in container["env"]}
    return container["image"], str(told["RTJ_SIDECAR_IMAGE"])


def upgrade(product: Stack, *, operator: str, sidecar: str) -> None:
    facts = product.cluster.status()
    install(
        kubectl=facts["kubectl"],
        kubeconfig=facts["kubeconfig"],
        operator_image=operator,
        sidecar_image=sidecar,
    )


@pytest.mark.timeout(540)
def test_applied_at_the_next_durable_save_and_upgrades_touch_no_pod(
    product: Stack, space: Kube
) -> None:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    made = manifests.counter("tuned", store=store, gpus=0, save_every=60, extra=("--lockstep",))
    space.apply(made)
    job = Job(kube=space, name="tuned")
    job.wait_durable(60, within=180)

    # 1. Just after a save: the next one is twelve seconds away, and no pod goes before it.
    before, first = job.status(), uids(job)
    manifests.trainer_of(made)["env"].append({"name": "TUNED", "value": "yes"})
    space.apply(made)
    status = job.wait_status("the change is seen", lambda s: s.get("pendingTemplate"), within=30)
    durable = status["pendingTemplate"]["durableStep"]
    assert durable >= before["checkpoint"]["lastDurableStep"]
    if job.status()["checkpoint"]["lastDurableStep"] == durable:
        assert uids(job) == first
    status = job.wait_status("made anew", lambda s: s["attempt"] == 2, within=120)
    assert status["current"]["cause"] == "TemplateChanged"
    status = job.wait_status("started anew", lambda s: s["starts"] == 2, within=120)
    assert status["resume"]["step"] > durable
    assert status["restarts"] == 0
    job.wait_training(2)
    assert not first & uids(job)
    for rank in (0, 1):
        assert space.exec(job.pod_name(rank), "printenv", "TUNED").strip() == "yes"

    # 2. The operator is upgraded to one that would make pods with another sidecar.
    second = uids(job)
    operator, current = installed(product)
    try:
        upgrade(product, operator=operator, sidecar=f"{current}-next")
        assert installed(product) == (operator, f"{current}-next")
        job.wait_durable(status["resume"]["step"] + 60, within=120)
        assert uids(job) == second
        assert job.status()["attempt"] == 2
        job.kill_trainer(1)
        status = job.wait_status("in place", lambda s: s["starts"] == 3, within=120)
        assert status["current"]["kind"] == "InPlace"
        assert uids(job) == second
        assert status["restarts"] == 1
    finally:
        upgrade(product, operator=operator, sidecar=current)

    # 3. While no rank trains, a change is applied at once.
    job.kube.run("patch", KIND, job.name, "--type=merge", "-p", '{"spec": {"suspend": true}}')
    wait_for(lambda: not job.pods(), within=150, what="suspended")
    manifests.trainer_of(made)["env"][-1]["value"] = "more"
    made["spec"]["suspend"] = False
    space.apply(made)
    job.wait_training(4)
    assert space.exec(job.pod_name(0), "printenv", "TUNED").strip() == "more"
    assert json.loads(space.run("get", KIND, job.name, "-o", "json"))["status"]["restarts"] == 1
