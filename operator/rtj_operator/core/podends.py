"""What Kubernetes itself says of the end of a pod: who ended it, why, and what a person can do.

Kept apart because it reads texts of other programs: the reasons of the DisruptionTarget condition,
and what the kubelet writes into a pod's status when it refuses, evicts or preempts one
(pkg/kubelet: lifecycle/predicate.go, eviction/helpers.go, preemption; Kubernetes 1.25 to 1.34).
Must never charge the job on a text that it does not wholly understand. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rtj_api import contract
from rtj_api.reasons import Charge, Reason
from rtj_api.rules.blame import EVICTED

from rtj_operator.core import quantities
from rtj_operator.core.node_ledger import HEAVY, PLAIN
from rtj_operator.core.observed import PodView

_BY_KUBELET = "TerminationByKubelet"
_DISRUPTIONS: dict[str, Reason] = {
    "PreemptionByScheduler": Reason.POD_PREEMPTED,
    "PreemptionByKubeScheduler": Reason.POD_PREEMPTED,
    "EvictionByEvictionAPI": Reason.POD_EVICTED,
    "DeletionByTaintManager": Reason.NODE_NOT_READY,
    "DeletionByPodGC": Reason.NODE_LOST,
    _BY_KUBELET: Reason.POD_EVICTED,
}
_EVICTED = "Evicted"
_POD_REASONS: dict[str, Reason] = {
    _EVICTED: Reason.POD_EVICTED,
    "Preempting": Reason.POD_PREEMPTED,  # its place was needed for a critical pod of the node
    "NodeLost": Reason.NODE_LOST,
    "Terminated": Reason.POD_EVICTED,  # graceful node shutdown
    "NodeShutdown": Reason.POD_EVICTED,
    "Shutdown": Reason.POD_EVICTED,
}

# Why the kubelet refused a pod that was bound to its node -> what a person can do about it.
_LABELS = (
    "The node's labels or taints changed after the pod was placed: compare them with nodeSelector, "
    "affinity and tolerations of spec.template"
)
_OPERATING_SYSTEM = "The node runs another operating system: state it in spec.template's os.name"
_TOPOLOGY = (
    "The node's topology or CPU manager cannot give it CPUs and devices side by side: ask for "
    "whole cores and fewer devices, or loosen the node's policy"
)
_REFUSALS: dict[str, str] = {
    "UnexpectedAdmissionError": "Mostly fewer devices work than the node tells: see the log of "
    "its device plugin, and cordon the node if this repeats",
    "NodeAffinity": _LABELS,
    "NodeName": _LABELS,
    "NodeUnschedulable": _LABELS,
    "TaintToleration": _LABELS,
    "NodePorts": "Another pod of the node holds a hostPort of spec.template: leave hostPort out, "
    "or keep the two apart by podAntiAffinity",
    "TopologyAffinityError": _TOPOLOGY,
    "SMTAlignmentError": _TOPOLOGY,
    "PodOSNotSupported": _OPERATING_SYSTEM,
    "PodOSSelectorNodeLabelDoesNotMatch": _OPERATING_SYSTEM,
    "InitContainerRestartPolicyForbidden": "The node's kubelet is too old to run a sidecar "
    "(1.29 is the first): upgrade it, or keep the job off it by nodeSelector",
    "InvalidNodeInfo": "The kubelet could not read its own node: see its log",
    "UnknownReason": "See the kubelet's log",
    "UnexpectedPredicateFailureType": "See the kubelet's log",
}
# What the user asked for, or a race; the others count against the node.
_NOT_ITS_FAULT = frozenset(
    {"NodeAffinity", "NodeName", "NodeUnschedulable", "TaintToleration", "NodePorts"}
    | {"PodOSNotSupported", "PodOSSelectorNodeLabelDoesNotMatch"}
)
_CANNOT_RUN_US = "InitContainerRestartPolicyForbidden"
_OUT_OF = "OutOf"
_REFUSED = "Pod was rejected: "
_IF_IT_REPEATS = "If this repeats on one node, see its kubelet's log or cordon it"

_DISK_OF_POD = "ephemeral local storage usage exceeds"
_DISK_OF_CONTAINER = re.compile(r"Container (\S+) exceeded its local ephemeral storage limit")
_DISK_OF_VOLUME = re.compile(r'Usage of EmptyDir volume "([^"]*)" exceeds the limit')
# "The node was low on resource: memory. …", "The node had condition: [DiskPressure]. "
_PRESSURE = re.compile(r"low on resource: ([a-z][a-z-]*)|had condition: \[(\w+)")
_LOW_ON_MEMORY = "The node was low on resource: memory."
# Up to 1.25 "which exceeds its request of"; "Pod" where resources are stated for the whole pod.
_USE = re.compile(
    r"(Container|Pod) (\S+) was using (\S+?), (?:request is|which exceeds its request of) (\S+?)"
    r"(, has larger consumption of memory)?\.(?=\s|$)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEnd:
    """Why a pod ended or is ending. `charge`: None for what the reason's own is. `alike`: the cause
    of an eviction by the kubelet, in a word that is equal for equal causes. `against_node`: the
    weight that it has there; None for what the reason's own is."""

    reason: Reason
    message: str
    charge: Charge | None = None
    alike: str | None = None
    against_node: float | None = None


def told_end(pod: PodView) -> PodEnd | None:
    """The cause that Kubernetes itself gives for the end of this pod; None if it gives none."""
    if pod.ended_by_queue is not None:
        return _by_queue(pod.ended_by_queue)
    is_by_kubelet = pod.disruption in (None, _BY_KUBELET)
    if is_by_kubelet and pod.reason == _EVICTED:
        own = _own_use(f"{pod.message or ''} {pod.disruption_message or ''}")
        if own is not None:
            charge, remedy = own
            said = _sentence(pod.message or pod.disruption_message)
            return PodEnd(
                reason=Reason.POD_EVICTED,
                message=f"{_EVICTED}: {said}. {remedy}",
                charge=charge,
                alike=_eviction(pod),
            )
    if pod.disruption is not None:
        reason = _DISRUPTIONS.get(pod.disruption, Reason.POD_EVICTED)
        if is_by_kubelet and pod.reason is not None:
            reason = _POD_REASONS.get(pod.reason, reason)
        told = pod.disruption_message or pod.message or "no message"
        alike = _eviction(pod) if is_by_kubelet else None
        return PodEnd(reason=reason, message=f"{pod.disruption}: {told}", alike=alike)
    if pod.reason is not None and pod.reason in _POD_REASONS:
        message = f"{pod.reason}: {pod.message or 'no message'}"
        return PodEnd(reason=_POD_REASONS[pod.reason], message=message, alike=_eviction(pod))
    return _refusal(pod)


def _by_queue(said: str) -> PodEnd:
    """Kueue ends a gang's pods where another needs their quota, and where a person, or its own
    limit of tries, has put the Workload out of use."""
    if "deactivated" in said:
        return PodEnd(
            reason=Reason.QUEUE_DEACTIVATED,
            message=f"Kueue: {_sentence(said)}",
            charge=Charge.INFRASTRUCTURE,
        )
    return PodEnd(reason=Reason.PREEMPTED_BY_QUEUE, message=f"Kueue: {_sentence(said)}")


def _eviction(pod: PodView) -> str | None:
    """`Evicted for memory`: what the node or the pod had too little or too much of. None for a
    drain, a shutdown or a preemption, whose cause lies elsewhere."""
    if pod.reason != _EVICTED:
        return None
    text = f"{pod.message or ''} {pod.disruption_message or ''}"
    if _DISK_OF_POD in text or _DISK_OF_CONTAINER.search(text) or _DISK_OF_VOLUME.search(text):
        return f"{EVICTED} for ephemeral-storage"
    found = _PRESSURE.search(text)
    return f"{EVICTED} for {found[1] or found[2]}" if found is not None else None


def _refusal(pod: PodView) -> PodEnd | None:
    """The kubelet would not run it: nothing of the job's own had begun."""
    if pod.phase != "Failed" or pod.reason is None:
        return None
    remedy = _REFUSALS.get(pod.reason)
    what = pod.reason.removeprefix(_OUT_OF)
    if remedy is None and what not in ("", pod.reason):
        remedy = (
            f"The node had less {what} left than the scheduler knew of: pods that another "
            "scheduler or the node itself starts take it"
        )
    message = pod.message or ""
    if remedy is None and not message.startswith(_REFUSED):
        return None
    said = _sentence(message.removeprefix(_REFUSED))
    return PodEnd(
        reason=Reason.POD_FAILED,
        message=f"{pod.reason}: the kubelet of node {pod.node or 'unknown'} refused it: {said}. "
        f"{remedy or _IF_IT_REPEATS}",
        charge=Charge.INFRASTRUCTURE,
        against_node=_weight_of(pod.reason),
    )


def _weight_of(refusal: str) -> float:
    if refusal in _NOT_ITS_FAULT:
        return 0.0
    return HEAVY if refusal == _CANNOT_RUN_US else PLAIN


def _sentence(text: str | None) -> str:
    return (text or "").strip().rstrip(".") or "no message"


def _own_use(text: str) -> tuple[Charge, str] | None:
    """Whose use of memory or disk the kubelet names as the cause, and the remedy; None for
    pressure on the node that this pod is not blamed for."""
    if _DISK_OF_POD in text:
        return Charge.USER, "Raise the pod's ephemeral-storage limit or save to a volume"
    container = _DISK_OF_CONTAINER.search(text)
    if container is not None and container[1] == contract.CONTAINER_SIDECAR:
        return Charge.INFRASTRUCTURE, "Raise ephemeral-storage in spec.sidecar.resources"
    if container is not None:
        return Charge.USER, (
            f"Raise the ephemeral-storage limit of container {container[1]} or save to a volume"
        )
    volume = _DISK_OF_VOLUME.search(text)
    if volume is not None:
        return Charge.USER, f"Raise emptyDir.sizeLimit of volume {volume[1]}, or write less to it"
    return _own_memory(text) if _LOW_ON_MEMORY in text else None


def _own_memory(text: str) -> tuple[Charge, str] | None:
    """The kubelet names only those that use more than they request; a container that requests
    nothing is over by all that it uses. The sidecar's part is not the job's."""
    over: dict[str, int] = {}
    of_sidecar = 0
    for kind, name, used, requested, _ in _USE.findall(text):
        use, request = quantities.parsed(used), quantities.parsed(requested)
        if use is None or request is None:
            return None
        if kind == "Container" and name == contract.CONTAINER_SIDECAR:
            of_sidecar = max(0, use - request)
        elif use > request:
            over[f"{kind.lower()} {name}"] = use - request
    if of_sidecar and of_sidecar >= sum(over.values()):
        return Charge.INFRASTRUCTURE, "Raise memory in spec.sidecar.resources.requests"
    if not over:
        return None
    worst = max(over, key=lambda name: (over[name], name))
    return Charge.USER, (
        f"Raise resources.requests.memory of {worst} in spec.template by "
        f"{quantities.mebibytes(over[worst])}, or lower its use: who stays within its request is "
        "evicted last"
    )
