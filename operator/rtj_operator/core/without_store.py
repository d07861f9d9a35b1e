"""A job without a store: its run is kept on the volume that its pods write to. Pure.

Allowed only where that volume outlives any pod and any node and is the same for all ranks; else a
pod's end would end the run with it.
"""

from __future__ import annotations

from rtj_api.reasons import Reason

from rtj_operator.core.mounts import CheckpointMount, Sharing
from rtj_operator.core.template import refuse

SURVIVES = (
    "the spec can be run. It has no checkpoint.store: the run is kept on the checkpoint volume "
    "itself, in .rtj/store below checkpoint.path. It survives the loss of processes, pods and "
    "nodes, not the loss of that volume nor of what is deleted there by hand"
)

_WHY = {
    Sharing.POD: "which is lost with its pod",
    Sharing.NODE: "which is lost with its node",
    Sharing.RANK: "of which each rank sees its own part only",
}


def check(mount: CheckpointMount | None, *, path: str) -> None:
    """Raises SpecRefused."""
    sharing = mount.sharing if mount is not None else Sharing.POD
    if sharing is Sharing.ALL:
        return
    where = "a directory of the pod's own" if mount is None else "a volume"
    refuse(
        Reason.INVALID_SPEC,
        f"spec.checkpoint.store is not set, and spec.checkpoint.path {path} lies on {where}, "
        f"{_WHY[sharing]}: no save would outlive it. Set checkpoint.store, such as url: "
        "s3://bucket/prefix, or mount there a volume that all pods share (a ReadWriteMany claim, "
        "NFS) without a subPathExpr.",
    )
