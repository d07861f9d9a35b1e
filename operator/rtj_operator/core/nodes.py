"""Whether a pod's node is lost, long before Kubernetes says so, and never on one sign alone.

Pure. A dead node convicts by three independent signs together: the report connection is dead, no
rank made a step since, and the node's Lease is not renewed. If most Leases look stale it is the
API server (or our view of it), and nobody is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rtj_api.reasons import Reason

from rtj_operator.core.gang import Gang
from rtj_operator.core.observed import NodeView, PodView


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """Why the pod on that node is given up. `at`: when it was last known alive."""

    reason: Reason
    at: float
    message: str
    evidence: dict[str, Any]


def contact_lost_since(gang: Gang, pod: PodView) -> float | None:
    """When the last byte came from this pod's sidecar, if its connection is dead; else None.

    A pod that was never heard counts from when polling began; one that is not polled (no IP yet)
    tells nothing.
    """
    view = gang.observed.reports.get(pod.uid)
    if view is None:
        return None
    last = view.last_contact if view.last_contact is not None else view.polled_since
    if last is None:
        return None
    if view.connected:
        return None
    return last if gang.alarm.has_passed(last + gang.policy.contact_lost_seconds) else None


def is_heard(gang: Gang, pod: PodView) -> bool:
    """Its sidecar answered lately: the node's network, kernel and the sidecar live."""
    view = gang.observed.reports.get(pod.uid)
    if view is None or view.last_contact is None:
        return False
    return view.connected or gang.now - view.last_contact < gang.policy.contact_lost_seconds


def can_be_on(gang: Gang) -> bool:
    """Whether this gang could agree through a store. Sidecars of an older version cannot."""
    pods = [m.pod for m in gang.members if m.pod is not None]
    return gang.spec.has_store and all(pod.has_store_mode for pod in pods)


def stays_on(gang: Gang) -> bool:
    """Whether the attempt that follows begins in store mode: reports are not back from everyone."""
    if not gang.through_store:
        return False
    living = [m.pod for m in gang.members if m.pod is not None and not m.pod.is_terminal]
    return not living or not all(is_heard(gang, pod) for pod in living)


def last_step_at(gang: Gang) -> float | None:
    """The newest moment at which any rank is known to have made a step."""
    moments = [
        m.report.progress.updated_at
        for m in gang.members
        if m.report is not None and m.report.progress.updated_at is not None
    ]
    return max(moments, default=None)


def _lease_stale_since(gang: Gang, node: NodeView) -> float | None:
    if node.lease_renewed_at is None:
        return None
    limit = node.lease_renewed_at + gang.policy.lease_stale_seconds
    return node.lease_renewed_at if gang.alarm.has_passed(limit) else None


def _judge_unheard_node(gang: Gang, node: NodeView) -> NodeVerdict | None:
    """Where reports cannot be had, their absence is no sign: Kubernetes' own word, which it gives
    40 s after the last heartbeat, and a Lease that is still not renewed."""
    if node.ready is True or gang.observed.stale_lease_share > gang.policy.stale_lease_share_limit:
        return None
    if node.lease_renewed_at is not None and _lease_stale_since(gang, node) is None:
        return None
    since = node.not_ready_since if node.not_ready_since is not None else gang.now
    state = "Unknown" if node.ready is None else "False"
    return NodeVerdict(
        Reason.NODE_NOT_READY,
        since,
        f"node {node.name} is not ready (Ready={state}) and its Lease is not renewed",
        {"node": node.name, "ready": state, "leaseRenewedAt": node.lease_renewed_at},
    )


def judge_node(gang: Gang, pod: PodView) -> NodeVerdict | None:
    """The verdict on the node under `pod`, or None while it may be well."""
    if pod.node is None or pod.is_terminal:
        return None
    node = gang.observed.nodes.get(pod.node)
    if node is None:
        return None
    name = node.name
    if not node.exists:
        return NodeVerdict(
            Reason.NODE_LOST, gang.now, f"node {name} no longer exists", {"node": name}
        )
    if any(t.startswith("node.kubernetes.io/out-of-service") for t in node.taints):
        return NodeVerdict(
            Reason.NODE_LOST,
            gang.now,
            f"node {name} is tainted out-of-service",
            {"node": name, "taints": list(node.taints)},
        )
    heard = is_heard(gang, pod)
    if gang.through_store and not heard:
        return _judge_unheard_node(gang, node)
    too_many_stale = gang.observed.stale_lease_share > gang.policy.stale_lease_share_limit
    if node.ready is not True and not heard and not too_many_stale:
        since = node.not_ready_since if node.not_ready_since is not None else gang.now
        state = "Unknown" if node.ready is None else "False"
        return NodeVerdict(
            Reason.NODE_NOT_READY,
            since,
            f"node {name} is not ready (Ready={state}) and its sidecar is not heard",
            {"node": name, "ready": state, "since": since},
        )
    lost_since = contact_lost_since(gang, pod)
    if lost_since is None or too_many_stale:
        return None
    stale_since = _lease_stale_since(gang, node)
    if stale_since is None:
        return None
    step_at = last_step_at(gang)
    view = gang.observed.reports[pod.uid]
    # A long poll may have been silent for seconds before its connection died: steps count only
    # if they were made after the break was noticed.
    broken_at = view.disconnected_since if view.disconnected_since is not None else lost_since
    if step_at is not None and step_at > broken_at + gang.policy.steps_stopped_seconds:
        gang.alarm.has_passed(gang.now + gang.policy.contact_lost_seconds)
        return None
    return NodeVerdict(
        Reason.NODE_LOST,
        max(lost_since, stale_since),
        f"node {name} is silent: no word from its sidecar for {gang.now - lost_since:.0f} s, its "
        f"Lease not renewed for {gang.now - stale_since:.0f} s, and the gang's steps stopped",
        {
            "node": name,
            "contactLostSince": lost_since,
            "leaseRenewedAt": stale_since,
            "lastStepAt": step_at,
            "staleLeaseShare": gang.observed.stale_lease_share,
        },
    )
