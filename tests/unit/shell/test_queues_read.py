"""What the shell reads of a queue and writes for a gang: gates, groups, finalizers, Workloads."""

from __future__ import annotations

from typing import Any

import pytest
from kit.loop import create, script, turn
from rtj_operator.core import gangs
from rtj_operator.core.observed import Observed, PodView, QueueView
from rtj_operator.core.plan import FreePod, Plan
from rtj_operator.shell.api import ApiError
from rtj_operator.shell.queues import READ_SECONDS, Queues, with_queue, workload_view

NOW = 1_800_000_000.0
SHORT = "couldn't assign flavors to pod set rank:\n insufficient unused quota for cpu"


def pod(**fields: Any) -> PodView:
    known = {
        "name": "gpt-0-1-abcd",
        "uid": "u1",
        "resource_version": "1",
        "rank": 0,
        "made_in": 1,
        "created_at": NOW,
        "gates": (gangs.QUEUE_GATE,),
        "group": "gpt-g1-abcd",
    }
    return PodView(**{**known, **fields})


def workload(*, reserved: str, message: str = "", **more: Any) -> dict[str, Any]:
    condition = {"type": "QuotaReserved", "status": reserved, "message": message}
    return {"spec": {}, "status": {"conditions": [condition], **more}}


def test_what_kueue_did_to_a_pod_is_seen() -> None:
    raw = {
        "metadata": {
            "labels": {
                "kueue.x-k8s.io/pod-group-name": "gpt-g1-abcd",
                "kueue.x-k8s.io/managed": "true",
            },
            "finalizers": ["kueue.x-k8s.io/managed"],
        },
        "spec": {
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
            "schedulerName": "volcano",
        },
        "status": {
            "conditions": [
                {"type": "TerminationTarget", "status": "True", "reason": "WorkloadEvicted"}
            ]
        },
    }
    bare = pod(gates=(), group=None)
    view = with_queue(bare, raw)
    assert (view.gates, view.group) == (("kueue.x-k8s.io/admission",), "gpt-g1-abcd")
    assert (view.is_queued, view.is_kept_by_queue) == (True, True)
    assert view.ended_by_queue == "WorkloadEvicted"
    assert view.scheduler == "volcano"
    plain = with_queue(bare, {"metadata": {}, "spec": {}, "status": {}})
    assert (plain.group, plain.is_queued, plain.ended_by_queue) == (None, False, None)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (workload(reserved="False", message=SHORT), SHORT.replace("\n ", " ")),
        ({"spec": {}, "status": {}}, None),
        (
            {**workload(reserved="False", message=SHORT), "spec": {"active": False}},
            "the Workload is deactivated: set spec.active to true in it",
        ),
        (
            workload(
                reserved="True",
                admissionChecks=[
                    {"name": "nodes", "state": "Pending", "message": "are being made"},
                    {"name": "other", "state": "Ready"},
                ],
            ),
            "nodes: are being made",
        ),
    ],
)
def test_why_a_workload_is_not_admitted(raw: dict[str, Any], message: str | None) -> None:
    assert workload_view(raw) == QueueView(message=message)


async def test_a_workload_is_read_only_while_pods_wait_and_seldom(cluster) -> None:
    now = NOW
    queues = Queues(cluster, clock=lambda: now)
    cluster.workloads["ns", "gpt-g1-abcd"] = workload(reserved="False", message="no quota")
    assert await queues.view([pod(node="n1", gates=())], namespace="ns") is None
    assert cluster.calls == []
    for _ in range(3):
        assert await queues.view([pod()], namespace="ns") == QueueView(message="no quota")
    assert cluster.calls == ["get_workload"]
    cluster.workloads["ns", "gpt-g1-abcd"] = workload(reserved="False", message="still none")
    now += READ_SECONDS
    assert await queues.view([pod()], namespace="ns") == QueueView(message="still none")

    def forbidden(_: str) -> None:
        raise ApiError(status=403, message="workloads is forbidden")

    cluster.fail = forbidden
    now += READ_SECONDS
    assert await queues.view([pod()], namespace="ns") == QueueView(message="still none")


def volcano(raw_job, **more: Any) -> dict[str, Any]:
    return raw_job(scheduling={"gang": "volcano", **more})


async def test_a_group_is_made_before_the_first_pod(cluster, raw_job, make_app) -> None:
    uid = cluster.add_job(volcano(raw_job))["metadata"]["uid"]
    cluster.served_groups = {"scheduling.volcano.sh/v1beta1"}
    acting = Plan(rule="Make", why="", actions=(create(0, uid), create(1, uid)))
    await turn(make_app(script(acting)))
    assert cluster.calls.index("apply_group") < cluster.calls.index("create_pod")
    (group,) = cluster.groups.values()
    assert group["spec"] == {"minMember": 2}
    annotation = {p["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for p in
                  cluster.pods.values()}  # fmt: skip
    assert annotation == {group["metadata"]["name"]}


async def test_the_newest_version_of_a_native_group_that_is_served_is_used(
    cluster, raw_job, make_app
) -> None:
    uid = cluster.add_job(raw_job(scheduling={"gang": "native"}))["metadata"]["uid"]
    cluster.served_groups = {"scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha2"}
    await turn(make_app(script(Plan(rule="Make", why="", actions=(create(0, uid),)))))
    (group,) = cluster.groups.values()
    assert group["apiVersion"] == "scheduling.k8s.io/v1beta1"


async def test_without_the_kind_no_pod_is_made_and_the_remedy_is_told(
    cluster, raw_job, make_app
) -> None:
    uid = cluster.add_job(volcano(raw_job))["metadata"]["uid"]
    seen: list[Observed] = []

    def last(observed: Observed) -> Plan:
        seen.append(observed)
        return Plan(rule="x", why="")

    await turn(make_app(script(Plan(rule="Make", why="", actions=(create(0, uid),)), last)))
    assert cluster.pods == {}
    (rejection,) = seen[0].rejections.values()
    assert "install Volcano" in rejection.message


async def test_a_pod_is_freed_of_the_queues_finalizer_only(cluster, raw_job, make_app) -> None:
    uid = cluster.add_job(raw_job())["metadata"]["uid"]
    made = Plan(rule="Make", why="", actions=(create(0, uid),))
    await turn(make_app(script(made)))
    (raw,) = cluster.pods.values()
    raw["metadata"]["finalizers"] = ["mine/keep", gangs.QUEUE_FINALIZER]
    meta = raw["metadata"]
    free = FreePod(name=meta["name"], uid=meta["uid"], resource_version=meta["resourceVersion"])
    await turn(make_app(script(Plan(rule="Free", why="", actions=(free,)))))
    (raw,) = cluster.pods.values()
    assert raw["metadata"]["finalizers"] == ["mine/keep"]


async def test_a_webhook_that_does_not_answer_is_told_and_not_only_tried_again(
    cluster, raw_job, make_app
) -> None:
    uid = cluster.add_job(raw_job())["metadata"]["uid"]
    said = 'Internal error occurred: failed calling webhook "mpod.kb.io": connection refused'

    def broken(call: str) -> None:
        if call == "create_pod":
            raise ApiError(status=500, reason="InternalError", message=said)

    cluster.fail = broken
    seen: list[Observed] = []

    def last(observed: Observed) -> Plan:
        seen.append(observed)
        return Plan(rule="x", why="")

    await turn(make_app(script(Plan(rule="Make", why="", actions=(create(0, uid),)), last)))
    (rejection,) = seen[0].rejections.values()
    assert "mpod.kb.io" in rejection.message
