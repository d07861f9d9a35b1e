"""The legacy form of torch.save: five pickles, then each storage with its length before it.

The pickles say how many elements of which type each storage has, so that the exact size of a whole
file is known and a cut is found; the form has no checksum. Source: `_legacy_save` in
torch/serialization.py.
"""

from __future__ import annotations

from typing import Any

from rtj_sidecar.checkpoints.formats import facts as safe
from rtj_sidecar.checkpoints.formats import stub
from rtj_sidecar.checkpoints.formats.base import CapError, Caps, FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.formats.inert import Stub
from rtj_sidecar.checkpoints.types import Reason

_BYTES = {"Double": 8, "Long": 8, "ComplexFloat": 8, "ComplexDouble": 16, "Float": 4, "Int": 4}
_BYTES |= {"Half": 2, "BFloat16": 2, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1, "Untyped": 1}
_BYTES |= {"QInt8": 1, "QUInt8": 1, "QInt32": 4, "QUInt4x2": 1, "QUInt2x4": 1}
_PICKLES = 5
"""Magic number, protocol version, system info, the object, the keys of its storages."""


def peek(window: Window, *, caps: Caps) -> FileCheck:
    """Facts of the object; proves nothing: passed None."""
    values, _, _ = _pickles(window, caps, count=_PICKLES - 1)
    return FileCheck("torch-legacy", None, "not checked", facts=safe.from_state(values[3]))


def check(window: Window, *, caps: Caps) -> FileCheck:
    """Every storage is there with the length that the pickles state, and the file ends with the
    last. Raises MalformedError (Truncated where it is cut off)."""
    values, storages, at = _pickles(window, caps, count=_PICKLES)
    facts = safe.from_state(values[3])
    keys = values[4]
    sizes = {key: _size(kind, count) for key, kind, count in storages}
    if not isinstance(keys, list) or any(_known(sizes, key) is None for key in keys):
        detail = "its storages are of a kind that is not known here"
        return FileCheck("torch-legacy", None, detail, facts=facts)
    for key in keys:
        elements, width = _known(sizes, key) or (0, 0)
        stated = int.from_bytes(window.read(at, 8), "little")
        if stated != elements:
            raise MalformedError(f"storage {key} states {stated} elements, its pickle {elements}")
        at += 8 + elements * width
        if at > window.size:
            raise MalformedError(
                f"it has {window.size} bytes and ends within storage {key}", reason=Reason.TRUNCATED
            )
    if at < window.size:
        detail = f"{window.size - at} bytes follow its last storage: several objects in one file"
        return FileCheck("torch-legacy", None, detail, facts=facts)
    detail = f"{len(keys)} storages fill it exactly (the legacy form has no checksum)"
    return FileCheck("torch-legacy", True, detail, facts=facts)


def _pickles(
    window: Window, caps: Caps, *, count: int
) -> tuple[list[Any], list[tuple[str, str, Any]], int]:
    """The first pickles' values; (key, kind, elements) of each storage; where they end."""
    data = window.read(0, min(window.size, caps.pickle_bytes))
    named: list[Any] = []
    values: list[Any] = []
    at = 0
    for _ in range(count):
        try:
            value, at = stub.load_from(data, caps=caps, start=at, persistent=named)
        except MalformedError as error:
            if len(data) < window.size:
                raise CapError(f"its pickles are above the cap of {len(data)} bytes") from error
            raise
        values.append(value)
    return values, [found for found in map(_storage, named) if found is not None], at


def _storage(named: Any) -> tuple[str, str, Any] | None:
    """("storage", type, key, device, elements, view) as torch names a storage in its pickle."""
    if not isinstance(named, tuple) or len(named) < 5 or named[0] != "storage":
        return None
    kind = named[1].name if isinstance(named[1], Stub) else ""
    if not isinstance(named[2], str):
        return None
    return named[2], kind.rpartition(".")[2].removesuffix("Storage"), named[4]


def _known(sizes: dict[str, tuple[int, int] | None], key: Any) -> tuple[int, int] | None:
    # Never the text of whatever stands there: that of a nested value can be without end.
    return sizes.get(key) if isinstance(key, str) else None


def _size(kind: str, elements: Any) -> tuple[int, int] | None:
    width = _BYTES.get(kind)
    sound = isinstance(elements, int) and not isinstance(elements, bool) and 0 <= elements < 1 << 60
    return (elements, width) if width is not None and sound else None
