"""What the kubelet and Kubernetes say of a pod's end: whom it charges, and what a person reads."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from kit import observations
from kit.causes import FAILED, cause_of, terminated
from kit.observations import pod_of, with_exit, with_pod
from rtj_api import contract
from rtj_api.reasons import Charge, Reason
from rtj_api.status import RestartKind
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import ContainerEnd, ContainerView
from rtj_operator.core.podends import told_end
from rtj_operator.shell.pod_views import pod_view

running = functools.cache(observations.running)  # frozen, and slow to come to

# A pod that the kubelet refused: reason -> its message, words of the remedy.
REFUSED = {
    "UnexpectedAdmissionError": (
        "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. "
        "Requested: 2, Available: 0, which is unexpected",
        "device plugin",
    ),
    "OutOfcpu": (
        "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000",
        "less cpu left",
    ),
    "OutOfmemory": (
        "Node didn't have enough resource: memory, requested: 2, used: 3, capacity: 4",
        "less memory left",
    ),
    "OutOfpods": (
        "Node didn't have enough resource: pods, requested: 1, used: 110, capacity: 110",
        "less pods left",
    ),
    "OutOfephemeral-storage": (
        "Node didn't have enough resource: ephemeral-storage, requested: 2, used: 3, capacity: 4",
        "less ephemeral-storage left",
    ),
    "OutOfnvidia.com/gpu": (
        "Node didn't have enough resource: nvidia.com/gpu, requested: 2, used: 1, capacity: 2",
        "less nvidia.com/gpu left",
    ),
    "NodeAffinity": ("Predicate NodeAffinity failed: node(s) didn't match", "nodeSelector"),
    "NodeName": ("Predicate NodeName failed", "nodeSelector"),
    "TaintToleration": ("Predicate TaintToleration failed", "tolerations"),
    "NodePorts": ("Predicate NodePorts failed", "hostPort"),
    "TopologyAffinityError": (
        "Resources cannot be allocated with Topology locality",
        "topology or CPU manager",
    ),
    "SMTAlignmentError": ("SMT Alignment Error: requested 3 cpus", "whole cores"),
    "PodOSNotSupported": ("Failed to admit pod as its OS doesn't match", "os.name"),
    "InitContainerRestartPolicyForbidden": ("Init container may not have a policy", "1.29"),
    "InvalidNodeInfo": ("Kubelet cannot get node info.", "its log"),
    "SomethingNew": ("for a reason of a later version", "If this repeats"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_pod_that_the_kubelet_refused_is_made_anew_at_no_charge(reason: str) -> None:
    said, remedy = REFUSED[reason]
    refused = {"reason": reason, "message": f"Pod was rejected: {said}", "trainer": None}
    plan = cause_of(with_pod(running(), 1, phase="Failed", **refused))
    assert plan.status is not None
    current = plan.status.current
    assert current is not None
    assert (current.cause, current.charge) == (Reason.POD_FAILED, Charge.INFRASTRUCTURE)
    assert (current.kind, current.replaced) == (RestartKind.REPLACE, [1])
    assert plan.status.budgets.restarts_since_progress == 0
    assert current.culprit is not None
    node = pod_of(running(), 1).node
    for words in (reason, f"kubelet of node {node} refused it", said.rstrip("."), remedy):
        assert words in plan.notes[0].message


def test_a_reason_that_the_kubelet_did_not_refuse_with_is_not_taken_for_a_refusal() -> None:
    for fields in ({"reason": "OutOf"}, {"reason": "SomethingNew", "message": "stopped"}):
        pod = pod_of(with_pod(running(), 1, **FAILED, **fields), 1)
        assert told_end(pod) is None


def test_only_a_failed_pod_was_refused() -> None:
    assert told_end(pod_of(with_pod(running(), 1, reason="NodeAffinity"), 1)) is None


LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
OVER = ", has larger consumption of memory. "
FREE, USER = Charge.INFRASTRUCTURE, Charge.USER

# The kubelet's message of an eviction -> whose charge, words of the remedy.
EVICTED: dict[str, tuple[str, Charge, str]] = {
    "over its request": (
        f"{LOW}Container trainer was using 20971520Ki, request is 16Gi{OVER}",
        USER,
        "resources.requests.memory of container trainer in spec.template by 4096Mi",
    ),
    "no request": (f"{LOW}Container trainer was using 4Gi, request is 0{OVER}", USER, "4096Mi"),
    "as kubelets to 1.25 say it": (
        "The node was low on resource: memory. Container trainer was using 20Gi, which exceeds "
        "its request of 16Gi. ",
        USER,
        "4096Mi",
    ),
    "resources of the whole pod": (
        f"{LOW}Pod gpt-1 was using 20Gi, request is 16Gi{OVER}",
        USER,
        "of pod gpt-1",
    ),
    "the worst of two": (
        f"{LOW}Container logs was using 2Gi, request is 1Gi{OVER}"
        f"Container trainer was using 3Gi, request is 1Gi{OVER}",
        USER,
        "of container trainer",
    ),
    "only the sidecar": (
        f"{LOW}Container {contract.CONTAINER_SIDECAR} was using 2Gi, request is 1Gi{OVER}",
        FREE,
        "spec.sidecar.resources",
    ),
    "mostly the sidecar": (
        f"{LOW}Container {contract.CONTAINER_SIDECAR} was using 3Gi, request is 1Gi{OVER}"
        f"Container trainer was using 2Gi, request is 1Gi{OVER}",
        FREE,
        "spec.sidecar.resources",
    ),
    "within its request": (
        f"{LOW}Container trainer was using 15Gi, request is 16Gi{OVER}",
        FREE,
        "low on resource",
    ),
    "nobody named": (LOW, FREE, "low on resource"),
    "a figure that cannot be read": (
        f"{LOW}Container trainer was using 20Qi, request is 16Gi{OVER}",
        FREE,
        "20Qi",
    ),
    "cut in its middle": (f"{LOW}Container trainer was using 20Gi, requ", FREE, "requ"),
    "pressure on the disk": (
        "The node was low on resource: ephemeral-storage. Container trainer was using 20Gi, "
        "request is 0, has larger consumption of ephemeral-storage. ",
        FREE,
        "ephemeral-storage",
    ),
    "refused for a condition of the node": (
        "Pod was rejected: The node had condition: [MemoryPressure]. ",
        FREE,
        "MemoryPressure",
    ),
    "the pod's disk": (
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
        USER,
        "ephemeral-storage limit",
    ),
    "a container's disk": (
        'Container trainer exceeded its local ephemeral storage limit "1Gi". ',
        USER,
        "of container trainer",
    ),
    "the sidecar's disk": (
        f'Container {contract.CONTAINER_SIDECAR} exceeded its local ephemeral storage limit "1". ',
        FREE,
        "spec.sidecar.resources",
    ),
    "an emptyDir": (
        'Usage of EmptyDir volume "ckpt" exceeds the limit "1Gi". ',
        USER,
        "emptyDir.sizeLimit of volume ckpt",
    ),
}


@pytest.mark.parametrize("disruption", [None, "TerminationByKubelet"])
@pytest.mark.parametrize("case", EVICTED)
def test_an_eviction_is_charged_to_whom_the_kubelet_names(
    case: str, disruption: str | None
) -> None:
    message, charge, words = EVICTED[case]
    fields = {
        **FAILED,
        "reason": "Evicted",
        "message": message,
        "disruption": disruption,
        "disruption_message": message if disruption is not None else None,
    }
    for ending in ({}, {"deleting_since": 1009.0, "deletion_deadline": 1039.0}):
        plan = cause_of(with_pod(running(), 1, **fields, **ending))
        assert plan.status is not None
        assert plan.status.current is not None
        assert plan.status.current.cause == Reason.POD_EVICTED
        assert plan.status.current.charge == charge
        assert words in plan.notes[0].message


def test_own_use_does_not_count_where_another_ended_the_pod() -> None:
    message = EVICTED["over its request"][0]
    fields = {**FAILED, "reason": "Evicted", "message": message}
    plan = cause_of(with_pod(running(), 1, **fields, disruption="EvictionByEvictionAPI"))
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.charge == FREE


@pytest.mark.parametrize("disruption", [None, "TerminationByKubelet"])
def test_a_place_taken_by_a_critical_pod_is_a_preemption(disruption: str | None) -> None:
    message = "Preempted in order to admit critical pod"
    fields = {**FAILED, "reason": "Preempting", "message": message, "disruption": disruption}
    told = told_end(pod_of(with_pod(running(), 1, **fields), 1))
    assert told is not None
    assert (told.reason, told.charge) == (Reason.POD_PREEMPTED, None)
    assert message in told.message


def raw_pod(*conditions: dict[str, str], **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "gpt-1-1-0a1b",
            "uid": "pod-1",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:10Z",
        },
        "spec": {"containers": [{"name": "trainer", "command": [contract.SUPERVISE]}]},
        "status": {"phase": "Failed", "conditions": list(conditions), **status},
    }


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_disruption_that_is_not_true_says_nothing(status: str) -> None:
    """The disruption controller turns the condition of a pod that nobody ended to False."""
    target = {"type": "DisruptionTarget", "reason": "PreemptionByScheduler", "message": "m"}
    view = pod_view(raw_pod({**target, "status": status}))
    assert view is not None
    assert (view.disruption, view.disruption_message, told_end(view)) == (None, None, None)
    true = pod_view(raw_pod({**target, "status": "True"}))
    assert true is not None
    told = told_end(true)
    assert told is not None
    assert told.reason == Reason.POD_PREEMPTED


def test_a_disruption_of_a_pod_that_goes_on_is_no_fault() -> None:
    assert decide(with_pod(running(), 1, disruption="PreemptionByScheduler")).is_empty


TRAPS: dict[str, tuple[dict[str, Any], Reason]] = {
    "a handler of SIGTERM ended it with 0, no condition": (
        {"phase": "Succeeded", "trainer": terminated(0, "Completed")},
        Reason.POD_FAILED,
    ),
    "a handler of SIGTERM ended it with 0, by an older kubelet's shutdown": (
        {"phase": "Succeeded", "reason": "Terminated", "trainer": terminated(0, "Completed")},
        Reason.POD_EVICTED,
    ),
    "no container status": ({"phase": "Failed", "trainer": None}, Reason.POD_FAILED),
    "137 without a reason": (
        {"phase": "Failed", "trainer": terminated(137, "")},
        Reason.POD_FAILED,
    ),
}


@pytest.mark.parametrize("case", TRAPS)
def test_an_end_that_tells_little_is_not_charged(case: str) -> None:
    fields, reason = TRAPS[case]
    plan = cause_of(with_pod(running(), 1, **fields))
    assert plan.status is not None
    current = plan.status.current
    assert current is not None
    assert (current.cause, current.charge) == (reason, Charge.INFRASTRUCTURE)
    assert current.kind == RestartKind.REPLACE


@pytest.mark.parametrize(("kills", "cause"), [(1, Reason.OUT_OF_MEMORY), (0, None)])
def test_memory_is_named_without_the_containers_reason_only_where_the_kernel_counted_it(
    kills: int, cause: Reason | None
) -> None:
    end = ContainerEnd(exit_code=137, reason="Error", finished_at=1009.0)
    view = ContainerView(name="trainer", running=True, restarts=1, last_end=end)
    seen = with_exit(
        running(), 1, exit_code=-9, signal=9, container_restarted=True, oom_kills=kills
    )
    plan = cause_of(with_pod(seen, 1, trainer=view))
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.cause == (cause or Reason.TRAINER_SIGNALED)
