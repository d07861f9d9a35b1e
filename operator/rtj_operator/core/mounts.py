"""Read a user's pod template: which of its volumes holds the checkpoints, and which a file store.

What could never be written to is refused with the field and the remedy. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from posixpath import normpath
from typing import Any

from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.rules.steering import path_in

from rtj_operator.core import quantities
from rtj_operator.core.template import Manifest, is_within, refuse, trainer_index

PATHS_NOT_FOR_CHECKPOINTS = ("/proc", "/sys", "/dev", contract.MOUNT_RUN, contract.MOUNT_PODINFO)
READ_ONLY_SOURCES = ("configMap", "secret", "downwardAPI", "projected", "image")
# Any other kind is, or may be, one directory in every pod that names it, wherever it runs. Of a
# claim the access modes are not in the pod: a volume that only one node may hold is the same case,
# only that Kubernetes then lets the pods of other nodes wait.
OWN_SOURCES = ("emptyDir", "ephemeral")
NODES_SOURCES = ("hostPath",)
OWN_TO_A_POD = ("metadata.name", "metadata.uid", "status.podIP")
OWN_TO_A_NODE = ("spec.nodeName", "status.hostIP")


class Sharing(StrEnum):
    """Who else can write a rank's checkpoint directory."""

    POD = "pod"  # nobody: it comes and goes with the pod
    NODE = "node"  # pods on the same node
    RANK = "rank"  # an older pod of the same rank, wherever it runs
    ALL = "all"  # every pod of the job, wherever it runs


@dataclass(frozen=True, slots=True)
class CheckpointMount:
    """The trainer's mounts that hold its checkpoints, to be copied whole into the sidecar."""

    mounts: tuple[Manifest, ...]  # at or above the path first, then those below it
    sharing: Sharing
    ends_with_pod: bool = False  # an emptyDir or an ephemeral volume
    limit_bytes: int | None = None  # an emptyDir's sizeLimit


def checkpoint_mount(spec: Mapping[str, Any], *, path: str) -> CheckpointMount | None:
    """The user's mounts at, above and below `path`; None when the pod needs a volume of ours."""
    clean = normpath(path)
    if not path.startswith("/") or clean == "/":
        refuse(
            Reason.INVALID_SPEC,
            f"spec.checkpoint.path {path!r} must be an absolute directory below /.",
        )
    for taken in PATHS_NOT_FOR_CHECKPOINTS:
        if is_within(clean, taken):
            refuse(
                Reason.INVALID_SPEC,
                f"spec.checkpoint.path {path} lies in {taken}, which is not for checkpoints. "
                f"Choose another directory.",
            )
    index = trainer_index(spec)
    mounts = list(spec["containers"][index].get("volumeMounts") or [])
    above = mount_at(mounts, path=clean)
    below = [m for m in mounts if m is not above and is_within(str(m.get("mountPath")), clean)]
    if above is None:
        if not below:
            return None
        refuse(
            Reason.INVALID_SPEC,
            f"spec.template.spec.containers[{index}].volumeMounts mounts "
            f"{below[0].get('mountPath')} below spec.checkpoint.path {path}, and nothing at it. "
            f"Mount a volume at {path} too, or move the path.",
        )
    volume = volume_named(spec, str(above.get("name")))
    _check_writable(above, volume=volume, path=path, index=index)
    return CheckpointMount(
        mounts=(dict(above), *map(dict, below)),
        sharing=sharing_of(above, volume, trainer=spec["containers"][index]),
        ends_with_pod="emptyDir" in volume or "ephemeral" in volume,
        limit_bytes=quantities.parsed((volume.get("emptyDir") or {}).get("sizeLimit")),
    )


def mount_at(mounts: Iterable[Mapping[str, Any]], *, path: str) -> Mapping[str, Any] | None:
    """The deepest mount at or above `path`."""
    holding = [m for m in mounts if is_within(normpath(path), str(m.get("mountPath", "")))]
    return max(holding, key=lambda m: len(normpath(str(m["mountPath"]))), default=None)


def memory_bytes(spec: Mapping[str, Any], mounts: Iterable[Mapping[str, Any]]) -> float:
    """How much the memory-backed volumes among these mounts may hold: tmpfs is charged to whoever
    writes it. Infinite where one has no sizeLimit."""
    names = {mount.get("name") for mount in mounts}
    total = 0.0
    for volume in spec.get("volumes") or []:
        source = volume.get("emptyDir") or {}
        if volume["name"] not in names or source.get("medium") != "Memory":
            continue
        size = quantities.parsed(source.get("sizeLimit"))
        total += inf if size is None else size
    return total


def volume_named(spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    for volume in spec.get("volumes") or []:
        if volume["name"] == name:
            return dict(volume)
    refuse(
        Reason.INVALID_SPEC,
        f"spec.template.spec.volumes has no volume named {name!r}, which a volumeMount of the "
        f"trainer names.",
    )


def _check_writable(
    mount: Mapping[str, Any], *, volume: Mapping[str, Any], path: str, index: int
) -> None:
    name = volume["name"]
    where = f"spec.template.spec.containers[{index}].volumeMounts[{mount.get('mountPath')}]"
    if mount.get("readOnly"):
        refuse(
            Reason.PATH_NOT_WRITABLE,
            f"spec.checkpoint.path {path} lies on {where}, which is readOnly. Remove readOnly, or "
            f"choose a path on a writable volume.",
        )
    for kind in READ_ONLY_SOURCES:
        if kind in volume:
            refuse(
                Reason.PATH_NOT_WRITABLE,
                f"spec.checkpoint.path {path} lies on volume {name}, a {kind}, which is always "
                f"read-only. Choose a path on another volume.",
            )
    for kind, source in volume.items():
        if isinstance(source, Mapping) and source.get("readOnly"):
            refuse(
                Reason.PATH_NOT_WRITABLE,
                f"spec.checkpoint.path {path} lies on volume {name}, whose {kind}.readOnly is "
                f"true. Remove it, or choose a path on a writable volume.",
            )


def sharing_of(
    mount: Mapping[str, Any], volume: Mapping[str, Any], *, trainer: Mapping[str, Any]
) -> Sharing:
    """By the kind of the volume, and by what of the pod's own stands in the mount's subPathExpr."""
    expression = str(mount.get("subPathExpr", ""))
    fields = {
        ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath", "")
        for entry in trainer.get("env") or []
        if f"$({entry.get('name')})" in expression
    }
    if any(kind in volume for kind in OWN_SOURCES) or fields & set(OWN_TO_A_POD):
        return Sharing.POD
    by_rank = any(contract.LABEL_RANK in field for field in fields)
    if any(kind in volume for kind in NODES_SOURCES):
        return Sharing.POD if by_rank else Sharing.NODE
    if by_rank:
        return Sharing.RANK
    return Sharing.NODE if fields & set(OWN_TO_A_NODE) else Sharing.ALL


def output_mounts(spec: Mapping[str, Any], *, outputs: Iterable[str]) -> tuple[Manifest, ...]:
    """The trainer's mounts that hold what is to be shipped at success, read-only."""
    index = trainer_index(spec)
    found: list[Manifest] = []
    for number, path in enumerate(outputs):
        mount = mount_at(spec["containers"][index].get("volumeMounts") or [], path=path)
        if mount is None:
            refuse(
                Reason.INVALID_SPEC,
                f"spec.outputs[{number}] {path} lies on no volumeMount of spec.template.spec."
                f"containers[{index}]: it would end with the container. Mount a volume there (an "
                "emptyDir will do), or let the trainer write it below spec.checkpoint.path.",
            )
        volume_named(spec, str(mount.get("name")))
        read = {**mount, "readOnly": True}
        if read not in found:
            found.append(read)
    return tuple(found)


def source_mount(spec: Mapping[str, Any], *, resume_from: str | None) -> Manifest | None:
    """The trainer's mount that holds the directory which checkpoint.resumeFrom names, read-only;
    None where it names none."""
    path = path_in(resume_from) if resume_from is not None else None
    if path is None:
        return None
    index = trainer_index(spec)
    mount = mount_at(spec["containers"][index].get("volumeMounts") or [], path=path)
    if mount is None:
        refuse(
            Reason.INVALID_SPEC,
            f"spec.checkpoint.resumeFrom {resume_from} lies on no volumeMount of spec.template."
            f"spec.containers[{index}], so the sidecar cannot read it. Mount the volume that holds "
            "it there (readOnly will do), or name a bucket path.",
        )
    volume_named(spec, str(mount.get("name")))
    return {**mount, "readOnly": True}


def store_mount(spec: Mapping[str, Any], *, url: str | None) -> Manifest | None:
    """The trainer's mount that holds a file:// store; None for a store reached by network, and
    where the checkpoint directory itself keeps the run."""
    if url is None or not url.startswith("file://"):
        return None
    directory = url.removeprefix("file://")
    index = trainer_index(spec)
    mount = mount_at(spec["containers"][index].get("volumeMounts") or [], path=directory)
    if mount is None:
        refuse(
            Reason.INVALID_SPEC,
            f"spec.checkpoint.store.url {url} names a directory that no volumeMount of "
            f"spec.template.spec.containers[{index}] holds. Mount a volume that all pods share "
            f"there.",
        )
    volume = volume_named(spec, str(mount.get("name")))
    _check_writable(mount, volume=volume, path=directory, index=index)
    return dict(mount)
