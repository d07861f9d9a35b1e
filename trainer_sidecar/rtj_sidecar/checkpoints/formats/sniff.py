"""Picks the checker for one file by its first bytes and its name."""

from __future__ import annotations

from rtj_sidecar.checkpoints.formats import (
    dcp,
    hdf5,
    jsonfile,
    safetensors,
    torchlegacy,
    torchzip,
    zips,
)
from rtj_sidecar.checkpoints.formats.base import Caps, FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.types import Reason

TORCH_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".tar")
_HDF5_SUFFIXES = (".h5", ".hdf5")


def check_file(window: Window, buffer: bytearray, *, name: str, caps: Caps) -> FileCheck:
    """Everything that the file's own format can prove; passed None where it can prove nothing.

    A file whose name promises a format and whose bytes are none of it has failed. Raises
    MalformedError, which the caller turns into a failed check.
    """
    if name.endswith(".safetensors"):
        return safetensors.check(window, caps=caps)
    if name.endswith(".json"):
        return jsonfile.check(window, caps=caps)
    if name.endswith(".distcp"):
        return dcp.check_shard(window, buffer, slices=None, caps=caps)
    head = window.read(0, min(window.size, 64))
    if head.startswith(torchzip.ZIP_MAGIC):
        if name.endswith(TORCH_SUFFIXES):
            return torchzip.check(window, buffer, caps=caps)
        archive = zips.read_archive(window, caps=caps)
        checked = zips.check_members(window, archive, buffer=buffer, caps=caps)
        return FileCheck("zip", True, f"{len(archive.members)} members", facts={"crc": checked})
    if head.startswith(torchzip.LEGACY_MAGIC):
        return torchlegacy.check(window, caps=caps)
    if head.startswith(hdf5.SIGNATURE):
        return hdf5.check(window, caps=caps)
    if name.endswith(_HDF5_SUFFIXES) and not any(head):
        raise MalformedError("its writer did not close it", reason=Reason.TRUNCATED)
    if name.endswith(".keras"):
        raise MalformedError("it is no archive of Keras: cut off", reason=Reason.TRUNCATED)
    if name.endswith((".pt", ".pth", ".ckpt")) and (
        not any(head)
        or torchzip.ZIP_MAGIC.startswith(head)
        or torchzip.LEGACY_MAGIC.startswith(head)
    ):
        raise MalformedError("it is empty, cut off or begins with zeros", reason=Reason.TRUNCATED)
    return FileCheck("unknown", None, "no format that can check itself")


def peek(window: Window, *, name: str, caps: Caps) -> FileCheck:
    """Facts only (step, keys), without reading the tensors. Raises MalformedError."""
    head = window.read(0, min(window.size, 64))
    if head.startswith(torchzip.ZIP_MAGIC):
        return torchzip.peek(window, caps=caps)
    if head.startswith(torchzip.LEGACY_MAGIC):
        return torchlegacy.peek(window, caps=caps)
    return FileCheck("unknown", None, "no facts can be read")
