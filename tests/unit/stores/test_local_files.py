"""Room for a file that is to be fetched: a hint to the file system, which changes no outcome."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rtj_sidecar.stores import local
from rtj_sidecar.stores.local import reserve, write_at

SIZE = 8 << 20


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "new", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def can_reserve(descriptor: int) -> bool:
    """Whether this file system can, by the kernel's own word."""
    call = ctypes.CDLL(None).fallocate
    done = call(descriptor, ctypes.c_int(1), ctypes.c_int64(0), ctypes.c_int64(4096))
    os.ftruncate(descriptor, 0)
    return bool(done == 0)


def test_blocks_are_taken_and_the_length_stays(descriptor: int) -> None:
    expected = SIZE if can_reserve(descriptor) else 0
    reserve(descriptor, size=SIZE)
    state = os.fstat(descriptor)
    assert state.st_size == 0
    assert state.st_blocks * 512 >= expected
    write_at(descriptor, b"end", 4096)
    assert os.fstat(descriptor).st_size == 4099
    assert os.pread(descriptor, 8192, 0) == bytes(4096) + b"end"


def test_what_does_not_fit_takes_no_block(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A size that is wrong must not fill a trainer's disk."""
    few = SimpleNamespace(f_bavail=SIZE // 4096 - 1, f_frsize=4096)
    monkeypatch.setattr(os, "fstatvfs", lambda _: few)
    reserve(descriptor, size=SIZE)
    assert os.fstat(descriptor).st_blocks == 0


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSPC, errno.EINTR])
def test_a_file_system_that_cannot_is_no_error(
    descriptor: int, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    asked: list[Any] = []

    def refuses(*arguments: Any) -> int:
        asked.append(arguments)
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(local, "_FALLOCATE", refuses)
    reserve(descriptor, size=SIZE)
    reserve(descriptor, size=local.BLOCK - 1)
    assert len(asked) == 1
    monkeypatch.setattr(local, "_FALLOCATE", None)
    reserve(descriptor, size=SIZE)
    write_at(descriptor, b"all the same", 0)
    assert os.pread(descriptor, 100, 0) == b"all the same"
