"""Gang schedulers and queues on a real API server: PodGroups, and what is said without them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.foreign_crds import pod_groups
from kit.played import a_job, eventually
from rtj_api.reasons import Reason
from rtj_operator.core.observed import JobKey

pytestmark = pytest.mark.contract


async def running_says(cluster: Any, key: JobKey) -> tuple[str, str]:
    job = await cluster.get_job(key)
    conditions = ((job or {}).get("status") or {}).get("conditions") or []
    found = next((c for c in conditions if c["type"] == "Running"), {})
    return found.get("reason", ""), found.get("message", "")


def group_of(space: Any, *, plural: str, name: str) -> dict[str, Any]:
    return json.loads(space.run("get", plural, name, "-o", "json"))


async def test_a_volcano_gang_waits_for_the_kind_and_then_gets_its_group(
    cluster, server, space, operator
) -> None:
    key = JobKey(space.namespace, "volcano")
    topology = {"networkTopology": {"mode": "hard", "highestTierAllowed": 2}}
    wish = {"gang": "volcano", "queue": "team-a", "podGroup": topology}
    space.apply(a_job(namespace=key.namespace, name=key.name, scheduling=wish))

    async def is_told() -> bool:
        reason, message = await running_says(cluster, key)
        return reason == Reason.GANG_UNAVAILABLE and "install Volcano" in message

    await eventually(is_told, within=60, what="GangUnavailable")
    assert await cluster.list_pods(key) == []

    server.apply(pod_groups("scheduling.volcano.sh/v1beta1"))

    async def has_pods() -> bool:
        return len(await cluster.list_pods(key)) == 2

    await eventually(has_pods, within=60, what="pods once the kind is there")
    pods = await cluster.list_pods(key)
    names = {p["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for p in pods}
    assert {p["spec"]["schedulerName"] for p in pods} == {"volcano"}
    (name,) = names
    group = group_of(space, plural="podgroups.scheduling.volcano.sh", name=name)
    assert group["spec"] == {"minMember": 2, "queue": "team-a", **topology}
    job = await cluster.get_job(key)
    (owner,) = group["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (job["metadata"]["uid"], True)

    async def names_the_scheduler() -> bool:
        reason, message = await running_says(cluster, key)
        return reason == Reason.UNSCHEDULABLE and "scheduler volcano has not looked" in message

    await eventually(names_the_scheduler, within=90, what="the missing scheduler's name")


async def test_scheduler_plugins_get_their_group(cluster, server, space, operator) -> None:
    server.apply(pod_groups("scheduling.x-k8s.io/v1alpha1"))
    key = JobKey(space.namespace, "plugins")
    wish = {"gang": "scheduler-plugins"}
    space.apply(a_job(namespace=key.namespace, name=key.name, scheduling=wish))

    async def has_pods() -> bool:
        return len(await cluster.list_pods(key)) == 2

    await eventually(has_pods, within=60, what="pods")
    (name,) = {
        p["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"]
        for p in await cluster.list_pods(key)
    }
    group = group_of(space, plural="podgroups.scheduling.x-k8s.io", name=name)
    assert group["spec"] == {"minMember": 2}


async def test_a_field_that_its_pod_group_does_not_have_is_named(
    cluster, server, space, operator
) -> None:
    """The CRD alone would drop it, and the wish would be forgotten silently."""
    server.apply(pod_groups("scheduling.x-k8s.io/v1alpha1"))
    key = JobKey(space.namespace, "typo")
    wish = {"gang": "scheduler-plugins", "podGroup": {"scheduleTimeoutSecond": 60}}
    space.apply(a_job(namespace=key.namespace, name=key.name, scheduling=wish))

    async def is_told() -> bool:
        reason, message = await running_says(cluster, key)
        is_named = "scheduleTimeoutSecond" in message and "spec.scheduling.podGroup" in message
        return reason == Reason.GANG_UNAVAILABLE and is_named

    await eventually(is_told, within=60, what="the unknown field")
    assert await cluster.list_pods(key) == []


async def test_a_server_without_native_gangs_is_named(cluster, space, operator) -> None:
    """Its group is built in: no CRD can stand in for it, so here is only what an older one says."""
    key = JobKey(space.namespace, "native")
    space.apply(a_job(namespace=key.namespace, name=key.name, scheduling={"gang": "native"}))

    async def is_told() -> bool:
        reason, message = await running_says(cluster, key)
        return reason == Reason.GANG_UNAVAILABLE and "GenericWorkload" in message

    await eventually(is_told, within=60, what="GangUnavailable")
    assert await cluster.list_pods(key) == []


async def test_a_queue_that_nobody_serves_holds_the_pods_and_says_so(
    cluster, space, operator
) -> None:
    """No Kueue here: nothing may run past the queue."""
    key = JobKey(space.namespace, "queued")
    wish = {"gang": "kueue", "queue": "team-a"}
    space.apply(a_job(namespace=key.namespace, name=key.name, scheduling=wish))

    async def is_told() -> bool:
        reason, message = await running_says(cluster, key)
        return reason == Reason.QUEUE_NOT_SERVED and "LocalQueue team-a" in message

    await eventually(is_told, within=90, what="QueueNotServed")
    pods = await cluster.list_pods(key)
    gates = {"kueue.x-k8s.io/admission"}
    assert [{g["name"] for g in p["spec"]["schedulingGates"]} for p in pods] == [gates, gates]
