"""Raw objects as the API server sends them -> views."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rtj_api import contract
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed
from rtj_operator.shell.pod_views import controller_uid, pod_view, status_port_of
from rtj_operator.shell.views import job_view, node_view


def a_raw_pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "team",
            "name": "gpt-1-3-0a1b",
            "uid": "pod-1",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:10Z",
            "labels": {contract.LABEL_JOB: "gpt", contract.LABEL_RANK: "1"},
            "annotations": {contract.ANNOTATION_MADE_IN: "3"},
            "ownerReferences": [
                {
                    "apiVersion": contract.API_VERSION,
                    "kind": contract.KIND,
                    "name": "gpt",
                    "uid": "job-1",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [
                {"name": "logs", "image": "i"},
                {"name": "train", "image": "i", "command": [contract.SUPERVISE, "--", "x"]},
            ],
            "initContainers": [
                {
                    "name": contract.CONTAINER_SIDECAR,
                    "env": [{"name": contract.ENV_CONFIG, "value": '{"statusPort": 11234}'}],
                }
            ],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", **status},
    }


def test_a_pods_identity_and_place() -> None:
    view = pod_view(a_raw_pod())
    assert view is not None
    assert (view.rank, view.made_in, view.node, view.ip) == (1, 3, "node-1", "10.0.0.1")
    assert view.created_at == 1767225610
    assert controller_uid(a_raw_pod()) == "job-1"
    assert status_port_of(a_raw_pod()) == view.status_port == 11234
    assert view.rendezvous_told is False, "an older sidecar does not listen for it"


def test_a_lost_label_is_read_from_the_name_which_cannot_change() -> None:
    raw = a_raw_pod()
    raw["metadata"]["labels"] = {contract.LABEL_RANK: "first"}
    raw["metadata"]["annotations"] = {}
    view = pod_view(raw)
    assert view is not None
    assert (view.rank, view.made_in) == (1, 3)
    raw["metadata"]["name"] = "something"
    assert pod_view(raw) is None


def test_a_spare_is_known_by_its_name_and_its_rank_by_its_label() -> None:
    raw = a_raw_pod()
    raw["metadata"]["name"] = "gpt-s4-3-0a1b"
    raw["metadata"]["labels"] = {contract.LABEL_JOB: "gpt"}
    view = pod_view(raw)
    assert view is not None
    assert (view.spare, view.rank, view.made_in) == (4, contract.NO_RANK, 3)
    raw["metadata"]["labels"][contract.LABEL_RANK] = "1"
    view = pod_view(raw)
    assert view is not None
    assert (view.spare, view.rank, view.made_in) == (4, 1, 3)
    # A job may be named as if it were a spare.
    raw["metadata"]["name"] = "gpt-s4-1-3-0a1b"
    view = pod_view(raw)
    assert view is not None
    assert (view.spare, view.rank) == (None, 1)


def test_a_pod_of_another_controller_is_not_ours() -> None:
    raw = a_raw_pod()
    raw["metadata"]["ownerReferences"][0]["kind"] = "Job"
    assert controller_uid(raw) is None


def test_deletion_was_asked_for_a_grace_before_its_deadline() -> None:
    raw = a_raw_pod()
    raw["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:05:40Z",
        "deletionGracePeriodSeconds": 330,
    }
    view = pod_view(raw)
    assert view is not None
    assert view.deletion_deadline == 1767225940
    assert view.deleting_since == 1767225610


def test_containers_are_told_apart() -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:01:00Z"}
    view = pod_view(
        a_raw_pod(
            containerStatuses=[
                {
                    "name": "train",
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                    "lastState": {"terminated": ended},
                    "restartCount": 2,
                },
                {"name": "logs", "state": {"running": {"startedAt": "2026-01-01T00:00:20Z"}}},
            ],
            initContainerStatuses=[
                {
                    "name": contract.CONTAINER_SIDECAR,
                    "ready": True,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:15Z"}},
                }
            ],
        )
    )
    assert view is not None
    assert view.trainer is not None
    assert view.trainer.name == "train"
    assert view.trainer.waiting_reason == "CrashLoopBackOff"
    assert view.trainer.last_end is not None
    assert (view.trainer.last_end.exit_code, view.trainer.last_end.signal) == (137, 9)
    assert view.trainer.ended is None
    assert view.trainer.restarts == 2
    assert view.sidecar is not None
    assert view.sidecar.running
    assert [other.name for other in view.others] == ["logs"]


@pytest.mark.parametrize(("code", "signal"), [(0, None), (1, None), (128, None), (143, 15)])
def test_signals_are_read_from_the_exit_code(code: int, signal: int | None) -> None:
    status = [{"name": "train", "state": {"terminated": {"exitCode": code}}}]
    view = pod_view(a_raw_pod(containerStatuses=status))
    assert view is not None
    assert view.trainer is not None
    assert view.trainer.ended is not None
    assert view.trainer.ended.signal == signal


def test_conditions_of_placement_and_disruption() -> None:
    view = pod_view(
        a_raw_pod(
            phase="Pending",
            conditions=[
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "message": "0/3 nodes",
                    "lastTransitionTime": "2026-01-01T00:00:30Z",
                },
                {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
            ],
        )
    )
    assert view is not None
    assert view.scheduled is False
    assert view.unschedulable_message == "0/3 nodes"
    assert view.unschedulable_since == 1767225630
    assert view.disruption == "EvictionByEvictionAPI"


def test_a_directive_that_cannot_be_read_is_none() -> None:
    raw = a_raw_pod()
    raw["metadata"]["annotations"][contract.ANNOTATION_DIRECTIVE] = "{"
    view = pod_view(raw)
    assert view is not None
    assert view.directive is None


@pytest.mark.parametrize(
    ("status", "ready", "since"),
    [("True", True, None), ("False", False, 1767225600.0), ("Unknown", None, 1767225600.0)],
)
def test_a_nodes_readiness(status: str, ready: bool | None, since: float | None) -> None:
    condition = {
        "type": "Ready",
        "status": status,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    raw = {
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {"conditions": [condition]},
    }
    view = node_view("n", raw, lease_renewed_at=5.0)
    assert (view.ready, view.not_ready_since, view.exists) == (ready, since, True)
    assert view.taints == ("gpu:NoSchedule",)
    assert not node_view("n", None, lease_renewed_at=None).exists


def a_job_object(raw_job, **meta: Any) -> dict[str, Any]:
    job = raw_job()
    job["metadata"] |= {"uid": "job-1", "resourceVersion": "1", "generation": 4, **meta}
    return job


def test_a_job_and_its_spec(raw_job) -> None:
    view = job_view(a_job_object(raw_job))
    assert view.problem is None
    assert view.spec is not None
    assert (view.spec.replicas, view.spec.run_id, view.generation) == (2, "team/gpt", 4)
    assert view.spec.trainer_grace_seconds == 30
    assert not view.deleting


@pytest.mark.parametrize(
    ("finalizers", "leaves_pods"),
    [(["orphan"], True), (["foregroundDeletion"], False), (["a/b", "orphan"], True), (None, False)],
)
def test_a_deletion_that_leaves_the_pods_is_told_by_its_finalizer(
    raw_job, finalizers: list[str] | None, leaves_pods: bool
) -> None:
    going = {"deletionTimestamp": "2026-01-01T00:00:10Z", "finalizers": finalizers}
    view = job_view(a_job_object(raw_job, **going))
    assert (view.deleting, view.leaves_pods) == (True, leaves_pods)


@pytest.mark.parametrize(
    ("manager", "elsewhere"),
    [
        (None, None),
        (contract.MANAGER, None),
        ("kueue.x-k8s.io/multikueue", "kueue.x-k8s.io/multikueue"),
    ],
)
def test_who_manages_a_job_is_told_even_of_a_spec_that_cannot_be_read(
    raw_job, manager: str | None, elsewhere: str | None
) -> None:
    for fields in ({}, {"replicas": "many"}):
        job = raw_job(**fields, **({"managedBy": manager} if manager else {}))
        job["metadata"] |= {"uid": "1", "resourceVersion": "1"}
        assert job_view(job).managed_elsewhere == elsewhere


def test_a_spec_that_cannot_be_read_is_a_problem_with_its_field(raw_job) -> None:
    job = a_job_object(raw_job)
    job["spec"]["replicas"] = "two"
    view = job_view(job)
    assert view.spec is None
    assert view.problem is not None
    assert view.problem.reason == "InvalidSpec"
    assert "spec.replicas" in view.problem.message


def test_a_template_that_cannot_work_is_a_problem_with_its_reason(raw_job) -> None:
    job = a_job_object(raw_job)
    del job["spec"]["template"]["spec"]["containers"][0]["command"]
    problem = job_view(job).problem
    assert problem is not None
    assert problem.reason == "CommandMissing"


NAMED_PORT = {"tcpSocket": {"port": "p"}}
MEMORY = {"medium": "Memory", "sizeLimit": "1e999"}
MOUNTED = {"volumeMounts": [{"name": "v", "mountPath": "/checkpoints"}]}
ODD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a grace with a unit": ({"terminationGracePeriodSeconds": "30s"}, {}, "30s"),
    "env is a map": ({}, {"env": {"A": "b"}}, "str"),
    "a mount is a word": ({}, {"volumeMounts": ["x"]}, "str"),
    "emptyDir is a word": ({"volumes": [{"name": "v", "emptyDir": "x"}]}, MOUNTED, "str"),
    "resources is a word": ({}, {"resources": "x"}, "str"),
    "GPUs are a list": ({}, {"resources": {"limits": {"nvidia.com/gpu": ["1"]}}}, "list"),
    "image is a number": ({}, {"image": 5}, "image"),
    "a size without bounds": ({"volumes": [{"name": "v", "emptyDir": MEMORY}]}, MOUNTED, "large"),
    "a probe asks nothing": ({}, {"livenessProbe": {"periodSeconds": 1}}, "tcpSocket"),
    "a probe is a word": ({}, {"livenessProbe": "x"}, "str"),
    "a threshold is a word": (
        {},
        {"livenessProbe": {"exec": {"command": ["x"]}, "failureThreshold": "x"}},
        "'x'",
    ),
    "a header without a value": (
        {},
        {"livenessProbe": {"httpGet": {"port": 1, "httpHeaders": [{"name": "A"}]}}},
        "value",
    ),
    "a port without a number": (
        {},
        {"livenessProbe": NAMED_PORT, "ports": [{"name": "p"}]},
        "containerPort",
    ),
    "affinity is a word": ({"affinity": "x"}, {}, "str"),
    "securityContext is a word": ({"securityContext": "x"}, {}, "str"),
}


@pytest.mark.parametrize("status", [{}, {"attempt": 3, "starts": 3}], ids=["new", "running"])
@pytest.mark.parametrize("case", ODD)
def test_what_the_api_lets_through_and_no_pod_can_have_is_a_problem(raw_job, case, status) -> None:
    pod, trainer, words = ODD[case]
    job = a_job_object(raw_job) | {"status": status}
    job["spec"]["template"]["spec"] |= pod
    job["spec"]["template"]["spec"]["containers"][0] |= trainer
    view = job_view(job)
    assert view.spec is None
    assert view.problem is not None
    assert view.problem.reason == "InvalidSpec"
    assert "spec.template" in view.problem.message
    assert words in view.problem.message
    assert decide(Observed(now=1.0, job=view)).rule == "unreadable"


def test_requests_are_read_or_their_fault_is_told(raw_job) -> None:
    good = json.dumps({"id": "1", "action": "restart"})
    view = job_view(a_job_object(raw_job, annotations={contract.ANNOTATION_REQUEST: good}))
    assert view.request is not None
    assert view.request.action == "restart"
    bad = json.dumps({"id": "1", "action": "explode"})
    view = job_view(a_job_object(raw_job, annotations={contract.ANNOTATION_REQUEST: bad}))
    assert view.request is None
    assert view.request_error is not None
    assert "allow-scratch" in view.request_error
