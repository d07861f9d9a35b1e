"""The emptyDir of the checkpoint directory that the operator adds where the user mounts nothing.

Its size is the kubelet's to enforce, so what of the template contradicts it is told beforehand.
Pure. Must never shape a volume of the user's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.v1alpha1 import Local, Medium

from rtj_operator.core.mounts import CheckpointMount, memory_bytes
from rtj_operator.core.quantities import mebibytes, parsed
from rtj_operator.core.template import Manifest, refuse

DISK = "ephemeral-storage"


def check(local: Local, *, mount: CheckpointMount | None) -> None:
    """Raises SpecRefused where a size or medium is stated for a volume that is the user's."""
    if mount is None or (local.size is None and local.medium is Medium.DISK):
        return
    above = mount.mounts[0]
    refuse(
        Reason.INVALID_SPEC,
        f"spec.checkpoint.local.size and medium are of the emptyDir that the operator adds, but "
        f"spec.template mounts volume {above.get('name')} at {above.get('mountPath')}, which holds "
        "spec.checkpoint.path. State sizeLimit and medium in that volume, or remove the mount.",
    )


def own_volume(local: Local) -> Manifest:
    """The volume, as it stands in the pod."""
    source: Manifest = {}
    if local.medium is Medium.MEMORY:
        source["medium"] = str(local.medium)
    if local.size is not None:
        source["sizeLimit"] = local.size
    return {"name": contract.VOLUME_CHECKPOINTS, "emptyDir": source}


def with_own_volume(pod: Mapping[str, Any], local: Local) -> Manifest:
    """The template's pod with that volume."""
    return {**pod, "volumes": [*(pod.get("volumes") or []), own_volume(local)]}


def disk_request(local: Local, *, pod: Mapping[str, Any]) -> Manifest:
    """What the sidecar asks for, so that a pod comes to a node with room for that volume: nothing
    where the template says itself how much of a node's disk its containers take."""
    if local.size is None or local.medium is Medium.MEMORY:
        return {}
    for container in [*pod["containers"], *(pod.get("initContainers") or [])]:
        resources = container.get("resources") or {}
        if any(DISK in (resources.get(kind) or {}) for kind in ("limits", "requests")):
            return {}
    return {DISK: str(local.size)}


def memory_warning(
    *, pod: Mapping[str, Any], mounts: tuple[Manifest, ...], trainer: Mapping[str, Any]
) -> str | None:
    """Why the trainer's own writes may kill it before a memory-backed directory is full."""
    in_memory = memory_bytes(pod, mounts)
    stated = ((trainer.get("resources") or {}).get("limits") or {}).get("memory")
    limit = parsed(stated)
    if limit is None or in_memory in (0, inf) or limit > in_memory:
        return None
    return (
        f"container {trainer.get('name')} of spec.template has a memory limit of {stated}, and the "
        f"memory-backed volume of spec.checkpoint.path may hold {mebibytes(in_memory)}: what the "
        "trainer writes there counts against its limit. Raise the limit, or lower the volume's size"
    )


def disk_warning(local: Local, *, pod: Mapping[str, Any]) -> str | None:
    """Why the kubelet would evict the pod before the directory is full."""
    size = parsed(local.size)
    if size is None or local.medium is Medium.MEMORY:
        return None
    limits = [
        parsed(((container.get("resources") or {}).get("limits") or {}).get(DISK))
        for container in pod["containers"]
    ]
    stated = [limit for limit in limits if limit is not None]
    if not stated or sum(stated) > size:
        return None
    return (
        f"the containers of spec.template may use {mebibytes(sum(stated))} of the node's disk "
        f"({DISK} limits), and spec.checkpoint.local.size is {local.size}: the kubelet would evict "
        "the pod before that is full. Raise the limits, or lower the size"
    )
