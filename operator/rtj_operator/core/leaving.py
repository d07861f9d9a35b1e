"""Which ranks are about to lose their pod, why, and how long they have: what Kubernetes and the
clouds say ahead of time.

Only what ends a pod at a known time counts. A cordon, a planned maintenance or a rebalancing hint
names none: the eviction that follows does. What makes no sense to wait for is no notice. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rtj_api.reasons import Reason
from rtj_api.status import MAX_LEFT_NODES, LeftNode

from rtj_operator.core.failures import fault_of
from rtj_operator.core.faults import BY_POD, Fault
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.observed import NodeView
from rtj_operator.core.podends import told_end

# Taints that a cloud's own agent sets when an instance has been given notice -> the seconds that
# are left from then on, less what it takes to hear of it.
NOTICES: Mapping[str, float] = {
    "aws-node-termination-handler/spot-itn": 110.0,  # two minutes, asked for every 2 s
    "cloud.google.com/impending-node-termination": 25.0,  # 30 s
}
SHUTDOWN_SECONDS = 20.0  # of a node that shuts down: its kubelet tells nobody the time
KILL_SECONDS = 2.0  # before the end that the API server names
TELL_SECONDS = 1.5  # a deletion may be heard from the pod before it is read from the API server


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """`left`: seconds. `is_ending`: the kubelet is ending it; else its node will be."""

    member: Member
    reason: Reason
    left: float
    why: str
    is_ending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A cloud's word that a node will go, `seconds` after `since`; None: not known since when."""

    taint: str
    since: float | None
    seconds: float


def leaving(gang: Gang) -> tuple[Leaving, ...]:
    """By rank; at most one each."""
    found = (_ending(gang, m) or _noticed(gang, m) for m in gang.members)
    return tuple(one for one in found if one is not None)


def is_awaited_end(fault: Fault, member: Member) -> bool:
    """Its pod is being ended and has not ended: what a stop may still come before."""
    pod = member.pod
    if pod is None or pod.is_terminal or fault.order != BY_POD or not fault.is_pod_lost:
        return False
    return pod.deleting_since is not None or fault.evidence.get("terminating") is True


def _ending(gang: Gang, member: Member) -> Leaving | None:
    pod = member.pod
    if pod is None or not member.is_ending:
        return None
    fault = fault_of(gang, member)
    if fault is None or not is_awaited_end(fault, member):
        return None
    if pod.deleting_since is None or pod.deletion_deadline is None:
        return Leaving(
            member=member,
            reason=Reason.POD_EVICTED,
            left=SHUTDOWN_SECONDS - _signalled_for(gang, member),
            why=f"pod {pod.name} was sent SIGTERM and not deleted: its node shuts down",
            is_ending=True,
        )
    told = told_end(pod)
    return Leaving(
        member=member,
        reason=fault.reason,
        left=pod.deletion_deadline - KILL_SECONDS - gang.now,
        why=f"pod {pod.name} is ending: {told.message if told is not None else 'it was deleted'}",
        is_ending=True,
    )


def notice_of(node: NodeView) -> Notice | None:
    """The one that leaves the least time."""
    found = (
        Notice(
            taint=taint,
            since=node.tainted_at.get(taint),
            seconds=NOTICES[taint.partition(":")[0]],
        )
        for taint in node.taints
        if taint.partition(":")[0] in NOTICES
    )
    return min(found, key=lambda n: (n.seconds, n.taint), default=None)


def _noticed(gang: Gang, member: Member) -> Leaving | None:
    pod, node = member.pod, member.node
    notice = notice_of(node) if node is not None else None
    if pod is None or node is None or pod.is_terminal or notice is None:
        return None
    since = notice.since if notice.since is not None else gang.now
    if _was_moved_here(gang, node.name, since=since):
        return None
    return Leaving(
        member=member,
        reason=Reason.NODE_LEAVING,
        left=notice.seconds - max(0.0, gang.now - since),
        why=f"node {node.name} has the taint {notice.taint}",
        is_ending=False,
    )


def _was_moved_here(gang: Gang, node: str, *, since: float) -> bool:
    """A rank was moved off that very node for that very notice, and one is there again: a template
    that tolerates everything. To move it once more would never end."""
    return any(one.node == node and since <= one.at for one in gang.status.left_nodes)


def next_left_nodes(gang: Gang, ranks: Collection[int]) -> list[LeftNode]:
    """The nodes with notice that these ranks are moved off now, and those of the moves before."""
    at = math.ceil(gang.now * 1e6) / 1e6  # what JSON keeps, and not before the notice
    nodes = {
        node.name
        for member in gang.members
        if member.rank in ranks
        and (node := member.node) is not None
        and notice_of(node) is not None
    }
    before = [one for one in gang.status.left_nodes if one.node not in nodes]
    now = [LeftNode(node=node, at=at) for node in sorted(nodes)]
    return [*before, *now][-MAX_LEFT_NODES:]


def is_heard_too_early(gang: Gang, member: Member) -> bool:
    """Its pod says that it is ending: the API server may be about to say why, and when."""
    pod, report = member.pod, member.report
    if pod is None or pod.deleting_since is not None or pod.is_terminal or not member.is_ending:
        return False
    if report is None or report.term_received_at is None:
        return False  # of an older version, which does not say since when
    since = gang.now - _signalled_for(gang, member)
    return not gang.alarm.has_passed(since + TELL_SECONDS)


def _signalled_for(gang: Gang, member: Member) -> float:
    """Seconds since its container was sent SIGTERM."""
    report, view = member.report, member.view
    if report is None or report.term_received_at is None:
        return 0.0
    heard_at = view.received_at if view is not None and view.received_at is not None else gang.now
    return max(0.0, report.sent_at - report.term_received_at) + max(0.0, gang.now - heard_at)
