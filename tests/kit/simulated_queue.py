"""Kueue's plain pod groups in the simulated cluster, as its 0.17 was seen to treat them.

Gates, one reservation of quota a group, finalizers, eviction, and the habit of ending pods that are
one too many: that this never happens to the operator's pods is a law here. Groups are `serving`:
they are over when their last pod is gone, whatever it ended with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rtj_api import contract

from kit.simulated_laws import LawBroken

if TYPE_CHECKING:
    from kit.simulated import World
    from kit.simulated_pod import Pod

PREEMPTED = "Preempted to accommodate a workload (UID: 1) due to prioritization"


@dataclass
class Queue:
    """`quota`: pods that the queue may let go; `others`: what jobs of higher priority take."""

    quota: int
    others: int = 0
    admitted: dict[str, int] = field(default_factory=dict)  # group -> what it has reserved
    evicting: dict[str, str] = field(default_factory=dict)  # group -> why

    def preempt(self, *, others: int) -> None:
        """Others want so much: whoever is in their way is put out."""
        self.others = others
        if sum(self.admitted.values()) + others > self.quota:
            self.evicting |= dict.fromkeys(self.admitted, PREEMPTED)


def join(world: World, pod: Pod, *, since: int | None) -> None:
    """What the webhook does to a new pod."""
    if world.queue is None or since is None:
        return
    pod.group = contract.group_name(job="gpt", job_uid=world.job_uid, since=since)
    pod.gated = pod.kept = True


def remove(world: World, pod: Pod) -> None:
    """The object goes, or stays without life while the finalizer is on it."""
    if not pod.kept:
        world.pods.pop(pod.name, None)
    elif pod.node is not None and pod.phase in ("Running", "Pending") and world.is_linked(pod):
        pod.phase = "Succeeded" if pod.uid.endswith(("1", "3", "5")) else "Failed"
    world.touch(pod)


def free(world: World, pod: Pod) -> None:
    """The finalizer is taken off."""
    pod.kept = False
    was_forced = pod.deadline is not None and pod.deadline == pod.deleting_since
    if pod.deleting_since is not None and (pod.node is None or _is_over(pod) or was_forced):
        world.pods.pop(pod.name, None)
    world.touch(pod)


def _is_over(pod: Pod) -> bool:
    return pod.phase in ("Succeeded", "Failed")


def _is_active(pod: Pod) -> bool:
    return pod.phase != "Failed" and not (pod.deleting_since is not None and pod.node is None)


def reconcile(world: World) -> None:
    queue = world.queue
    if queue is None:
        return
    groups: dict[str, list[Pod]] = {}
    for pod in world.pods.values():
        if pod.group is not None:
            groups.setdefault(pod.group, []).append(pod)
    for name in {*queue.admitted, *queue.evicting} - set(groups):
        queue.admitted.pop(name, None)
        queue.evicting.pop(name, None)
    for name, pods in sorted(groups.items()):
        _reconcile_group(world, queue, name, pods)


def _reconcile_group(world: World, queue: Queue, name: str, pods: list[Pod]) -> None:
    if name in queue.evicting:
        for pod in pods:
            if not pod.gated and not _is_over(pod) and pod.deleting_since is None:
                world.delete_pod(pod.name)
                pod.ended_by_queue = queue.evicting[name]
        if not any(p.phase == "Running" and not _is_past(world, p) for p in pods):
            queue.admitted.pop(name, None)
            del queue.evicting[name]
        return
    size = world.spec.replicas
    active = [pod for pod in pods if _is_active(pod)]
    inactive = [pod for pod in pods if not _is_active(pod)]
    if len(active) > size:
        raise LawBroken(f"Kueue would end a pod of {name}: {len(active)} of {size} are there")
    for pod in inactive[: max(0, len(pods) - size)]:
        free(world, pod)
    reserved = sum(queue.admitted.values())
    has_room = reserved + queue.others + size <= queue.quota
    if name not in queue.admitted and len(active) == size and has_room:
        queue.admitted[name] = size
    if name in queue.admitted:
        for pod in active:
            if pod.gated:
                pod.gated = False
                pod.unschedulable_since = None
                world.touch(pod)


def _is_past(world: World, pod: Pod) -> bool:
    return pod.deadline is not None and world.now > pod.deadline
