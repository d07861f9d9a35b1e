"""Pods taken away in every way there is, in the middle of an upload: what was saved is not lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from kit import manifests
from kit.fault_proxy import Fault, FaultProxy, Mode
from kit.kube import Kube, wait_for
from kit.rtj import Job
from kit.s3_objects import list_keys, read_object
from kit.stack import Stack
from rtj_api import contract

DATA = r"/checkpoints/f\d+-n\d+-s"
MANIFEST = r"/manifests/f\d+-n\d+\.json"
SLOW = Fault(Mode.DRIP, only=f"^PUT .*{DATA}", bytes_per_second=60_000)


@pytest.fixture
def proxy(product: Stack) -> Iterator[FaultProxy]:
    with FaultProxy(upstream=product.s3.endpoint, address=product.host_address) as made:
        yield made


def durable_steps(product: Stack, space: Kube) -> list[int]:
    keys = list_keys(product.s3, prefix=f"{space.namespace}/")
    found = [json.loads(read_object(product.s3, key=k)) for k in keys if re.search(MANIFEST, k)]
    return sorted(record["step"] for record in found)


def saved_while_uploading(job: Job, proxy: FaultProxy) -> int:
    """The newest step that rank 0 has on disk and that is still on its way."""
    proxy.switch(SLOW)
    return wait_for(
        lambda: (view := job.report(0)["checkpoint"]).get("pendingSaves") and view["lastSavedStep"],
        within=60,
        what="a save that is being uploaded",
    )


@pytest.mark.timeout(540)
def test_what_is_being_uploaded_survives_a_drain_and_what_is_durable_anything(
    product: Stack, space: Kube, proxy: FaultProxy
) -> None:
    store = manifests.store(endpoint=proxy.endpoint, prefix=space.namespace)
    extra = ("--floats", "32768", "--lockstep")
    space.apply(manifests.counter("gone", store=store, save_every=25, extra=extra))
    job = Job(kube=space, name="gone")
    job.wait_durable(25, within=180)

    # 1. The holder's node is drained: its pod ships within its grace what it had saved.
    saved = saved_while_uploading(job, proxy)
    node = job.node(0)
    selector = f"{contract.LABEL_JOB}={job.name}"
    try:
        flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s")
        space.run("drain", node, f"--pod-selector={selector}", *flags, timeout=150)
        status = job.wait_status("attempt 2 starts", lambda s: s.get("starts") == 2, within=120)
        assert status["resume"]["step"] >= saved
        assert status["current"]["cause"] == "PodEvicted", status["current"]
        assert node not in {job.node(0), job.node(1)}
    finally:
        space.run("uncordon", node)
    proxy.heal()
    job.wait_durable(saved + 25, within=120)

    # 2. Forced away, as by --grace-period=0: no grace, no drain, and no harm.
    before = job.status()
    name = job.pod_name(1)
    space.run("delete", "pod", name, "--grace-period=0", "--force")
    status = job.wait_status("attempt 3 starts", lambda s: s.get("starts") == 3, within=120)
    assert status["resume"]["step"] >= before["checkpoint"]["lastDurableStep"]
    job.wait_durable(status["resume"]["step"] + 25, within=120)

    # 3. A grace that is shorter than the upload: the newest durable save is what counts.
    before = job.status()["checkpoint"]["lastDurableStep"]
    saved_while_uploading(job, proxy)
    space.run("delete", "pod", job.pod_name(0), "--grace-period=1", "--wait=false")
    status = job.wait_status("attempt 4 starts", lambda s: s.get("starts") == 4, within=150)
    assert status["resume"]["step"] >= before
    assert status["resume"]["step"] in durable_steps(product, space)
    proxy.heal()
    status = job.wait_durable(status["resume"]["step"] + 25, within=150)
    assert status["restarts"] == 3
    assert status["budgets"].get("restartsSinceProgress", 0) == 0, "all was infrastructure"
    steps = durable_steps(product, space)
    assert len(set(steps)) == len(steps)
