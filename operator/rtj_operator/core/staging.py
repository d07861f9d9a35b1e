"""Where a trainer's framework stages a save before it moves it into place. Pure.

Lightning writes to `$TMPDIR` and moves the file: a rename on one disk, but a copy onto the final
name from another one, as `/tmp` of a container is; a kill within the copy leaves a torn save.
"""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import join, normpath
from typing import Any

from rtj_api import contract
from rtj_api.v1alpha1 import JobSpec

from rtj_operator.core import mounts
from rtj_operator.core import template as tpl

# Sockets that trainers make below it may be 108 bytes long, and their own names take 40 or so.
LONGEST = 64


def staging_directory(spec: JobSpec, trainer: Mapping[str, Any]) -> str | None:
    """The trainer's TMPDIR, a hidden directory on the checkpoint volume; None to leave it alone.

    Only for a layout that says that its framework stages, on a disk of the pod's own, and where
    the template cannot have set TMPDIR itself (`envFrom` may).
    """
    if spec.checkpoint.layout.value not in contract.STAGING_LAYOUTS or trainer.get("envFrom"):
        return None
    if any(entry.get("name") == "TMPDIR" for entry in trainer.get("env") or []):
        return None
    mount = mounts.checkpoint_mount(tpl.pod_spec(spec.template), path=spec.checkpoint.path)
    if mount is not None and mount.sharing is not mounts.Sharing.POD:
        return None
    path = normpath(spec.checkpoint.path)
    place = join(path, contract.HIDDEN_DIR, contract.DIRECTORY_STAGING)
    return place if len(place) <= LONGEST else None
