"""Single numbers in a shard of DCP: at the place that `.metadata` states, or looked for without it.

DCP gives what is no tensor to the rank that has the fewest bytes, and each rank writes such values
before its tensors (`dedup_save_plans`, `FileSystemWriter`; torch 2.15). Where each rank has a disk
of its own, the one with `.metadata` may therefore know only where the step lies, and another only
what lies there. Must never read more of a shard than its head, and never execute it.
"""

from __future__ import annotations

import struct
from typing import Any

from rtj_sidecar.checkpoints.formats import stub, zips
from rtj_sidecar.checkpoints.formats.base import Caps, MalformedError, Window
from rtj_sidecar.checkpoints.formats.dcp import Slice
from rtj_sidecar.checkpoints.formats.inert import Stub

_LARGEST = 1 << 20
"""Bytes: of an archive with one number in it, and of a shard's head."""
_MOST = 64
"""Archives looked into."""
_END, _END_SIZE = b"PK\x05\x06", 22
_SCALARS = {
    "torch.ShortStorage": "<h",
    "torch.IntStorage": "<i",
    "torch.LongStorage": "<q",
    "torch.FloatStorage": "<f",
    "torch.DoubleStorage": "<d",
}


def number_at(window: Window, part: Slice, *, caps: Caps) -> int | float | None:
    """The number in a slice: a Python or numpy one, or a tensor of one value without dimensions.

    None for all else. Raises MalformedError.
    """
    if part.length > _LARGEST:
        return None
    return _number_in(window.part(part.offset, part.length), caps)


def numbers_at_head(window: Window, *, caps: Caps) -> dict[int, int | float]:
    """Offset -> number, of the archives that lie whole in the first bytes of a shard.

    An end record is looked for, and the archive that ends there must begin where the last one
    ended; what is none is passed over.
    """
    head = window.read(0, min(window.size, _LARGEST))
    found: dict[int, int | float] = {}
    start = at = 0
    for _ in range(_MOST):
        at = head.find(_END, at)
        end = at + _END_SIZE
        if at < 0 or end > len(head):
            break
        at += 1
        try:
            archive = window.part(start, end - start)
            if zips.read_archive(archive, caps=caps).start:
                continue
            number = _number_in(archive, caps)
        except MalformedError:
            continue
        if number is not None:
            found[start] = number
        start = at = end
    return found


def _number_in(window: Window, caps: Caps) -> int | float | None:
    archive = zips.read_archive(window, caps=caps)
    members = {member.name.partition("/")[2]: member for member in archive.members}
    if "data.pkl" not in members:
        return None
    content = zips.read_member(window, archive, members["data.pkl"], limit=_LARGEST)
    value = stub.load(content, caps=caps)
    if isinstance(value, int | float):
        return None if isinstance(value, bool) else value
    form, key = _scalar(value)
    member = members.get(f"data/{key}")
    order = members.get("byteorder")
    if form is None or member is None or member.size != struct.calcsize(form):
        return None
    if order and zips.read_member(window, archive, order, limit=64).strip() == b"big":
        return None
    raw = zips.read_member(window, archive, member, limit=16)
    number: int | float = struct.unpack(form, raw)[0]
    return number


def _scalar(value: Any) -> tuple[str | None, str]:
    """(struct format, storage) of a tensor without dimensions; (None, "") for all else."""
    is_tensor = isinstance(value, Stub) and value.name == "torch._utils._rebuild_tensor_v2"
    if not is_tensor or len(value.args) < 3 or value.args[1] != 0 or value.args[2] != ():
        return None, ""
    storage = value.args[0]
    told = storage.args[0] if isinstance(storage, Stub) and storage.args else None
    if not isinstance(told, tuple) or len(told) < 3 or not isinstance(told[1], Stub):
        return None, ""
    return _SCALARS.get(told[1].name), str(told[2])
