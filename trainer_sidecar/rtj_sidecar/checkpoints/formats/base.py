"""What every format checker shares: a bounded window on a descriptor, caps, and its answer."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from rtj_sidecar.checkpoints.types import Reason

CHUNK = 4 * 1024 * 1024


class MalformedError(ValueError):
    """The bytes are not what their format says; the message names what is wrong and where."""

    def __init__(self, message: str, *, reason: Reason = Reason.MALFORMED) -> None:
        super().__init__(message)
        self.reason = reason


class CapError(MalformedError):
    """It may be whole, but reading it would cost more than the caps allow: unknown, not broken."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits that a hostile or broken file runs into before it costs memory or time."""

    pickle_bytes: int = 64 << 20
    pickle_operations: int = 4_000_000
    pickle_seconds: float = 60.0
    zip_directory_bytes: int = 64 << 20
    zip_members: int = 500_000
    """In one archive; a member takes about 400 bytes of memory."""
    archives: int = 4_000_000
    """In one shard file, one after the other."""
    inflated_bytes: int = 64 << 20
    """Most bytes one compressed member may unfold to when its content is wanted."""
    safetensors_header_bytes: int = 100_000_000
    """The limit of the safetensors library itself."""
    json_bytes: int = 64 << 20
    json_values: int = 2_000_000
    """Commas and brackets in one text: what its values take in memory, not its bytes."""
    table_entries: int = 1_000_000


DEFAULT_CAPS = Caps()


@dataclass(frozen=True, slots=True)
class Window:
    """`size` bytes from `start` of an open descriptor. Reads never move a file position."""

    descriptor: int
    start: int
    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes at `offset` of the window; MalformedError (Truncated) if short."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise MalformedError(
                f"bytes {offset}..{offset + length} lie outside its {self.size} bytes",
                reason=Reason.TRUNCATED,
            )
        pieces = []
        while length:
            piece = os.pread(self.descriptor, min(length, 1 << 30), self.start + offset)
            if not piece:
                raise MalformedError("it became shorter while it was read", reason=Reason.TRUNCATED)
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def part(self, offset: int, length: int) -> Window:
        """A window on a part of this one; MalformedError (Truncated) where it does not fit."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise MalformedError(
                f"bytes {offset}..{offset + length} lie outside its {self.size} bytes",
                reason=Reason.TRUNCATED,
            )
        return Window(self.descriptor, self.start + offset, length)

    def crc32(self, offset: int, length: int, buffer: bytearray) -> int:
        """CRC-32 of a range, read once in pieces of `len(buffer)` bytes."""
        view = memoryview(buffer)
        crc = 0
        while length:
            piece = view[: min(length, len(view))]
            count = os.preadv(self.descriptor, [piece], self.start + offset)
            if not count:
                raise MalformedError("it became shorter while it was read", reason=Reason.TRUNCATED)
            crc = zlib.crc32(piece[:count], crc)
            offset += count
            length -= count
        return crc


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What one file says about itself.

    `passed`: True, the container proved itself; False, it is broken (`detail` says where); None,
    the format has nothing to check itself by. `facts` are plain JSON values.
    """

    format: str
    passed: bool | None
    detail: str
    reason: Reason = Reason.OK
    facts: Mapping[str, object] = field(default_factory=dict)
