"""Sorted string tables as LevelDB defines them and TensorFlow writes its `.index` files.

Every block carries a masked CRC-32C, and the footer at the end says where they are: a table proves
itself. Format: LevelDB's `doc/table_format.md`. Memory is bounded by the caps.
"""

from __future__ import annotations

from awscrt import checksums

from rtj_sidecar.checkpoints.formats.base import CapError, Caps, MalformedError, Window
from rtj_sidecar.checkpoints.formats.proto import varint
from rtj_sidecar.checkpoints.types import Reason

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5
"""After each block: one byte that says how it is packed, four of its checksum."""
_MASK_DELTA = 0xA282EAD8
_KEY_BYTES, _ALL_KEY_BYTES = 65536, 64 << 20
"""Keys share prefixes, so that a small block could unfold to any size."""
_BLOCK_ENTRIES = 100_000


def masked_crc32c(data: bytes, previous: int = 0) -> int:
    """The checksum as it is stored."""
    return mask(checksums.crc32c(data, previous))


def mask(crc: int) -> int:
    """Rotated and shifted, so that bytes which hold a checksum can have one themselves."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def read_table(window: Window, *, caps: Caps) -> dict[bytes, bytes]:
    """All entries, every block checked. Raises MalformedError (Truncated without a footer)."""
    if window.size > caps.json_bytes:
        raise CapError(f"its {window.size} bytes are above the cap")
    if window.size < _FOOTER:
        raise MalformedError("it is too short for an index", reason=Reason.TRUNCATED)
    footer = window.read(window.size - _FOOTER, _FOOTER)
    if int.from_bytes(footer[-8:], "little") != _MAGIC:
        raise MalformedError(
            "it has no footer where it ends: cut off, or still being written",
            reason=Reason.TRUNCATED,
        )
    _, at = _handle(footer, 0)
    index, _ = _handle(footer, at)
    entries: dict[bytes, bytes] = {}
    free = 0
    for _, value in _entries(_block(window, index)):
        place, _ = _handle(value, 0)
        # Blocks lie one after the other: a table that names one twice would cost without end.
        if place[0] < free:
            raise MalformedError("its blocks overlap")
        free = place[0] + place[1]
        entries.update(_entries(_block(window, place)))
        if len(entries) > caps.table_entries:
            raise CapError(f"it holds more than {caps.table_entries} entries")
    return entries


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return (offset, size), at


def _block(window: Window, place: tuple[int, int]) -> bytes:
    offset, size = place
    raw = window.read(offset, size + _TRAILER)
    content, packed, stored = raw[:size], raw[size], raw[size + 1 :]
    if masked_crc32c(raw[: size + 1]) != int.from_bytes(stored, "little"):
        raise MalformedError(
            f"its block at {offset} does not match its CRC-32C", reason=Reason.CHECKSUM_MISMATCH
        )
    if packed:
        raise CapError("its blocks are compressed")
    return content


def _entries(block: bytes) -> list[tuple[bytes, bytes]]:
    if len(block) < 4:
        raise MalformedError("one of its blocks is too short")
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise MalformedError("one of its blocks states more restarts than it holds")
    found: list[tuple[bytes, bytes]] = []
    at, key, spent = 0, b"", 0
    while at < end:
        shared, at = varint(block, at)
        fresh, at = varint(block, at)
        length, at = varint(block, at)
        if shared > len(key) or at + fresh + length > end:
            raise MalformedError("an entry in it leaves its block")
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        spent += len(key)
        if len(key) > _KEY_BYTES or spent > _ALL_KEY_BYTES:
            raise CapError("its names are longer than the cap")
        found.append((key, block[at : at + length]))
        if len(found) > _BLOCK_ENTRIES:
            raise CapError("one of its blocks holds more entries than the cap")
        at += length
    return found
