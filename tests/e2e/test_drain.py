"""Pods taken away in every way there is, in the middle of an upload: what was saved is not lost."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kit import host, manifests
from kit.fault_proxy import Fault, FaultProxy, Mode
from kit.kube import Kube, wait_for
from kit.rtj import Job
from kit.s3_objects import list_keys, read_object
from kit.stack import OPERATOR_NAMESPACE, Stack
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


# --- with a trainer that obeys a stop step ---

SPOT = "cloud.google.com/impending-node-termination"
STEP = re.compile(r"^step (\d+)/", re.MULTILINE)


def agreed(job: Job, *, count: int) -> int:
    """The newest stop step of that many, as the events told them."""
    told = [e["message"] for e in job.events() if e["reason"] == "StopAgreed"]
    steps = [int(n) for text in told for n in re.findall(r"save and end at step (\d+)", text)]
    assert len(steps) == count, told
    return max(steps)


def moved(job: Job, *, attempt: int, cause: str, within: float) -> int:
    """The step of the save that attempt `attempt` began from, once it trains: the agreed one."""
    status = job.wait_status(
        f"attempt {attempt}", lambda s: s.get("starts") == attempt, within=within
    )
    stop = agreed(job, count=attempt - 1)
    assert status["resume"].get("step") == stop, status
    assert status["current"]["cause"] == cause, status["current"]
    assert status["budgets"].get("restartsSinceProgress", 0) == 0
    job.wait_training(attempt)
    return stop


def push_keys(job: Job) -> set[str]:
    notes = [pod["metadata"]["annotations"] for pod in job.pods()]
    return {json.loads(note[contract.ANNOTATION_DIRECTIVE])["pushKey"] for note in notes}


def each_step_once(job: Job, rank: int) -> None:
    """The log of a rank whose container lived through it all: no step was made twice or skipped."""
    steps = [int(n) for n in STEP.findall(job.log(rank))]
    assert steps == list(range(steps[0], steps[0] + len(steps))), steps


@pytest.mark.timeout(540)
def test_ranks_that_agree_on_a_stop_step_lose_none(product: Stack, space: Kube) -> None:
    """It never saves by itself, so any restart from anywhere else would begin at step 0."""
    manifest = manifests.ddp(
        "agreed",
        store=manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace),
        steps=100_000,
        save_every=100_000,
        step_seconds=0.3,
        extra=("--stop-file", f"$({contract.ENV_STOP_FILE})"),
        recovery={"stop": {"by": "File"}},
        gpus=2,  # a node each, so that one rank stays where it is
        spec={"procsPerReplica": 1},
    )
    space.apply(manifest)
    job = Job(kube=space, name="agreed")
    job.wait_step(15, within=180)

    # An operator that has just come back can still push a word to a pod that is being ended.
    keys = push_keys(job)
    pod = product.kube.within(OPERATOR_NAMESPACE).get("pod", product.operator_pod())
    host.kill_container(pod, "operator")
    wait_for(lambda: not push_keys(job) & keys, within=120, every=1, what="the operator's new key")

    # 1. The node of the rank that does not save is drained.
    before, node = job.report(0)["progress"]["step"], job.node(1)
    selector = f"{contract.LABEL_JOB}={job.name}"
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s")
    try:
        space.run("drain", node, f"--pod-selector={selector}", *flags, timeout=150)
        first = moved(job, attempt=2, cause="PodEvicted", within=120)
        assert first > before
        assert job.node(1) != node
    finally:
        space.run("uncordon", node)
    job.wait_step(first + 15)
    each_step_once(job, 0)

    # 2. The node of the rank that saves is to go in 30 s.
    before, node = job.report(0)["progress"]["step"], job.node(0)
    began = time.monotonic()
    try:
        space.run("taint", "node", node, f"{SPOT}=:NoSchedule")
        job.wait_status("attempt 3", lambda s: s.get("attempt") == 3, within=30)
        saved_in = time.monotonic() - began
        second = moved(job, attempt=3, cause="NodeLeaving", within=120)
        assert second > before
        assert job.node(0) != node
        assert saved_in < 25, saved_in
    finally:
        space.run("taint", "node", node, f"{SPOT}-")
    job.wait_step(second + 15)
    each_step_once(job, 1)

    # 3. Suspended: its next save would never come.
    wish = json.dumps({"spec": {"suspend": True}})
    space.run("patch", "rtj", job.name, "--type=merge", "-p", wish)
    job.wait_phase("Suspended", within=90)
    third = agreed(job, count=3)
    assert third > second
    assert job.status()["checkpoint"]["lastDurableStep"] == third
    assert job.status()["restarts"] == 2


# --- with trainers that save on a signal ---


def signalled(product: Stack, space: Kube, by: str, **more: Any) -> Job:
    """Real PyTorch that saves on a signal and at no other time."""
    name = f"by-{by.lower()}"
    manifest = manifests.habit(
        name,
        "told_by_signal",
        store=manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace),
        steps=100_000,
        every=100_000,
        torch=True,
        replicas=2,
        recovery={"stop": {"by": by}},
        spec={"procsPerReplica": 1},
        **more,
    )
    space.apply(manifest)
    return Job(kube=space, name=name)


def on_nodes_of_their_own(job: str, *, off: str) -> dict[str, Any]:
    """The affinity of pods that are never on one node, nor on that one."""
    keep_off = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [off]}
    when = "requiredDuringSchedulingIgnoredDuringExecution"
    return {
        **manifests.apart(job)["affinity"],
        "nodeAffinity": {when: {"nodeSelectorTerms": [{"matchExpressions": [keep_off]}]}},
    }


@pytest.mark.timeout(540)
def test_trainers_that_save_on_a_signal_lose_no_step(product: Stack, space: Kube) -> None:
    """Two ways to be told, two ways to go: a drained node, and one that shuts down in order, where
    the kubelet ends the pods and nobody deletes them."""
    shut = signalled(product, space, "SIGTERM", gpus=2)  # a node each
    busy = product.operator_node()
    wait_for(lambda: _are_placed(shut), within=90, what="both ranks on their nodes")
    rank = shut.rank_off(busy)
    node = shut.node(rank)
    affinity = on_nodes_of_their_own("by-sigusr1", off=node)
    drained = signalled(product, space, "SIGUSR1", gpus=0, pod={"affinity": affinity})
    for job in (shut, drained):
        job.wait_step(15, within=180)
    before = {job.name: job.report(0)["progress"]["step"] for job in (shut, drained)}
    selector = f"{contract.LABEL_JOB}={drained.name}"
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s")
    other = drained.node(1)
    try:
        product.cluster.node_shutdown(node)
        try:
            space.run("drain", other, f"--pod-selector={selector}", *flags, timeout=150)
        finally:
            space.run("uncordon", other)
        for job, lost in ((shut, rank), (drained, 1)):
            status = job.wait_status("attempt 2", lambda s: s.get("starts") == 2, within=120)
            assert (status["resume"].get("step") or 0) >= before[job.name], status
            assert status["current"]["cause"] == "PodEvicted", status["current"]
            assert status["current"]["replaced"] == [lost], status["current"]
            assert status["budgets"].get("restartsSinceProgress", 0) == 0
            agreed(job, count=1)
        assert shut.node(rank) != node
        for job, stayed in ((shut, 1 - rank), (drained, 0)):
            job.wait_step(job.status()["resume"]["step"] + 5)
            each_step_once(job, stayed)
            assert "SAVED AND ENDS AT" in job.log(stayed)
    finally:
        product.cluster.node_heal(node)
        ended = f"status.phase=Failed,spec.nodeName={node}"
        product.kube.run("delete", "pods", "-A", f"--field-selector={ended}", "--wait=false")


def _are_placed(job: Job) -> bool:
    return [bool(pod["spec"].get("nodeName")) for pod in job.pods()] == [True, True]
