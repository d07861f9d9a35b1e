"""A simulated sidecar and the store: its fence, the saves that it names, sends and commits.

What is written, and whether it may be, is `kit.simulated_store`'s; here is only when. Any write may
be the last that this life of the sidecar makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtj_api import wire
from rtj_api.wire import SidecarPhase

from kit.memory_store import Crash
from kit.simulated_store import Save, parent_of

if TYPE_CHECKING:
    from kit.simulated import World
    from kit.simulated_pod import Pod


def die(pod: Pod, world: World) -> None:
    """The sidecar, between two writes; what it was at is begun anew when it is back."""
    pod.sidecar_down_until = world.now + 1.0
    if pod.machine in (SidecarPhase.PREPARING, SidecarPhase.RESTORING):
        pod.due = pod.sidecar_down_until + 0.2
    world.touch(pod)


def prepared(pod: Pod, world: World) -> None:
    store = world.store
    if pod.rank == 0 and store.reachable:
        claimed = store.claim(pod, attempt=pod.journal[0], has_files=_has_files(pod, world))
        pod.fence, pod.is_claimed = claimed or pod.fence, claimed is not None
    if pod.rank == 0:
        pod.listed = store.reachable  # after the claim, which a crash may cut off
    pod.machine = SidecarPhase.PREPARED


def _has_files(pod: Pod, world: World) -> bool:
    """Of the saves that are not durable yet; or a pod that ends still sends them."""
    others = (p for p in world.pods.values() if p.rank == 0 and p is not pod)
    return bool(pod.pinned) or any(p.pending for p in others)


def complete(pod: Pod, world: World) -> None:
    """What a pod that ends has sent meanwhile is committed before anything is chosen."""
    if pod.rank == 0 and pod.fence is not None:
        known = len(world.store.saves)
        world.store.complete(pod, fence=pod.fence, has_files=True)
        if len(world.store.saves) > known:
            pod.change()


def begin_line(pod: Pod, world: World, directive: wire.Directive) -> None:
    """Before the go: what the attempt begins from, in its fence; what lies above it goes."""
    resume = directive.resume
    assert resume is not None
    pod.parent = parent_of(resume)
    step = pod.parent.step or 0
    # What has no name in the store and is not begun from is nobody's any more.
    pod.pending = [
        s for s in pod.pending if s.step <= step and (s.ship is not None or s.name == resume.name)
    ]
    if pod.rank != 0:
        return
    if directive.fast or not pod.is_claimed:
        # The number is known, and asked for before the first save is shipped.
        pod.fence = (pod.fence or world.store.fence) + 1
        pod.is_claimed = False
    elif world.store.reachable:
        world.store.set_parent(pod, fence=pod.fence or 0, parent=pod.parent)


def upload(pod: Pod, world: World) -> None:
    for save in list(pod.pending):
        if save.done_at is None or world.now < save.done_at:
            continue
        if not world.store.reachable or not world.is_linked(pod):
            save.done_at = world.now + world.upload_seconds
            continue
        if not _holds(pod, world):
            world.store.refused += 1
        elif save.fence == pod.fence or save.ship is not None:
            ship = save.ship or world.store.name(pod, save, parent=pod.parent)
            world.store.send(save, ship)
            world.store.commit(pod, ship, fence=pod.fence or 0)
        pod.pending.remove(save)
        pod.change()


def _holds(pod: Pod, world: World) -> bool:
    """It has a fence; one that it only counted on is claimed now, or never."""
    if pod.is_claimed or pod.fence is None:
        return pod.is_claimed
    claimed = world.store.claim_next(
        pod, held=pod.fence - 1, attempt=pod.journal[0], parent=pod.parent
    )
    pod.is_claimed, pod.fence = claimed is not None, claimed or pod.fence
    return pod.is_claimed


def save(pod: Pod, world: World, step: int, *, name: str) -> None:
    """Rank 0's trainer has finished one; it gets its name in the store at once, if it can."""
    save = Save(name, step, world.now, world.now + world.upload_seconds, fence=pod.fence or 0)
    pod.pending.append(save)
    try:
        if world.store.reachable and world.is_linked(pod) and _holds(pod, world):
            save.ship = world.store.name(pod, save, parent=pod.parent)
    except Crash:
        die(pod, world)
