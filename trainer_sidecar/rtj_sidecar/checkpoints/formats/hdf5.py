"""HDF5 files as Keras writes them: the superblock, and every group and dataset that it leads to.

A closed file ends exactly where its superblock says; one whose writer was killed has none yet, an
older one, or one that leads to nothing. The format (version 0, which h5py writes unless told
otherwise) has no checksum, so zeros within a tensor cannot be seen. Format: "HDF5 File Format
Specification 3.0". Bounded: each object is visited once, and there is a limit on their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rtj_sidecar.checkpoints.formats.base import CapError, Caps, FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.types import Reason

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_NOWHERE = (1 << 64) - 1
_SPACE, _TYPE, _LAYOUT, _CONTINUES, _GROUP = 0x1, 0x3, 0x8, 0x10, 0x11
_NEW_GROUP = (0x2, 0x6)
_MOST_OBJECTS = 200_000
_MOST_MESSAGES = 4096
_HEAP_BYTES = 4 << 20
_MOST_BYTES = 256 << 20
_MOST_NAME = 1024


@dataclass(frozen=True, slots=True)
class Dataset:
    """Where an array lies. `integer`: (bytes, signed) where it is one little-endian integer."""

    address: int
    size: int
    integer: tuple[int, bool] | None


@dataclass(frozen=True, slots=True)
class Contents:
    """All arrays by path. `walked` is false where a newer form was met that is not followed."""

    datasets: dict[str, Dataset]
    walked: bool


def check(window: Window, *, caps: Caps) -> FileCheck:
    """Raises MalformedError (Truncated where the writer did not close it)."""
    found = read(window, caps=caps)
    detail = f"closed by its writer, {len(found.datasets)} arrays lie within it (no checksum)"
    if not found.walked:
        detail = "closed by its writer; its inner form is newer than what is followed here"
    return FileCheck("hdf5", True, detail, facts={"arrays": len(found.datasets)})


def read(window: Window, *, caps: Caps) -> Contents:
    """Every array of a closed file. Raises MalformedError."""
    if window.size < 96 or window.read(0, 8) != SIGNATURE:
        reason = Reason.TRUNCATED if _unwritten(window) else Reason.MALFORMED
        raise MalformedError(
            "it does not begin as HDF5 does: not closed by its writer", reason=reason
        )
    version = window.read(8, 1)[0]
    if version in (2, 3):
        return _newer(window)
    if version not in (0, 1):
        raise CapError(f"its version {version} of HDF5 is not known here")
    head = window.read(0, 96 + 4 * version)
    if head[13:15] != b"\x08\x08":
        raise CapError("its addresses are not of 8 bytes")
    at = 24 + 4 * version
    base, end = _number(head, at), _number(head, at + 16)
    if base:
        raise CapError("it does not begin at its beginning")
    _check_end(window, end)
    return _Walk(window).everything(_number(head, at + 32 + 8))


def _unwritten(window: Window) -> bool:
    return not any(window.read(0, min(window.size, 64)))


def _check_end(window: Window, end: int) -> None:
    if window.size < end:
        raise MalformedError(
            f"it has {window.size} bytes, its superblock says {end}", reason=Reason.TRUNCATED
        )
    if window.size > end:
        raise MalformedError(
            f"its superblock ends it at {end}, {window.size} bytes are there: its writer did not"
            " close it",
            reason=Reason.TRUNCATED,
        )


def _newer(window: Window) -> Contents:
    head = window.read(0, 48)
    if head[9:11] != b"\x08\x08" or _number(head, 12):
        raise CapError("its addresses are not of 8 bytes, or do not begin at its beginning")
    if head[11]:
        raise MalformedError("it is marked as open for writing", reason=Reason.TRUNCATED)
    _check_end(window, _number(head, 28))
    return Contents({}, False)


class _Walk:
    """Groups and datasets of one file, breadth first, each address once."""

    def __init__(self, window: Window) -> None:
        self._window = window
        # The parts of a sound file do not overlap, so what is read of it is at most its size.
        self._left = min(window.size, _MOST_BYTES) + (1 << 20)
        self._members_left = _MOST_OBJECTS
        self._seen: set[int] = set()
        self._datasets: dict[str, Dataset] = {}
        self._walked = True

    def everything(self, root: int) -> Contents:
        waiting = [("", root)]
        while waiting:
            path, address = waiting.pop()
            if not self._first_visit(address):
                continue
            waiting += self._object(path, address)
        return Contents(self._datasets, self._walked)

    def _read(self, at: int, size: int) -> bytes:
        self._left -= size
        if self._left < 0:
            raise CapError("its parts overlap, or it has too many")
        return self._window.read(at, size)

    def _first_visit(self, address: int) -> bool:
        if address in self._seen:
            return False
        self._seen.add(address)
        if len(self._seen) > _MOST_OBJECTS:
            raise CapError(f"it has more than {_MOST_OBJECTS} parts")
        return True

    def _object(self, path: str, address: int) -> list[tuple[str, int]]:
        """The members of a group; a dataset is noted."""
        messages: dict[int, bytes] = {}
        for kind, content in self._messages(path, address):
            messages.setdefault(kind, content)
        if _GROUP in messages:
            content = messages[_GROUP]
            return list(self._members(path, _number(content, 0), _number(content, 8)))
        if _LAYOUT in messages:
            self._note(path, messages)
        elif any(kind in messages for kind in _NEW_GROUP):
            self._walked = False
        return []

    def _messages(self, path: str, address: int) -> Iterator[tuple[int, bytes]]:
        head = self._read(address, 16)
        if head[0] != 1:
            if head.startswith(b"OHDR"):
                self._walked = False
                return
            raise MalformedError(f"its object {path or '/'!r} is not where it must be")
        left = int.from_bytes(head[2:4], "little")
        blocks = [(address + 16, int.from_bytes(head[8:12], "little"))]
        if left > _MOST_MESSAGES:
            raise CapError(f"its object {path or '/'!r} has {left} messages")
        while blocks and left:
            at, size = blocks.pop(0)
            if size > _HEAP_BYTES:
                raise CapError(f"its object {path or '/'!r} has a header of {size} bytes")
            block, inside = self._read(at, size), 0
            while left and inside + 8 <= len(block):
                kind = int.from_bytes(block[inside : inside + 2], "little")
                length = int.from_bytes(block[inside + 2 : inside + 4], "little")
                content = block[inside + 8 : inside + 8 + length]
                inside += 8 + length
                left -= 1
                if kind == _CONTINUES and len(content) >= 16:
                    place = _number(content, 0)
                    if self._first_visit(place):
                        blocks.append((place, _number(content, 8)))
                yield kind, content

    def _members(self, path: str, tree: int, heap: int) -> Iterator[tuple[str, int]]:
        names = self._names(path, heap)
        waiting = [tree]
        while waiting:
            node = waiting.pop()
            if not self._first_visit(node):
                continue
            head = self._read(node, 24)
            if head[:5] != b"TREE\0":
                raise MalformedError(f"the tree of its group {path or '/'!r} is broken")
            used = int.from_bytes(head[6:8], "little")
            children = self._read(node + 24, 8 + 16 * used)
            addresses = [_number(children, 8 + 16 * at) for at in range(used)]
            if head[5]:
                waiting += addresses
                continue
            for address in addresses:
                yield from self._symbols(path, address, names)

    def _symbols(self, path: str, address: int, names: bytes) -> Iterator[tuple[str, int]]:
        if not self._first_visit(address):
            return
        head = self._read(address, 8)
        if head[:4] != b"SNOD":
            raise MalformedError(f"the table of its group {path or '/'!r} is broken")
        count = int.from_bytes(head[6:8], "little")
        entries = self._read(address + 8, 40 * count)
        self._members_left -= count
        if self._members_left < 0:
            raise CapError(f"it has more than {_MOST_OBJECTS} names")
        for at in range(0, 40 * count, 40):
            begin = _number(entries, at)
            end = names.find(b"\0", begin, begin + _MOST_NAME)
            if not 0 <= begin < len(names) or end < 0:
                raise MalformedError(f"a name in its group {path or '/'!r} is broken")
            name = names[begin:end].decode("utf-8", "replace")
            kind = int.from_bytes(entries[at + 16 : at + 20], "little")
            if kind != 2:  # a symbolic link leads by name, not by address
                yield (f"{path}/{name}"[-4096:]).lstrip("/"), _number(entries, at + 8)

    def _names(self, path: str, heap: int) -> bytes:
        head = self._read(heap, 32)
        if head[:4] != b"HEAP":
            raise MalformedError(
                f"the names of its group {path or '/'!r} are not where they must be"
            )
        size = _number(head, 8)
        if size > _HEAP_BYTES:
            raise CapError(f"the names of its group {path or '/'!r} take {size} bytes")
        return self._read(_number(head, 24), size)

    def _note(self, path: str, messages: dict[int, bytes]) -> None:
        layout = messages[_LAYOUT]
        if len(layout) < 18 or layout[0] != 3 or layout[1] != 1:
            return  # compact (within its header) or in chunks: Keras writes neither
        address, size = _number(layout, 2), _number(layout, 10)
        if address == _NOWHERE:
            return
        if address + size > self._window.size:
            raise MalformedError(f"its array {path!r} runs over the end", reason=Reason.TRUNCATED)
        integer = _integer(messages.get(_TYPE, b""), messages.get(_SPACE, b""), size)
        self._datasets[path] = Dataset(address, size, integer)


def _integer(kind: bytes, space: bytes, size: int) -> tuple[int, bool] | None:
    """Class 0 is fixed point; bit 0 says big-endian, bit 3 signed."""
    if len(kind) < 8 or kind[0] & 0xF or kind[1] & 1 or len(space) < 2:
        return None
    width = int.from_bytes(kind[4:8], "little")
    return (width, bool(kind[1] & 8)) if width == size and width in (1, 2, 4, 8) else None


def whole_number(window: Window, dataset: Dataset) -> int | None:
    """The value of an array that is one integer; None for another, or a negative one."""
    if dataset.integer is None:
        return None
    raw = window.read(dataset.address, dataset.size)
    value = int.from_bytes(raw, "little", signed=dataset.integer[1])
    return value if 0 <= value < 1 << 63 else None


def _number(data: bytes, at: int) -> int:
    if at < 0 or at + 8 > len(data):
        raise MalformedError("one of its parts is too short")
    return int.from_bytes(data[at : at + 8], "little")
