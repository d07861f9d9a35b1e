"""OCDBT, the key-value store within Orbax checkpoints: manifests and nodes, each with a CRC-32C.

Form: magic number, length as 64 bits, version, packing, body, checksum over all before it. The
bodies are packed and not followed; values (the arrays) have no checksum of this layer. Format: the
page "OCDBT" of the TensorStore documentation.
"""

from __future__ import annotations

from awscrt import checksums

from rtj_sidecar.checkpoints.formats.base import CapError, Caps, FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.types import Reason

_MANIFEST, _NODE = bytes.fromhex("0cdb3a2a"), bytes.fromhex("0cdb20de")
_SHORTEST = 18


def check(window: Window, *, manifest: bool, caps: Caps) -> FileCheck:
    """A manifest must prove itself; a data file does where it is one node, else it is unchecked
    (passed None). Raises MalformedError; Truncated for an empty file or one of zeros."""
    head = window.read(0, min(window.size, _SHORTEST))
    if not any(head):
        raise MalformedError("it is empty or only zeros", reason=Reason.TRUNCATED)
    length = int.from_bytes(head[4:12], "little")
    node = head[:4] == _NODE and length == window.size
    if not manifest and not node:
        return FileCheck("ocdbt", None, "values have no checksum of their own")
    if len(head) < _SHORTEST or (manifest and head[:4] != _MANIFEST):
        raise MalformedError("it is no manifest of OCDBT", reason=Reason.TRUNCATED)
    if length != window.size:
        raise MalformedError(
            f"it has {window.size} bytes, its header says {length}", reason=Reason.TRUNCATED
        )
    if window.size > caps.json_bytes:
        raise CapError(f"its {window.size} bytes are above the cap")
    content = window.read(0, window.size)
    if checksums.crc32c(content[:-4]) != int.from_bytes(content[-4:], "little"):
        raise MalformedError("it does not match its CRC-32C", reason=Reason.CHECKSUM_MISMATCH)
    return FileCheck("ocdbt", True, "matches its CRC-32C")
