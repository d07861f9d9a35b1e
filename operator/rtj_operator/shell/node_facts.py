"""What a Node object says against itself: conditions, devices that are gone, taints of one that
will leave.

Pure. Only conditions with a known meaning count: who adds one of its own may mean by True what
another means by False. Quantities of devices are whole numbers in every device plugin. Must never
judge a node that it cannot read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtj_api.status import parse_time

from rtj_operator.core.node_ledger import NodeFacts

Raw = Mapping[str, Any]

# condition -> the status that is bad. Of Kubernetes itself, of node-problem-detector, and of the
# node monitoring agent of EKS. Ready and the pressures are the scheduler's and the judges' affair.
BAD_CONDITIONS: Mapping[str, str] = {
    "NetworkUnavailable": "True",
    "KernelDeadlock": "True",
    "ReadonlyFilesystem": "True",
    "CorruptDockerOverlay2": "True",
    "FrequentKubeletRestart": "True",
    "FrequentDockerRestart": "True",
    "FrequentContainerdRestart": "True",
    "FrequentUnregisterNetDevice": "True",
    "KubeletUnhealthy": "True",
    "ContainerRuntimeUnhealthy": "True",
    "XfsShutdown": "True",
    "CperHardwareErrorFatal": "True",
    "AcceleratedHardwareReady": "False",
    "ContainerRuntimeReady": "False",
    "KernelReady": "False",
    "NetworkingReady": "False",
    "StorageReady": "False",
}

LEAVING_TAINTS = frozenset(
    {
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/shutdown",
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "karpenter.sh/disruption",
        "karpenter.sh/disrupted",
        "cloud.google.com/impending-node-termination",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/rebalance-recommendation",
    }
)
"""A template that tolerates everything would be placed there all the same."""


def node_facts(raw: Raw) -> NodeFacts:
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    created = meta.get("creationTimestamp")
    taints = [t.get("key", "") for t in spec.get("taints") or []]
    leaving = next((key for key in taints if key in LEAVING_TAINTS), None)
    return NodeFacts(
        name=meta["name"],
        created_at=None if created is None else float(parse_time(created)),
        troubles=(*_conditions(status), *_devices(status)),
        leaving=None if leaving is None else f"taint {leaving}",
    )


def _conditions(status: Raw) -> list[str]:
    found = []
    for condition in status.get("conditions") or []:
        kind = condition.get("type", "")
        if BAD_CONDITIONS.get(kind) == condition.get("status"):
            reason = condition.get("reason") or "no reason given"
            found.append(f"condition {kind}={condition['status']} ({reason})")
    return found


def _devices(status: Raw) -> list[str]:
    """A device plugin that finds a device unhealthy lowers what can be allocated; what the node has
    stays. None left at all is the plugin's start or end, and places no pod anyway."""
    has, gives = status.get("capacity") or {}, status.get("allocatable") or {}
    found = []
    for name in sorted(has):
        if "/" not in name:
            continue
        total, left = _count(has[name]), _count(gives.get(name))
        if total is not None and left is not None and 0 < left < total:
            verb = "is" if total - left == 1 else "are"
            found.append(f"{total - left} of {total} {name} {verb} gone")
    return found


def _count(text: object) -> int | None:
    words = str(text)
    return int(words) if words.isascii() and words.isdigit() else None
