"""TensorFlow's tensor bundle: an `.index` table and data files, a CRC-32C for each tensor.

Formats: `tensorflow/core/protobuf/tensor_bundle.proto` and `util/tensor_bundle`. Text tensors have
lengths before their bytes and a checksum over both. Read in one pass, in the order of the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from awscrt import checksums

from rtj_sidecar.checkpoints.formats import sstable
from rtj_sidecar.checkpoints.formats.base import Caps, FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.formats.proto import fields, varint
from rtj_sidecar.checkpoints.types import Reason

_TEXT, _OBJECTS = 7, (20, 21)
"""DT_STRING; DT_RESOURCE and DT_VARIANT, whose bytes are written in other ways."""
_INTEGERS = {3: 4, 9: 8, 22: 4, 23: 8}
"""DT_INT32, DT_INT64, DT_UINT32, DT_UINT64 -> bytes."""
_MOST_SHARDS = 1 << 20
_SMALL = 64 << 20


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where one tensor lies: `size` bytes from `offset` of data file `shard`."""

    name: str
    kind: int
    count: int
    shard: int
    offset: int
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """What an `.index` says."""

    shards: int
    tensors: tuple[Tensor, ...]

    def of_shard(self, shard: int) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.shard == shard)


def read_index(window: Window, *, caps: Caps) -> Bundle:
    """Raises MalformedError where it is no whole index of a bundle."""
    table = sstable.read_table(window, caps=caps)
    header = table.pop(b"", None)
    if header is None:
        raise MalformedError("it is a table, but none of TensorFlow's: it has no header")
    shards = next((value for number, value in fields(header) if number == 1), 0)
    if not isinstance(shards, int) or not 0 < shards <= _MOST_SHARDS:
        raise MalformedError(f"it states {shards} data files")
    tensors = sorted(
        (_tensor(name.decode("utf-8", "replace"), entry) for name, entry in table.items()),
        key=lambda tensor: (tensor.shard, tensor.offset),
    )
    if any(tensor.shard >= shards for tensor in tensors):
        raise MalformedError("it names a data file that it does not have")
    return Bundle(shards, tuple(tensors))


def _tensor(name: str, entry: bytes) -> Tensor:
    told: dict[int, int | bytes] = {}
    for number, value in fields(entry):
        told[number] = value
    values = {n: v for n, v in told.items() if isinstance(v, int)}
    shape = told.get(2)
    count = 1
    for number, value in fields(shape) if isinstance(shape, bytes) else ():
        if number == 2 and isinstance(value, bytes):
            sizes = [v for n, v in fields(value) if n == 1 and isinstance(v, int)]
            count *= sizes[0] if sizes else 0
        if count > 1 << 62:
            raise MalformedError(f"tensor {name[:200]!r} has an impossible shape")
    return Tensor(
        name=name,
        # One that is stored in slices has no bytes of its own: the slices are entries themselves.
        kind=_OBJECTS[0] if 7 in told else values.get(1, 0),
        count=count,
        shard=values.get(3, 0),
        offset=values.get(4, 0),
        size=values.get(5, 0),
        crc=values.get(6, 0),
    )


def check_data(window: Window, buffer: bytearray, *, tensors: tuple[Tensor, ...]) -> FileCheck:
    """One data file against what the index places in it: its size, and every tensor's CRC-32C."""
    needed = max((tensor.offset + tensor.size for tensor in tensors), default=0)
    if window.size < needed:
        raise MalformedError(
            f"it has {window.size} bytes, its index says {needed}", reason=Reason.TRUNCATED
        )
    checked = free = 0
    for tensor in tensors:
        if tensor.offset < free:
            raise MalformedError(f"tensor {tensor.name[:200]!r} overlaps the one before it")
        free = tensor.offset + tensor.size
        if tensor.kind in _OBJECTS or (tensor.kind == _TEXT and tensor.size > _SMALL):
            continue
        crc = _text_crc(window, tensor) if tensor.kind == _TEXT else _crc(window, tensor, buffer)
        if sstable.mask(crc) != tensor.crc:
            raise MalformedError(
                f"tensor {tensor.name[:200]!r} does not match its CRC-32C: its bytes were changed,"
                " never written, or are of another save",
                reason=Reason.CHECKSUM_MISMATCH,
            )
        checked += 1
    return FileCheck("tf-data", True, f"{checked} of {len(tensors)} tensors match their CRC-32C")


def _crc(window: Window, tensor: Tensor, buffer: bytearray) -> int:
    crc, at, end = 0, tensor.offset, tensor.offset + tensor.size
    while at < end:
        piece = window.read(at, min(len(buffer), end - at))
        crc = checksums.crc32c(piece, crc)
        at += len(piece)
    return crc


def _text_crc(window: Window, tensor: Tensor) -> int:
    """Lengths as varints, their masked checksum, then the texts; the checksum takes each length as
    four bytes (eight where it needs more), then the four stored ones, then the texts."""
    raw = window.read(tensor.offset, tensor.size)
    crc = at = total = 0
    if tensor.count > len(raw):
        raise MalformedError(f"tensor {tensor.name[:200]!r} states more texts than it has bytes")
    for _ in range(tensor.count):
        length, at = varint(raw, at)
        total += length
        crc = checksums.crc32c(length.to_bytes(4 if length < 1 << 32 else 8, "little"), crc)
    if at + 4 + total != len(raw) or sstable.mask(crc) != int.from_bytes(
        raw[at : at + 4], "little"
    ):
        raise MalformedError(
            f"tensor {tensor.name[:200]!r} does not match its CRC-32C",
            reason=Reason.CHECKSUM_MISMATCH,
        )
    return checksums.crc32c(raw[at:], crc)


def whole_numbers(window: Window, tensors: tuple[Tensor, ...]) -> Mapping[str, int]:
    """The single integers among these tensors of one data file, by name."""
    found: dict[str, int] = {}
    for tensor in tensors:
        if tensor.count == 1 and tensor.size == _INTEGERS.get(tensor.kind):
            raw = window.read(tensor.offset, tensor.size)
            found[tensor.name] = int.from_bytes(raw, "little", signed=tensor.kind in (3, 9))
    return found
