"""PyTorch Distributed Checkpoint: `.metadata` (a pickle, read inertly) and its shard files.

A shard file is a chain of zip archives, one for each tensor or object, without gaps. Each ends
with a record that says where it began, so the chain is proved from its end to its start with no
help from `.metadata`; that a whole archive is missing at the end only `.metadata` can tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rtj_sidecar.checkpoints.formats import stub, zips
from rtj_sidecar.checkpoints.formats.base import CapError, Caps, FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.formats.facts import whole_number
from rtj_sidecar.checkpoints.formats.inert import Stub
from rtj_sidecar.checkpoints.types import Reason


@dataclass(frozen=True, slots=True)
class Slice:
    """Where one tensor or object lies: `length` bytes from `offset` of the file `path`."""

    key: str
    path: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """What `.metadata` says, as far as completeness needs it."""

    slices: tuple[Slice, ...]
    keys: tuple[str, ...]
    """Names of all tensors and objects (`model.w`, `optim.m`, `step`, …)."""
    save_id: str | None

    def sizes(self) -> dict[str, int]:
        """The size in bytes that each shard file must have: the end of its last slice."""
        sizes: dict[str, int] = {}
        for part in self.slices:
            sizes[part.path] = max(sizes.get(part.path, 0), part.offset + part.length)
        return sizes


def read_metadata(window: Window, *, caps: Caps) -> Metadata:
    """Raises MalformedError where it is no `.metadata` of DCP, or names a path outside its own."""
    if window.size > caps.pickle_bytes:
        raise CapError(f"its pickle of {window.size} bytes is above the cap")
    if not window.size:
        raise MalformedError("it is empty", reason=Reason.TRUNCATED)
    value = stub.load(window.read(0, window.size), caps=caps)
    if not isinstance(value, Stub) or not isinstance(value.get("state_dict_metadata"), dict):
        raise MalformedError("it is a pickle, but none of torch.distributed.checkpoint")
    storage = value.get("storage_data")
    if not isinstance(storage, dict):
        raise MalformedError("it has no storage_data: it does not say where its tensors are")
    meta = value.get("storage_meta")
    save_id = meta.get("save_id") if isinstance(meta, Stub) else None
    return Metadata(
        slices=tuple(_slice(index, info) for index, info in storage.items()),
        keys=tuple(key for key in value.get("state_dict_metadata") if isinstance(key, str)),
        save_id=save_id[:100] if isinstance(save_id, str) else None,
    )


def _slice(index: Any, info: Any) -> Slice:
    key = index.get("fqn") if isinstance(index, Stub) else None
    path = info.get("relative_path") if isinstance(info, Stub) else None
    offset = whole_number(info.get("offset")) if isinstance(info, Stub) else None
    length = whole_number(info.get("length")) if isinstance(info, Stub) else None
    if not isinstance(path, str) or offset is None or length is None:
        raise MalformedError("an entry of its storage_data has no path, offset and length")
    if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise MalformedError(f"it names {path[:200]!r}, outside of it", reason=Reason.UNSAFE_ENTRY)
    return Slice(key if isinstance(key, str) else "", path, offset, length)


def check_shard(
    window: Window, buffer: bytearray, *, slices: Iterable[Slice] | None, caps: Caps
) -> FileCheck:
    """Every archive in the chain, each member's CRC-32, and that each slice is one of them.

    `slices`: those that `.metadata` places in this file; None where it is not at hand. A shard
    that is no chain of zips (another serializer) is answered with passed None.
    """
    if not window.size and not slices:
        known = True if slices is not None else None
        return FileCheck("dcp-shard", known, "is empty")
    if window.size < 4 or window.read(0, 4) != b"PK\x03\x04":
        if slices is None or all(part.length == 0 for part in slices):
            return FileCheck("dcp-shard", None, "is no chain of zip archives: cannot be checked")
        first = min(slices, key=lambda part: part.offset)
        if first.offset or window.size < 4 or not any(window.read(0, 4)):
            raise MalformedError("it does not begin with the tensors that .metadata places there")
        return FileCheck("dcp-shard", None, "is no chain of zip archives: cannot be checked")
    missing = {(part.offset, part.length) for part in slices or ()}
    count, end, checked = 0, window.size, True
    while end:
        archive = zips.read_archive(window.part(0, end), caps=caps)
        checked = zips.check_members(window, archive, buffer=buffer, caps=caps) and checked
        missing.discard((archive.start, archive.size))
        count, end = count + 1, archive.start
        if count > caps.archives:
            raise CapError(f"it holds more than {count} archives")
    if missing:
        offset, length = min(missing)
        raise MalformedError(
            f".metadata places {length} bytes at {offset}, where no archive is:"
            " shard and .metadata are of different saves",
            reason=Reason.MIXED_GENERATIONS,
        )
    detail = f"{count} archives match their CRC-32"
    if not checked:
        detail = f"{count} archives are complete, some without CRC-32"
    return FileCheck("dcp-shard", True, detail, facts={"archives": count, "crc": checked})
