"""How one file of a directory store comes to be: written beside its place, locked, its errors told.

Must never leave a temporary name behind, and never show half of an object under its own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from rtj_api.reasons import Reason

from rtj_sidecar.stores.base import StoreProblem

HIDDEN = ".rtj-store-"  # names that begin so are ours and no objects
_LOCK = f"{HIDDEN}lock"


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """One holder at a time, also among processes (flock(2))."""
    descriptor = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def temporary_beside(target: Path) -> Iterator[tuple[Path, int]]:
    """A new file beside the target; its name is gone at the end, whatever happened."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f"{HIDDEN}{uuid.uuid4().hex}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        yield temporary, descriptor
    finally:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)


def problem_of(root: Path, key: str, error: OSError) -> StoreProblem:
    """With the remedy."""
    where = f"{root} ({key}): {error.strerror or error}"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StoreProblem(
                Reason.DISK_FULL, f"the store {where}; free space there", transient=True
            )
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return StoreProblem(
                Reason.CREDENTIALS_REFUSED,
                f"the store {where}; let the sidecar's user write there",
            )
        case _:
            return StoreProblem(
                Reason.STORE_UNREACHABLE,
                f"the store {where}; check that the volume is mounted and healthy",
                transient=True,
            )


def etag_of(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
