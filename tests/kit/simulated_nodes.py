"""Kubernetes around the simulated pods: the scheduler, each node's kubelet, who collects pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtj_api.wire import TrainerState

from kit import simulated_queue, simulated_stop

if TYPE_CHECKING:
    from kit.simulated import World
    from kit.simulated_pod import Pod

TICK = 0.25  # seconds between two looks at the world


def schedule(world: World) -> None:
    used: dict[str, int] = {}
    for pod in world.pods.values():
        if pod.node is not None and pod.phase not in ("Succeeded", "Failed"):
            used[pod.node] = used.get(pod.node, 0) + 1
    for pod in sorted(world.pods.values(), key=lambda p: p.name):
        if pod.node is not None or pod.gated or world.now < pod.created_at + 0.25:
            continue
        liked_first = sorted(world.nodes.values(), key=lambda n: n.name in pod.shun_nodes)
        for node in liked_first:
            if node.name in pod.avoid_nodes or any(t.endswith(":NoSchedule") for t in node.taints):
                continue
            ready = node.linked or (
                node.exists and world.now - (node.silent_since or world.now) < 40
            )
            if ready and used.get(node.name, 0) < node.gpus:
                pod.node, pod.scheduled_at = node.name, world.now
                pod.unschedulable_since = None
                used[node.name] = used.get(node.name, 0) + 1
                world.touch(pod)
                break
        else:
            if pod.unschedulable_since is None:
                pod.unschedulable_since = world.now
                world.touch(pod)


def kubelet(world: World, pod: Pod) -> None:
    node = world.nodes[pod.node or ""]
    if pod in world.ghosts and node.linked:
        # The kubelet learns that the pod is gone, and needs a moment to end it.
        pod.zombie_since = world.now if pod.zombie_since is None else pod.zombie_since
        if world.now >= pod.zombie_since + 3:
            if pod.trainer is not None:
                pod.trainer.end(now=world.now, code=-9, asked=True)
            world.ghosts.remove(pod)
            return
    starting = pod.phase == "Pending" and pod.deleting_since is None and node.linked
    if starting and pod.image_pullable and world.now >= (pod.scheduled_at or 0) + 0.5:
        pod.phase, pod.running_since = "Running", world.now
        third = pod.rank if pod.spare is None else 200 + pod.spare
        pod.ip = f"198.18.{third}.{pod.made_in % 250 + 1}"
        world.touch(pod)
    if pod.phase == "Running":
        pod.tick(world)
    if pod.deleting_since is not None and node.linked and pod in world.pods.values():
        if pod.trainer is not None and pod.trainer.state == TrainerState.RUNNING:
            if world.now >= simulated_stop.end_at(pod, world):
                pod.trainer.end(now=world.now, code=-15, asked=True)
                pod.change()
            return
        is_drained = not pod.pending or world.now >= (pod.deadline or 0)
        is_over = pod.phase in ("Succeeded", "Failed")
        if is_drained and not is_over and world.now >= pod.deleting_since + 1.0:
            simulated_queue.remove(world, pod)


def collect(world: World) -> None:
    """The node controller and the pod garbage collector."""
    for node in world.nodes.values():
        silent = node.silent_since
        if silent is not None and abs(world.now - silent - 40) < TICK:
            world.hint = True
    for pod in list(world.pods.values()):
        node = world.nodes.get(pod.node or "")
        is_ending = pod.deleting_since is not None
        is_over = pod.phase in ("Succeeded", "Failed")
        is_orphan = node is not None and not node.exists
        if is_orphan or (is_ending and (node is None or is_over)):
            if is_orphan and not is_over:
                pod.phase = "Failed"
            if not pod.kept:
                del world.pods[pod.name]
                world.hint = True
            continue
        silent_since = node.silent_since if node is not None else None
        if silent_since is not None and not is_ending and world.now >= silent_since + 340:
            world.delete_pod(pod.name, disruption="DeletionByTaintManager")
