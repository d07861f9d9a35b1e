"""Deadlines, times to live, other managers and the node ledger on a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.kube import Kube
from kit.operator_process import OperatorProcess
from kit.played import PlayedPods, a_job, eventually
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_operator.core.avoid import keep_off, shun
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.api import ApiError

pytestmark = pytest.mark.contract

LEDGER = "nodes"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."


async def test_a_job_that_has_had_its_time_fails_and_is_removed(cluster, space, operator) -> None:
    key = JobKey(space.namespace, "short")
    spec = {"activeDeadlineSeconds": 2, "ttlSecondsAfterFinished": 2}
    space.apply(a_job(namespace=key.namespace, name=key.name, **spec))

    async def has_failed() -> bool:
        job = await cluster.get_job(key)
        conditions = ((job or {}).get("status") or {}).get("conditions") or []
        return any(
            (c["type"], c["status"], c["reason"]) == ("Failed", "True", Reason.DEADLINE_EXCEEDED)
            for c in conditions
        )

    async def is_gone() -> bool:
        return await cluster.get_job(key) is None

    async with PlayedPods(cluster, key):
        await eventually(has_failed, within=60, what="DeadlineExceeded")
        await eventually(is_gone, within=120, what="the job removed")
    assert await cluster.list_pods(key) == []


async def test_a_job_is_deleted_only_as_the_version_that_was_seen(cluster, space) -> None:
    key = JobKey(space.namespace, "kept")
    space.apply(a_job(namespace=key.namespace, name=key.name))
    meta = (await cluster.get_job(key))["metadata"]
    for uid, version in ((meta["uid"], "1"), ("another", meta["resourceVersion"])):
        with pytest.raises(ApiError) as refused:
            await cluster.delete_job(key=key, uid=uid, resource_version=version)
        assert refused.value.is_conflict
    await cluster.delete_job(key=key, uid=meta["uid"], resource_version=meta["resourceVersion"])
    assert await cluster.get_job(key) is None


async def test_a_job_of_another_controller_gets_no_pod_and_no_status(
    cluster, space, operator
) -> None:
    theirs, ours = JobKey(space.namespace, "theirs"), JobKey(space.namespace, "ours")
    manager = {"managedBy": "kueue.x-k8s.io/multikueue"}
    space.apply(a_job(namespace=theirs.namespace, name=theirs.name, **manager))
    space.apply(a_job(namespace=ours.namespace, name=ours.name))

    async def has_pods() -> bool:
        return len(await cluster.list_pods(ours)) == 2

    await eventually(has_pods, what="pods of our own job")
    job = await cluster.get_job(theirs)
    assert "status" not in job
    assert await cluster.list_pods(theirs) == []


# --- nodes ---


@pytest.fixture
def node(space: Kube) -> Iterator[str]:
    """Name of a node that `appear` makes."""
    name = f"node-of-{space.namespace}"
    yield name
    space.run("delete", "node", name, "--wait=false", "--ignore-not-found")


def appear(space: Kube, node: str) -> None:
    """It is ready, and no kubelet is behind it: for 40 s nobody minds."""
    space.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    ready = [{"type": "Ready", "status": "True", "reason": "Played", "message": ""}]
    patch = json.dumps({"status": {"conditions": ready}})
    space.run("patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)


def bind(space: Kube, pod: str, node: str) -> None:
    """The scheduler's part."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    wish = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
    path = f"/api/v1/namespaces/{space.namespace}/pods/{pod}/binding"
    space.run("create", "--raw", path, "-f", "-", stdin=json.dumps(wish))


def ledger_of(space: Kube) -> dict[str, Any]:
    data = space.get("configmap", LEDGER).get("data") or {}
    return {node: json.loads(text) for node, text in data.items()}


async def test_a_gpu_that_failed_in_one_job_keeps_the_next_off_its_node(
    server, cluster, space, node, tmp_path: Path
) -> None:
    space.run("create", "configmap", LEDGER)
    environment = {"RTJ_NODE_LEDGER": LEDGER, "POD_NAMESPACE": space.namespace}
    logs = (tmp_path / "1.log", tmp_path / "2.log")
    first = OperatorProcess(server.kubeconfig, space.namespace, logs[0], environment=environment)
    await first.start()
    key = JobKey(space.namespace, "gpt")
    try:
        space.apply(a_job(namespace=key.namespace, name=key.name))
        async with PlayedPods(cluster, key) as pods:

            async def trains() -> bool:
                job = await cluster.get_job(key)
                return ((job or {}).get("status") or {}).get("phase") == "Running"

            await eventually(trains, what="it trains")
            appear(space, node)
            bind(space, pods.of_rank(1).name, node)
            trainer = pods.of_rank(1).report.trainer
            ended = trainer.model_copy(
                update={
                    "state": wire.TrainerState.EXITED,
                    "exit_code": 1,
                    "ended_at": trainer.started_at,
                    "tail": [XID],
                }
            )
            await pods.of_rank(1).say(phase=wire.SidecarPhase.EXITED, trainer=ended)
            found = await eventually(lambda: _kept(space), within=60, what="it is counted")
        assert set(found) == {node}
        marks = found[node]["marks"]
        assert [(m["reason"], m["gpu"], m["job"]) for m in marks] == [
            ("Xid79", "0000:3b:00", str(key))
        ]
    finally:
        await first.stop()
    again = OperatorProcess(server.kubeconfig, space.namespace, logs[1], environment=environment)
    await again.start()
    try:
        other = JobKey(space.namespace, "other")
        space.apply(a_job(namespace=other.namespace, name=other.name))

        async def made() -> list[dict[str, Any]]:
            return await cluster.list_pods(other)

        (pod, *_) = await eventually(made, what="pods of the other job")
        (wish,) = pod["spec"]["affinity"]["nodeAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        assert wish["preference"]["matchFields"] == [
            {"key": "metadata.name", "operator": "NotIn", "values": [node]}
        ]
        score = await again.value("training_node_fault_score", node=node)
        assert score is not None
        assert 1.9 < score <= 2
    finally:
        await again.stop()


async def _kept(space: Kube) -> dict[str, Any]:
    return ledger_of(space)


async def test_an_update_of_the_ledger_on_an_old_version_is_a_conflict(cluster, space) -> None:
    space.run("create", "configmap", LEDGER)
    seen = await cluster.get_config_map(namespace=space.namespace, name=LEDGER)
    await cluster.put_config_map({**seen, "data": {"node-1": "{}"}})
    with pytest.raises(ApiError) as refused:
        await cluster.put_config_map({**seen, "data": {}})
    assert refused.value.is_conflict
    assert ledger_of(space) == {"node-1": {}}


async def test_the_api_server_takes_wishes_and_demands_about_many_nodes(space) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": space.namespace, "name": "picky"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    names = [f"node-{i}" for i in range(48)]
    made = shun(keep_off(pod, names), names)
    told = space.run("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(made))
    assert json.loads(told)["spec"]["affinity"] == made["spec"]["affinity"]
