"""Zip archives, as torch.save, DCP and Keras write them: proves every byte of every member.

The loaders of the frameworks do not check the CRC-32 that their own writers stored, so a zeroed
block loads silently; this reads each member once and does check. Formulas are those of the zip
file format specification (APPNOTE 6.3). Memory is bounded by the central directory's cap; nothing
is ever extracted to a disk.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from rtj_sidecar.checkpoints.formats.base import CapError, Caps, MalformedError, Window
from rtj_sidecar.checkpoints.types import Reason

_EOCD = struct.Struct("<4s4H2LH")
_EOCD64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_STORED, _DEFLATED = 0, 8
_UNREADABLE = 0x1 | 0x20 | 0x40
"""Flags: encrypted, a patch to another file, strongly encrypted."""
_NEWEST_VERSION = 63
"""Of the format, in tenths, that any reader knows."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an archive. `offset` of its local header, relative to the archive."""

    name: str
    offset: int
    packed: int
    size: int
    crc: int
    method: int


@dataclass(frozen=True, slots=True)
class Archive:
    """One archive within a window: `start` and `size` say where, members are sorted by offset."""

    start: int
    size: int
    members: tuple[Member, ...]
    directory: int
    """Where the central directory begins, relative to the archive."""


def read_archive(window: Window, *, caps: Caps) -> Archive:
    """The archive that ends exactly where the window ends (it may begin later than the window).

    Raises MalformedError: Truncated where there is no end record, Malformed else.
    """
    end = _end_record(window)
    _, disk, first, here, count, size, offset, _ = _EOCD.unpack(window.read(end, _EOCD.size))
    directory_end = end
    locator = end - _LOCATOR.size
    if locator >= _EOCD64.size and window.read(locator, 4) == b"PK\x06\x07":
        directory_end = locator - _EOCD64.size
        record = _EOCD64.unpack(window.read(directory_end, _EOCD64.size))
        if record[0] != b"PK\x06\x06" or record[1] != _EOCD64.size - 12:
            raise MalformedError("its zip64 end record is not where it must be")
        disk, first, here, count, size, offset = record[4:]
    if disk or first or here != count:
        raise MalformedError("it is one part of an archive split over several")
    start = directory_end - size - offset
    if start < 0:
        raise MalformedError(
            f"its directory says that {-start} bytes before it are missing", reason=Reason.TRUNCATED
        )
    if size > caps.zip_directory_bytes:
        raise CapError(f"its directory of {size} bytes is larger than the cap")
    if count > caps.zip_members and size >= count * _CENTRAL.size:
        raise CapError(f"its {count} members are more than the cap")
    members = _members(window.read(start + offset, size), count)
    return Archive(start, window.size - start, members, offset)


def _end_record(window: Window) -> int:
    if window.size < _EOCD.size:
        raise MalformedError("it is too short for a zip file", reason=Reason.TRUNCATED)
    end = window.size - _EOCD.size
    if window.read(end, 4) == b"PK\x05\x06" and window.read(window.size - 2, 2) == b"\0\0":
        return end
    base = max(0, window.size - _EOCD.size - 0xFFFF)
    tail = window.read(base, window.size - base)
    found = tail.rfind(b"PK\x05\x06")
    while found >= 0:
        comment = int.from_bytes(tail[found + 20 : found + 22], "little")
        if found + _EOCD.size + comment == len(tail):
            return base + found
        found = tail.rfind(b"PK\x05\x06", 0, found)
    raise MalformedError(
        "it has no zip end record where it ends: cut off, or still being written",
        reason=Reason.TRUNCATED,
    )


def _members(directory: bytes, count: int) -> tuple[Member, ...]:
    if count > len(directory) // _CENTRAL.size:
        raise MalformedError(f"its directory is too short for {count} members")
    members, names, at = [], set(), 0
    for _ in range(count):
        if at + _CENTRAL.size > len(directory):
            raise MalformedError("its directory ends in the middle of an entry")
        fields = _CENTRAL.unpack_from(directory, at)
        flags, method, crc, packed, size = fields[3], fields[4], fields[7], fields[8], fields[9]
        name_size, extra_size, comment_size, offset = fields[10], fields[11], fields[12], fields[16]
        if fields[0] != b"PK\x01\x02":
            raise MalformedError("its directory has an entry without a signature")
        at += _CENTRAL.size
        raw = directory[at : at + name_size]
        extra = directory[at + name_size : at + name_size + extra_size]
        at += name_size + extra_size + comment_size
        size, packed, offset = _zip64(extra, size, packed, offset)
        name = raw.decode("utf-8", "surrogateescape")
        if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/"):
            raise MalformedError(f"member {name!r} leaves the archive", reason=Reason.UNSAFE_ENTRY)
        if name in names:
            raise MalformedError(f"member {name!r} is there twice")
        unknown = flags & _UNREADABLE or fields[2] & 0xFF > _NEWEST_VERSION
        if unknown or method not in (_STORED, _DEFLATED):
            raise MalformedError(f"member {name!r} is encrypted or packed in an unknown way")
        if method == _STORED and packed != size:
            raise MalformedError(f"member {name!r} states two sizes")
        names.add(name)
        members.append(Member(name, offset, packed, size, crc, method))
    return tuple(sorted(members, key=lambda member: member.offset))


def _zip64(extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
    """The 64-bit values of the extra field 0x0001, for those that the entry has none of."""
    if 0xFFFFFFFF not in (size, packed, offset):
        return size, packed, offset
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            field = extra[at + 4 : at + 4 + length]
            values = iter(struct.iter_unpack("<Q", field[: len(field) // 8 * 8]))
            wide = [next(values, (v,))[0] if v == 0xFFFFFFFF else v for v in (size, packed, offset)]
            return wide[0], wide[1], wide[2]
        at += 4 + length
    return size, packed, offset


def data_offset(window: Window, archive: Archive, member: Member) -> int:
    """Where the member's bytes begin in the window; checks its local header."""
    header = archive.start + member.offset
    fields = _LOCAL.unpack(window.read(header, _LOCAL.size))
    if fields[0] != b"PK\x03\x04":
        raise MalformedError(f"member {member.name!r} has no header where the directory says")
    name = window.read(header + _LOCAL.size, fields[9])
    if name.decode("utf-8", "surrogateescape") != member.name:
        raise MalformedError(f"member {member.name!r} has another name in its header")
    begin: int = header + _LOCAL.size + fields[9] + fields[10]
    if begin + member.packed > archive.start + archive.directory:
        raise MalformedError(f"member {member.name!r} runs into the directory")
    return begin


def check_members(window: Window, archive: Archive, *, buffer: bytearray, caps: Caps) -> bool:
    """Reads every member once, in order, and compares its CRC-32.

    Returns False where the writer stored no CRCs at all (all zero, although members have bytes):
    then only sizes and headers were checked. Raises MalformedError that names the member.
    """
    stored = any(member.crc for member in archive.members)
    if not stored and any(member.size for member in archive.members):
        for member in archive.members:
            data_offset(window, archive, member)
        return False
    _no_bomb(archive, caps)
    free = 0
    for member in archive.members:
        if member.offset < free:
            raise MalformedError(f"member {member.name!r} overlaps the one before it")
        begin = data_offset(window, archive, member)
        free = begin - archive.start + member.packed
        if member.method == _STORED:
            crc = window.crc32(begin, member.packed, buffer)
        else:
            crc = _inflated_crc(window, begin, member)
        if crc != member.crc:
            raise MalformedError(
                f"member {member.name!r} does not match its CRC-32"
                f" ({crc:08x}, not {member.crc:08x}): its bytes were changed or never written",
                reason=Reason.CHECKSUM_MISMATCH,
            )
    return True


def read_member(window: Window, archive: Archive, member: Member, *, limit: int) -> bytes:
    """A member's content, checked; MalformedError where it is larger than `limit` bytes."""
    if max(member.size, member.packed) > limit:
        raise CapError(f"member {member.name!r} of {member.size} bytes is above the cap")
    begin = data_offset(window, archive, member)
    content = window.read(begin, member.packed)
    if member.method == _DEFLATED:
        inflate = zlib.decompressobj(-15)
        try:
            content = inflate.decompress(content, member.size + 1)
        except zlib.error as error:
            raise MalformedError(f"member {member.name!r} cannot be unpacked: {error}") from error
    if len(content) != member.size or (member.crc and zlib.crc32(content) != member.crc):
        raise MalformedError(
            f"member {member.name!r} does not match its CRC-32", reason=Reason.CHECKSUM_MISMATCH
        )
    return content


def _no_bomb(archive: Archive, caps: Caps) -> None:
    """Over all packed members together: many small bombs take as long as a large one."""
    packed = [member for member in archive.members if member.method == _DEFLATED]
    before, after = sum(m.packed for m in packed), sum(m.size for m in packed)
    if after > max(caps.inflated_bytes, 200 * before):
        worst = max(packed, key=lambda member: member.size)
        raise MalformedError(
            f"member {worst.name!r} claims {worst.size} bytes from {worst.packed}: a zip bomb",
            reason=Reason.UNSAFE_ENTRY,
        )


def _inflated_crc(window: Window, begin: int, member: Member) -> int:
    inflate = zlib.decompressobj(-15)
    crc = total = at = 0
    try:
        while not inflate.eof:
            packed = inflate.unconsumed_tail
            if not packed:
                count = min(1 << 20, member.packed - at)
                if not count:
                    break
                packed = window.read(begin + at, count)
                at += count
            piece = inflate.decompress(packed, 1 << 20)
            total += len(piece)
            crc = zlib.crc32(piece, crc)
            if total > member.size:
                break
    except zlib.error as error:
        raise MalformedError(f"member {member.name!r} cannot be unpacked: {error}") from error
    if total != member.size:
        raise MalformedError(f"member {member.name!r} does not unpack to its {member.size} bytes")
    return crc
