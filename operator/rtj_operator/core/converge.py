"""Bringing the pods to what is recorded: deletes, creates, directives. Records nothing.

Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.wire import Phase

from rtj_operator.core import draining, holds, kept_off, queueing, spares, writers
from rtj_operator.core.directives import desired_directive, phase_for
from rtj_operator.core.gang import Gang
from rtj_operator.core.nodes import judge_node
from rtj_operator.core.observed import PodView
from rtj_operator.core.plan import Action, CreatePod, DeletePod, FreePod, PatchDirective
from rtj_operator.core.undurable import has_stopped, may_have_undurable, needs_holder, stop_limit

# A pod that is long past its deadline on a node that does not answer is gone in all but name.
_STUCK_SECONDS = 60.0


def removal(gang: Gang, pod: PodView) -> DeletePod | FreePod | None:
    """The deletion that this unwanted pod still needs: forced on a lost node, for the object
    counts against quota until it is gone and no kubelet will end it. One that a queue's finalizer
    alone keeps is freed of that."""
    free = queueing.freeing(pod)
    if free is not None:
        return free
    verdict = judge_node(gang, pod)
    if verdict is not None:
        return DeletePod(name=pod.name, uid=pod.uid, force=True)
    if pod.deleting_since is None:
        return DeletePod(name=pod.name, uid=pod.uid)
    if pod.deletion_deadline is None or pod.node is None:
        return None
    node = gang.observed.nodes.get(pod.node)
    if (
        node is not None
        and node.ready is not True
        and gang.alarm.has_passed(pod.deletion_deadline + _STUCK_SECONDS)
    ):
        return DeletePod(name=pod.name, uid=pod.uid, force=True)
    return None


def is_given_up(gang: Gang, pod: PodView) -> bool:
    """An ending pod that no kubelet will end any more: its node is gone, or silent long after the
    pod's deadline. What it may still write is the fence's affair."""
    node = gang.observed.nodes.get(pod.node) if pod.node is not None else None
    if node is None or pod.deletion_deadline is None:
        return False
    if not node.exists:
        return True
    return node.ready is not True and gang.alarm.has_passed(pod.deletion_deadline + _STUCK_SECONDS)


def surplus_removals(gang: Gang) -> list[Action]:
    """Pods that are no rank's own are ended; their sidecars drain within their grace. So are
    spares that are not wanted, or no good."""
    found = (removal(gang, pod) for pod in (*gang.surplus, *spares.unwanted(gang)))
    return [action for action in found if action is not None] + older_frees(gang)


def older_frees(gang: Gang) -> list[Action]:
    """Pods of an older job of this name that only a queue's finalizer keeps: applied again at once,
    this job is there before they are deleted, and nobody else looks after them."""
    found = (queueing.freeing(pod) for pod in gang.observed.older_pods)
    return [action for action in found if action is not None]


def missing_creations(gang: Gang) -> list[Action]:
    """Pods of this attempt that are not made yet. Never after the start: then it is a loss."""
    current = gang.status.current
    if current is None or gang.status.is_started or gang.job.problem is not None:
        return []
    if current.not_before is not None and not gang.alarm.has_passed(current.not_before):
        return []
    actions: list[Action] = []
    room = queueing.room(gang)
    for member in gang.members:
        if room is not None and len(actions) >= room:
            break
        is_ours = member.made_in == gang.attempt and member.stand_in is None
        if member.pod is not None or not is_ours:
            continue
        refused = gang.observed.rejections.get(member.name)
        if refused is not None and not gang.alarm.has_passed(
            refused.at + gang.policy.create_retry_seconds
        ):
            continue
        actions.append(
            CreatePod(
                rank=member.rank,
                made_in=member.made_in,
                name=member.name,
                avoid_nodes=tuple(current.avoid_nodes),
                shun_nodes=tuple(a.node for a in kept_off.shunned(gang)),
                group_since=current.group_since,
            )
        )
    return actions


def _needs_key(gang: Gang, pod: PodView) -> bool:
    """Written again, the annotation brings this operator's key while the kubelet still brings
    annotations: a pod that is being ended hears only what is pushed, such as a stop step."""
    return pod.key_is_old and gang.spec.obeys_stop and pod.deleting_since is None


def directive_patches(gang: Gang) -> list[Action]:
    """Directives that differ from what the pods carry; first of ranks that a spare has just taken:
    it has the longest way to its first step, however many ranks there are."""
    actions: list[Action] = []
    held_back: frozenset[int] = frozenset()
    if phase_for(gang) == Phase.PREPARE:
        held_back = writers.held_back(gang)
        if draining.draining_until(gang) is not None:
            # Claiming the fence now would refuse what the ending pod is about to publish.
            held_back |= {0}
    current = gang.status.current
    taken = set(current.taken_over) if current is not None else set()
    for member in sorted(gang.members, key=lambda m: (m.rank not in taken, m.rank)):
        if member.rank in held_back:
            continue
        directive = desired_directive(gang, member)
        if directive is None or member.pod is None:
            continue
        if member.pod.directive == directive and not _needs_key(gang, member.pod):
            continue
        actions.append(
            PatchDirective(
                pod=member.pod.name,
                uid=member.pod.uid,
                resource_version=member.pod.resource_version,
                directive=directive,
                labels_rank=member.stand_in is not None and member.pod.rank != member.rank,
            )
        )
    return actions


def hold_removals(gang: Gang) -> list[Action]:
    """Pods that a hold gives up: at once when suspended and stopped, after a while otherwise.

    Never one whose sidecar reports a save that is not durable, or may still report one to an
    operator that has just come back; and rank 0's stays while another rank may need it, and where
    the cause lies in the store, to look at it again.
    """
    hold = gang.status.hold
    if hold is None or hold.reason == Reason.FINAL_CHECKPOINT_NOT_DURABLE:
        return []
    suspended = hold.reason == Reason.SUSPENDED
    held_since = gang.status.held_since if gang.status.held_since is not None else hold.since
    if not suspended and not gang.alarm.has_passed(held_since + gang.policy.hold_keep_seconds):
        return []
    actions: list[Action] = []
    for member in gang.members:
        pod = member.pod
        if pod is None or (member.rank == 0 and hold.reason in holds.KEEPS_RANK_ZERO):
            continue
        if may_have_undurable(gang, member) or (member.rank == 0 and needs_holder(gang)):
            continue
        if not has_stopped(gang, member) and not gang.alarm.has_passed(stop_limit(gang, member)):
            continue
        action = removal(gang, pod)
        if action is not None:
            actions.append(action)
    return actions
