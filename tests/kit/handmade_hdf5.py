"""HDF5 files by hand, in the form that h5py writes by default: groups, and arrays in one piece.

Format: "HDF5 File Format Specification 3.0", superblock version 0.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

_NOWHERE = (1 << 64) - 1
_SUPERBLOCK = 96
_INTEGER, _BYTES = 8, 1


def hdf5_bytes(arrays: Mapping[str, bytes | int]) -> bytes:
    """A closed file. `arrays`: path (`layers/dense/0`) -> bytes, or one int64 for a number."""
    body, root = _group(_tree(arrays), _SUPERBLOCK)
    head = b"\x89HDF\r\n\x1a\n" + struct.pack("<8B2HI", 0, 0, 0, 0, 0, 8, 8, 0, 4, 16, 0)
    head += struct.pack("<4Q", 0, _NOWHERE, _SUPERBLOCK + len(body), _NOWHERE)
    head += struct.pack("<2QII16x", 0, root, 0, 0)
    return head + body


Tree = dict[str, "Tree | bytes | int"]


def _tree(arrays: Mapping[str, bytes | int]) -> Tree:
    top: Tree = {}
    for path, content in arrays.items():
        *groups, name = path.split("/")
        level = top
        for group in groups:
            inner = level.setdefault(group, {})
            assert isinstance(inner, dict)
            level = inner
        level[name] = content
    return top


def _group(children: Tree, at: int) -> tuple[bytes, int]:
    """(all of the group's bytes, which begin at `at`, and the address of its object header)."""
    names, name_at = b"\0" * 8, {}
    for name in children:
        name_at[name] = len(names)
        names += name.encode() + b"\0"
    names += bytes(-len(names) % 8)
    out = b"HEAP" + bytes(4) + struct.pack("<3Q", len(names), 1, at + 32) + names
    headers = {}
    for name, child in children.items():
        place = at + len(out)
        if isinstance(child, dict):
            inner, headers[name] = _group(child, place)
        else:
            inner, headers[name] = _array(child, place)
        out += inner
    symbols_at = at + len(out)
    out += b"SNOD" + struct.pack("<2BH", 1, 0, len(children))
    for name in children:
        out += struct.pack("<2QII16x", name_at[name], headers[name], 0, 0)
    tree_at = at + len(out)
    out += b"TREE" + struct.pack("<2BH2Q", 0, 0, 1, _NOWHERE, _NOWHERE)
    out += struct.pack("<3Q", 0, symbols_at, 0)
    header_at = at + len(out)
    return out + _header({0x11: struct.pack("<2Q", tree_at, at)}), header_at


def _array(content: bytes | int, at: int) -> tuple[bytes, int]:
    raw = struct.pack("<q", content) if isinstance(content, int) else content
    width = _INTEGER if isinstance(content, int) else _BYTES
    space = struct.pack("<2B6xQ", 1, 1, len(raw) // width)
    kind = struct.pack("<4BI", 0x10, 8, 0, 0, width) + bytes(8)
    size = len(_header({0x1: space, 0x3: kind, 0x8: bytes(24)}))
    place = struct.pack("<2B2Q", 3, 1, at + size, len(raw)) + bytes(6)
    return _header({0x1: space, 0x3: kind, 0x8: place}) + raw, at


def _header(messages: Mapping[int, bytes]) -> bytes:
    content = b"".join(
        struct.pack("<2HB3x", kind, len(message), 0) + message for kind, message in messages.items()
    )
    return struct.pack("<BxHII4x", 1, len(messages), 1, len(content)) + content
