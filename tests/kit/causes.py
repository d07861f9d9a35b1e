"""The plan's cause, as tests of faults read it."""

from __future__ import annotations

from typing import Any

from rtj_api.reasons import Charge, Reason
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import ContainerEnd, ContainerView, Observed
from rtj_operator.core.plan import Plan


def terminated(code: int, reason: str, message: str | None = None) -> ContainerView:
    end = ContainerEnd(exit_code=code, reason=reason, message=message, finished_at=1009.0)
    return ContainerView(name="trainer", ended=end)


FAILED: dict[str, Any] = {"phase": "Failed", "trainer": terminated(137, "Error")}


# Pod status by cause, from KEP-3329 and the kubelet: what changes in rank 1's pod -> the reason,
# and whose budget it uses.
CAUSES: dict[str, tuple[dict[str, Any], Reason, Charge]] = {
    "scheduler preemption": (
        {**FAILED, "disruption": "PreemptionByScheduler"},
        Reason.POD_PREEMPTED,
        Charge.INFRASTRUCTURE,
    ),
    "scheduler preemption, as the KEP spells it": (
        {**FAILED, "disruption": "PreemptionByKubeScheduler"},
        Reason.POD_PREEMPTED,
        Charge.INFRASTRUCTURE,
    ),
    "taint eviction": (
        {**FAILED, "disruption": "DeletionByTaintManager"},
        Reason.NODE_NOT_READY,
        Charge.INFRASTRUCTURE,
    ),
    "drain": (
        {**FAILED, "disruption": "EvictionByEvictionAPI"},
        Reason.POD_EVICTED,
        Charge.INFRASTRUCTURE,
    ),
    "memory pressure": (
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
            "disruption": "TerminationByKubelet",
            "trainer": terminated(137, "ContainerStatusUnknown"),
        },
        Reason.POD_EVICTED,
        Charge.INFRASTRUCTURE,
    ),
    "disk pressure": (
        {**FAILED, "reason": "Evicted", "disruption": "TerminationByKubelet"},
        Reason.POD_EVICTED,
        Charge.INFRASTRUCTURE,
    ),
    "container out of memory": (
        {"phase": "Failed", "trainer": terminated(137, "OOMKilled")},
        Reason.OUT_OF_MEMORY,
        Charge.USER,
    ),
    "its own disk use": (
        {
            **FAILED,
            "reason": "Evicted",
            "message": "Pod ephemeral local storage usage exceeds the total limit of 1Gi.",
        },
        Reason.POD_EVICTED,
        Charge.USER,
    ),
    "graceful node shutdown": (
        {**FAILED, "reason": "Terminated", "disruption": "TerminationByKubelet"},
        Reason.POD_EVICTED,
        Charge.INFRASTRUCTURE,
    ),
    "graceful node shutdown by an older kubelet": (
        {**FAILED, "reason": "NodeShutdown"},
        Reason.POD_EVICTED,
        Charge.INFRASTRUCTURE,
    ),
    "graceful node shutdown, SIGTERM handled": (
        {
            "phase": "Succeeded",
            "disruption": "TerminationByKubelet",
            "trainer": terminated(0, "Completed"),
        },
        Reason.POD_EVICTED,
        Charge.INFRASTRUCTURE,
    ),
    "exit 0 that nobody released": (
        {"phase": "Succeeded", "trainer": terminated(0, "Completed")},
        Reason.POD_FAILED,
        Charge.INFRASTRUCTURE,
    ),
    "abandoned": (
        {"phase": "Succeeded", "trainer": terminated(0, "Completed", "abandoned")},
        Reason.POD_FAILED,
        Charge.INFRASTRUCTURE,
    ),
    "refused by the kubelet, no container status": (
        {"phase": "Failed", "reason": "UnexpectedAdmissionError", "trainer": None},
        Reason.POD_FAILED,
        Charge.INFRASTRUCTURE,
    ),
    "collected by the pod garbage collector": (
        {"deleting_since": 1009.0, "deletion_deadline": 1009.0, "disruption": "DeletionByPodGC"},
        Reason.NODE_LOST,
        Charge.INFRASTRUCTURE,
    ),
    "node lost": ({"reason": "NodeLost", **FAILED}, Reason.NODE_LOST, Charge.INFRASTRUCTURE),
    "crictl stop": (FAILED, Reason.POD_FAILED, Charge.INFRASTRUCTURE),
    "deleted by someone": (
        {"deleting_since": 1009.0, "deletion_deadline": 1339.0},
        Reason.POD_DELETED,
        Charge.INFRASTRUCTURE,
    ),
}


def cause_of(observed: Observed) -> Plan:
    plan = decide(observed)
    assert plan.rule == "fault", (plan.rule, plan.why)
    assert plan.status is not None
    assert plan.status.current is not None
    return plan
