"""Kueue's plain pod groups: which group a pod belongs to, when a new one begins, who makes room.

A group is one Workload with one reservation of quota. It goes on for as long as one of its pods
holds a node; replaced ranks join it and are let go at once. When none does, it is over: its pods
are ended and freed, Kueue gives the quota back, and the next attempt queues anew under another
name. So a suspended, held or preempted job never keeps quota, and no new pod ever meets a Workload
that is being evicted or deleted. Facts are Kueue's own (0.17, tried); pure.
"""

from __future__ import annotations

from collections.abc import Collection

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.v1alpha1 import GangScheduler

from rtj_operator.core.faults import Fault
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.gangs import QUEUE_GATE
from rtj_operator.core.observed import PodView
from rtj_operator.core.plan import FreePod


def is_queued(gang: Gang) -> bool:
    return gang.spec.gang_scheduler == GangScheduler.KUEUE


def _holds_a_node(member: Member) -> bool:
    pod = member.pod
    return (
        pod is not None
        and pod.node is not None
        and not pod.is_terminal
        and pod.deleting_since is None
    )


def is_over(gang: Gang, lost: Collection[int], faults: Collection[Fault]) -> bool:
    """The group cannot serve another attempt: the queue ends it, or no pod of it is left that is
    known to have been let go. A pod that still waits is no proof: its Workload may be put out."""
    if not is_queued(gang):
        return False
    if any(f.reason == Reason.PREEMPTED_BY_QUEUE for f in faults):
        return True
    return not any(_holds_a_node(m) for m in gang.members if m.rank not in lost)


def group_since(gang: Gang, *, replaced: Collection[int], attempt: int) -> int | None:
    """The attempt in which the group of the next attempt's pods began."""
    if not is_queued(gang):
        return None
    current = gang.status.current
    if current is None or current.group_since is None or len(replaced) >= gang.spec.replicas:
        return attempt
    return current.group_since


def room(gang: Gang) -> int | None:
    """How many pods may be made now; None: as many as are missing.

    Kueue ends the youngest pods of a group that has more than its number, and counts those that
    are still ending, have succeeded, or are lost with their node: so they go first.
    """
    current = gang.status.current
    if not is_queued(gang) or current is None or current.group_since is None:
        return None
    name = contract.group_name(
        job=gang.job.key.name, job_uid=gang.job.uid, since=current.group_since
    )
    counted = [p for p in gang.observed.pods if p.group == name and p.phase != "Failed"]
    return max(0, gang.spec.replicas - len(counted))


def freeing(pod: PodView) -> FreePod | None:
    """A deleted pod that has ended, or never began, and is kept only by Kueue's finalizer.

    Kueue takes it off when it sees a replacement; not from a pod whose group is over, that was
    never let go or that lies on a lost node, nor where Kueue is no more.
    """
    if not pod.is_kept_by_queue or pod.deleting_since is None:
        return None
    was_forced = pod.deletion_deadline is not None and pod.deletion_deadline <= pod.deleting_since
    if not (pod.is_terminal or pod.node is None or was_forced):
        return None
    return FreePod(name=pod.name, uid=pod.uid, resource_version=pod.resource_version)


def waits_in_queue(pod: PodView) -> bool:
    return pod.node is None and QUEUE_GATE in pod.gates


def is_admitted(gang: Gang) -> bool:
    """Every rank has its pod, and the queue holds none of them back."""
    return all(m.pod is not None and not waits_in_queue(m.pod) for m in gang.members)
