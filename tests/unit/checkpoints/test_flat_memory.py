"""A save of 64 GiB is read whole, once, in pieces of one size: counted on the real path.

The file is a hole, and what reads its pieces is played, for a real pass takes half a minute.
"""

from __future__ import annotations

import os
import struct
import tracemalloc
import types
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.handmade import pickled
from rtj_sidecar.checkpoints.formats import base, torchzip
from rtj_sidecar.checkpoints.formats.base import CHUNK, DEFAULT_CAPS, Window
from rtj_sidecar.stores import local

HUGE = 64 << 30
CRC = 0xC0FFEE
PIECE = 1 << 16
MEMORY = 24 << 20


class Played:
    """Counts what is read in pieces; smaller reads are real."""

    def __init__(self) -> None:
        self.total = 0
        self.largest = 0

    def preadv(self, descriptor: int, views: list[memoryview], offset: int) -> int:
        size = sum(len(view) for view in views)
        if size < PIECE:
            return os.preadv(descriptor, views, offset)
        self.total += size
        self.largest = max(self.largest, size)
        return size

    def os(self) -> types.SimpleNamespace:
        return types.SimpleNamespace(**{**vars(os), "preadv": self.preadv})


def crc32(piece: memoryview, crc: int) -> int:
    return zlib.crc32(piece, crc) if len(piece) < PIECE and not crc else CRC


def sparse_zip(path: Path) -> None:
    """A torch file with one storage of HUGE bytes, none of which is on the disk."""
    content = pickled({"step": 7})
    members = [("a/data.pkl", content, len(content), zlib.crc32(content))]
    members.append(("a/data/0", b"", HUGE, CRC))
    directory = b""
    with path.open("wb") as file:
        for name, body, size, crc in members:
            at, wide = file.tell(), struct.pack("<2H2Q", 1, 16, size, size)
            sizes = (crc, 0xFFFFFFFF, 0xFFFFFFFF)
            local_header = (b"PK\x03\x04", 45, 0, 0, 0, 0, *sizes, len(name), len(wide))
            file.write(struct.pack("<4s5H3L2H", *local_header) + name.encode() + wide + body)
            file.seek(size - len(body), os.SEEK_CUR)
            entry = (
                b"PK\x01\x02",
                45,
                45,
                0,
                0,
                0,
                0,
                *sizes,
                len(name),
                len(wide),
                0,
                0,
                0,
                0,
                at,
            )
            directory += struct.pack("<4s6H3L5H2L", *entry) + name.encode() + wide
        start, count = file.tell(), len(members)
        end = start + len(directory)
        file.write(directory)
        told = (count, count, len(directory), start)
        file.write(struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, *told))
        file.write(struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1))
        all_wide = (0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, *all_wide, 0))


def peak_of(call: Callable[[], None]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_torch_file_is_proved_by_every_byte_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, played = tmp_path / "step_7.pt", Played()
    sparse_zip(path)
    assert path.stat().st_size > HUGE > path.stat().st_blocks * 512
    monkeypatch.setattr(base, "os", played.os())
    monkeypatch.setattr(base, "zlib", types.SimpleNamespace(crc32=crc32))
    descriptor = os.open(path, os.O_RDONLY)

    def check() -> None:
        window = Window(descriptor, 0, path.stat().st_size)
        found = torchzip.check(window, bytearray(CHUNK), caps=DEFAULT_CAPS)
        assert (found.passed, found.facts["step"], found.facts["crc"]) == (True, 7, True)

    try:
        assert peak_of(check) < MEMORY
    finally:
        os.close(descriptor)
    assert (played.total, played.largest) == (HUGE, CHUNK)


def test_a_file_is_hashed_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SHA-256 and CRC64NVME together, as before and while it is sent."""
    path, played, hashed = tmp_path / "step_7.pt", Played(), [0, 0]
    with path.open("wb") as file:
        file.truncate(HUGE)

    class Digest:
        def update(self, block: memoryview) -> None:
            hashed[0] += len(block)

        def hexdigest(self) -> str:
            return "0" * 64

    def crc64(block: memoryview, crc: int) -> int:
        hashed[1] += len(block)
        return crc

    monkeypatch.setattr(local, "os", played.os())
    monkeypatch.setattr(local, "hashlib", types.SimpleNamespace(sha256=Digest))
    monkeypatch.setattr(local, "crc64", crc64)
    peak = peak_of(lambda: check_size(path))
    assert peak < MEMORY
    assert hashed == [HUGE, HUGE]
    assert (played.total, played.largest) == (HUGE, local.BLOCK)


def check_size(path: Path) -> None:
    assert local.hash_file(path)[0] == HUGE
