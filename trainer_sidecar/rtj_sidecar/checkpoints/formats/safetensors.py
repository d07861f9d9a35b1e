"""Files of safetensors: a header that says exactly how long the file must be.

Form: 8 bytes little-endian header length, JSON header, body. The body carries no checksum, so a
zeroed block inside it cannot be seen here; only the SHA-256 taken when it was shipped can tell.
"""

from __future__ import annotations

import json
from typing import Any

from rtj_sidecar.checkpoints.formats.base import Caps, FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.formats.jsonfile import limit_values
from rtj_sidecar.checkpoints.types import Reason

_BITS = {"F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16}
_BITS |= {"BF16": 16, "I16": 16, "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8}
_BITS |= {"F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}


def check(window: Window, *, caps: Caps) -> FileCheck:
    """The exact size rule: file size = 8 + header + end of the last tensor, without holes.

    Facts: `tensors` (count), `metadata` (strings of `__metadata__`). Raises MalformedError.
    """
    header, length = read_header(window, caps=caps)
    metadata = header.pop("__metadata__", None) or {}
    spans = sorted(span(name, entry) for name, entry in header.items())
    end = 0
    for begin, stop, name in spans:
        if begin != end:
            raise MalformedError(f"tensor {name!r} begins at {begin}, not at {end}")
        end = stop
    if window.size != 8 + length + end:
        raise MalformedError(
            f"it has {window.size} bytes, its header says {8 + length + end}",
            reason=Reason.TRUNCATED if window.size < 8 + length + end else Reason.MALFORMED,
        )
    texts = {}
    if isinstance(metadata, dict):
        texts = {str(k)[:200]: str(v)[:200] for k, v in list(metadata.items())[:32]}
    return FileCheck(
        "safetensors",
        True,
        f"{len(spans)} tensors fill it exactly (the format has no checksum)",
        facts={"tensors": len(spans), "metadata": texts, "bytes": end},
    )


def read_header(window: Window, *, caps: Caps) -> tuple[dict[str, Any], int]:
    if window.size < 8:
        raise MalformedError("it is too short for a header", reason=Reason.TRUNCATED)
    length = int.from_bytes(window.read(0, 8), "little")
    if length < 2 or length > caps.safetensors_header_bytes:
        raise MalformedError(f"its header length of {length} bytes is impossible")
    raw = window.read(8, length)
    if not raw.startswith(b"{"):
        raise MalformedError("its header is no JSON object")
    limit_values(raw, caps=caps)
    try:
        header = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"its header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise MalformedError("its header is no JSON object")
    return header, length


def span(name: str, entry: Any) -> tuple[int, int, str]:
    shown = name[:200]
    if not isinstance(entry, dict):
        raise MalformedError(f"tensor {shown!r} has no description")
    offsets, shape = _sizes(entry.get("data_offsets")), _sizes(entry.get("shape"))
    dtype = entry.get("dtype")
    if offsets is None or shape is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise MalformedError(f"tensor {shown!r} has no valid shape and offsets")
    bits = _BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is not None:
        for dimension in shape:
            bits *= dimension
            if bits > 1 << 70:
                raise MalformedError(f"tensor {shown!r} has an impossible shape")
        if (bits + 7) // 8 != offsets[1] - offsets[0]:
            raise MalformedError(
                f"tensor {shown!r} has {offsets[1] - offsets[0]} bytes, its shape {bits // 8}"
            )
    return offsets[0], offsets[1], shown


def _sizes(value: Any) -> list[int] | None:
    """A list of sizes, or None where it is something else."""
    sound = isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 63
        for item in value
    )
    return value if sound else None
