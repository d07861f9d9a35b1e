"""What a value is made of that was read from a pickle: plain data and stand-ins, nothing else."""

from __future__ import annotations

from typing import Any

from rtj_sidecar.checkpoints.formats.inert import Stub


def kinds_that_are_inert() -> set[type]:
    plain: set[type] = {type(None), bool, int, float, str, bytes, bytearray}
    return plain | {list, tuple, dict, set, frozenset, Stub}


def kinds_in(value: Any) -> set[type]:
    """Of every part of a value that was read, however deep; a cycle is passed once."""
    found: set[type] = set()
    seen: set[int] = set()
    left = [value]
    while left:
        part = left.pop()
        found.add(type(part))
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            left += [*part, *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            left += part
        elif isinstance(part, Stub):
            left += [getattr(part, name, None) for name in Stub.__slots__]
    return found
