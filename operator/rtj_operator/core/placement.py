"""Waiting for nodes has an end: half a gang must not hold what another half needs.

If not all ranks have a running pod in time, all pods are given back and tried again later, each
job after a delay of its own. A gang of which no pod has a node waits in the scheduler's queue,
where an autoscaler sees it: it holds nothing that it could give back. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Charge, Reason

from rtj_operator.core import pending
from rtj_operator.core.attempts import placement_seconds
from rtj_operator.core.faults import BY_POD, Fault, fault_at
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.undurable import has_undurable


def _is_up(member: Member) -> bool:
    """Its sidecar has run: from there on the deadlines of the stages count."""
    pod = member.pod
    if pod is None:
        return False
    if member.report is not None or pod.is_terminal or pod.deleting_since is not None:
        return True
    return pod.sidecar is not None and (pod.sidecar.running or pod.sidecar.restarts > 0)


def _waits_since(gang: Gang, member: Member) -> float:
    pod, current = member.pod, gang.status.current
    if pod is None:
        began = current.recorded_at if current is not None else gang.now
        later = current.not_before if current is not None else None
        return max(began, later or began)
    return max(pod.created_at, pod.unschedulable_since or pod.created_at)


def _lost(gang: Gang, member: Member, *, reason: Reason, since: float, message: str) -> Fault:
    return fault_at(
        member,
        reason=reason,
        at=since,
        order=BY_POD,
        is_pod_lost=True,
        message=message,
        charge=Charge.INFRASTRUCTURE,
        evidence={"since": since, "world": len(gang.members)},
    )


def overdue(gang: Gang) -> Fault | None:
    """The wait for the gang's nodes that has lasted too long, by its lowest waiting rank."""
    if gang.status.is_started:
        return None
    current = gang.status.current
    unplaced = [m for m in gang.members if m.pod is not None and _is_unplaced(m)]
    avoided = current.avoid_nodes if current is not None else []
    if unplaced and avoided:
        since = min(m.pod.created_at for m in unplaced if m.pod is not None)
        if gang.alarm.has_passed(since + gang.policy.avoid_seconds):
            return _lost(
                gang,
                unplaced[0],
                reason=Reason.UNSCHEDULABLE,
                since=since,
                message=f"no room outside nodes {', '.join(avoided)}; it is tried without "
                "keeping off them",
            )
    if current is not None and current.not_before is not None and gang.now < current.not_before:
        return None
    waiting = [m for m in gang.members if not _is_up(m)]
    holding = [m for m in gang.members if m.pod is not None and m.pod.node is not None]
    refused = any(m.pod is None for m in waiting)
    if not waiting or not (holding or refused):
        return None
    if any(has_undurable(gang, m) for m in gang.members):
        return None
    # Counted from when both was so: a rank waits, and something is held meanwhile.
    held = min((_held_since(m) for m in holding), default=0.0)
    since = max(max(_waits_since(gang, m) for m in waiting), held)
    limit = placement_seconds(gang)
    if not gang.alarm.has_passed(since + limit):
        return None
    # What the API server refuses says more than what waits for it.
    telling = sorted(waiting, key=lambda m: m.pod is not None)
    why = next((text for m in telling if (text := pending.words(gang, m))), None)
    return _lost(
        gang,
        waiting[0],
        reason=Reason.PLACEMENT_TIMEOUT,
        since=since,
        message=f"{len(waiting)} of {len(gang.members)} pods did not get to run within "
        f"{limit:.0f} s (recovery.placementTimeoutSeconds)"
        + (f": {why}" if why else "")
        + ". All pods are given back and made again later",
    )


def _is_unplaced(member: Member) -> bool:
    pod = member.pod
    return pod is not None and pod.node is None and pod.scheduled is False and not pod.is_gated


def _held_since(member: Member) -> float:
    pod = member.pod
    if pod is None:
        return 0.0
    return pod.scheduled_since if pod.scheduled_since is not None else pod.created_at
