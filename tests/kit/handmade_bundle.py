"""TensorFlow's tensor bundle, written by hand: an `.index` table and its data files."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from awscrt import checksums

FLOAT, TEXT, LONG = 1, 7, 9


def masked(data: bytes) -> int:
    return _mask(checksums.crc32c(data))


def _mask(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def bundle(prefix: Path, tensors: Mapping[str, bytes | int | str], *, shards: int = 1) -> None:
    """Floats as bytes, 64-bit integers, and one text each; dealt out over the data files in turn.
    The data first, the index last, as TensorFlow does."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    data = [b""] * shards
    entries = [(b"", b"\x08" + varint(shards) + b"\x1a\x02\x08\x01")]
    for at, name in enumerate(sorted(tensors)):
        shard, value = at % shards, tensors[name]
        kind, raw, crc = _encoded(value)
        shape = b"" if kind != FLOAT else _field(2, _field(2, b"\x08" + varint(len(raw) // 4)))
        entry = b"\x08" + varint(kind) + (shape or _field(2, b""))
        entry += b"\x18" + varint(shard) if shard else b""
        entry += b"\x20" + varint(len(data[shard])) + b"\x28" + varint(len(raw))
        entries.append((name.encode(), entry + b"\x35" + struct.pack("<I", crc)))
        data[shard] += raw
    for shard, content in enumerate(data):
        name = f"{prefix.name}.data-{shard:05d}-of-{shards:05d}"
        (prefix.parent / name).write_bytes(content)
    (prefix.parent / f"{prefix.name}.index").write_bytes(table(entries))


def _encoded(value: bytes | int | str) -> tuple[int, bytes, int]:
    if isinstance(value, bytes):
        return FLOAT, value, masked(value)
    if isinstance(value, int):
        raw = struct.pack("<q", value)
        return LONG, raw, masked(raw)
    text = value.encode()
    crc = checksums.crc32c(struct.pack("<I", len(text)))
    stored = struct.pack("<I", _mask(crc))
    return TEXT, varint(len(text)) + stored + text, _mask(checksums.crc32c(stored + text, crc))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def table(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A sorted string table of one data block."""
    out = b""

    def block(items: Sequence[tuple[bytes, bytes]]) -> bytes:
        nonlocal out
        content = b"".join(
            b"\0" + varint(len(key)) + varint(len(value)) + key + value for key, value in items
        )
        content += struct.pack("<II", 0, 1)
        handle = varint(len(out)) + varint(len(content))
        out += content + b"\0" + struct.pack("<I", masked(content + b"\0"))
        return handle

    data = block(sorted(entries))
    meta = block([])
    index = block([(max(key for key, _ in entries) + b"\xff", data)])
    footer = (meta + index).ljust(40, b"\0")
    return out + footer + struct.pack("<Q", 0xDB4775248B80FB57)


def state_text(*names: str) -> str:
    """What the file `checkpoint` says: the newest first, then all."""
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    lines += [f"all_model_checkpoint_timestamps: {1.5 + at}" for at in range(len(names))]
    return "\n".join([*lines, "last_preserved_timestamp: 1.5", ""])
