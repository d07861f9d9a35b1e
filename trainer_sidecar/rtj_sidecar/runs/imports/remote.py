"""Looking into files that lie in a bucket, by ranges: only what a layout asks for is brought.

Stands in for `checkpoints.reader.Reader` where the layouts recognise saves. The proof of a save is
never made here: its files are brought to a disk for that.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from rtj_api.reasons import Reason as Problem

from rtj_sidecar.checkpoints.formats.base import (
    CHUNK,
    DEFAULT_CAPS,
    CapError,
    Caps,
    FileCheck,
    MalformedError,
)
from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.reader import StampCache
from rtj_sidecar.checkpoints.types import FileEntry, Reason
from rtj_sidecar.stores.base import ObjectMissing, Store, StoreProblem

_AHEAD = 64 << 10
_MOST_PEEKED = 256 << 20
"""Bytes of one object that a look may bring. What needs more is proved once it is on a disk."""


@dataclass
class _Object:
    """One object, read in pieces that are kept for the next question."""

    store: Store
    key: str
    size: int
    pieces: dict[tuple[int, int], bytes] = field(default_factory=dict)
    brought: int = 0

    def read(self, start: int, length: int) -> bytes:
        for (first, end), piece in self.pieces.items():
            if first <= start and start + length <= end:
                return piece[start - first : start - first + length]
        # Formats read a little at the end, then a little before it: take some more at once.
        first = max(0, min(start, self.size - _AHEAD)) if length < _AHEAD else start
        first = start if start + _AHEAD < self.size else first
        end = min(self.size, max(start + length, first + _AHEAD))
        self.brought += end - first
        if self.brought > _MOST_PEEKED:
            raise CapError(f"more than {_MOST_PEEKED} bytes would have to be brought to look at it")
        try:
            piece = self.store.read(self.key, start=first, end=end)
        except ObjectMissing as error:
            raise FileNotFoundError(str(error)) from error
        if len(piece) != end - first:
            raise MalformedError("it became shorter while it was read", reason=Reason.TRUNCATED)
        self.pieces[(first, end)] = piece
        return piece[start - first : start - first + length]


@dataclass(frozen=True, slots=True)
class RemoteWindow:
    """As `formats.base.Window`, on an object."""

    of: _Object
    start: int
    size: int

    def read(self, offset: int, length: int) -> bytes:
        self._check(offset, length)
        return self.of.read(self.start + offset, length) if length else b""

    def part(self, offset: int, length: int) -> RemoteWindow:
        self._check(offset, length)
        return RemoteWindow(self.of, self.start + offset, length)

    def crc32(self, offset: int, length: int, buffer: bytearray) -> int:
        crc = 0
        for at in range(offset, offset + length, len(buffer)):
            crc = zlib.crc32(self.read(at, min(len(buffer), offset + length - at)), crc)
        return crc

    def _check(self, offset: int, length: int) -> None:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise MalformedError(
                f"bytes {offset}..{offset + length} lie outside its {self.size} bytes",
                reason=Reason.TRUNCATED,
            )


class RemoteReader:
    """As `checkpoints.reader.Reader`, for recognising only. `key_of`: entry's path -> key."""

    def __init__(
        self, store: Store, *, key_of: Callable[[str], str], caps: Caps = DEFAULT_CAPS
    ) -> None:
        self._store = store
        self._key_of = key_of
        self.cache = StampCache()
        self.caps = caps
        self.memo: dict[str, object] = {}

    def ask(
        self,
        entry: FileEntry,
        question: Hashable,
        answer: Callable[[RemoteWindow, bytearray], FileCheck],
    ) -> FileCheck:
        known = self.cache.get(entry.stamp, question)
        if isinstance(known, FileCheck):
            return known
        try:
            found = answer(RemoteWindow(self._object(entry), 0, entry.size), bytearray(CHUNK))
        except CapError as error:
            found = FileCheck("unread", None, f"{entry.path}: {error}: not looked into")
        except MalformedError as error:
            found = FileCheck("broken", False, f"{entry.path}: {error}", error.reason)
        except StoreProblem as problem:
            if problem.transient or problem.reason != Problem.STORE_UNSUPPORTED:
                raise
            # An object in an archive: it is there and cannot be read.
            found = FileCheck("unread", None, f"{entry.path}: {problem.message}")
        self.cache.put(entry.stamp, question, found)
        return found

    def small(self, entry: FileEntry, *, limit: int = 65536) -> bytes:
        if entry.size > limit:
            raise UnsafePathError(f"{entry.path!r} is larger than {limit} bytes")
        return self._object(entry).read(0, entry.size) if entry.size else b""

    def _object(self, entry: FileEntry) -> _Object:
        return _Object(self._store, self._key_of(entry.path), entry.size)
