"""Reading and writing local files in bounded memory, for every driver.

Must never map a file: the trainer may truncate what we read, and a mapped page that is gone kills
the process.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rtj_sidecar.stores.base import SourceChanged, check_cancel

BLOCK = 1 << 20
# Linux's; elsewhere fsync has it all to do, and blocks are found while they are written.
_SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None)
_SYNC_FILE_RANGE_WRITE = 2
_FALLOCATE = getattr(ctypes.CDLL(None), "fallocate", None)
_FALLOC_FL_KEEP_SIZE = 1
_FICLONE = 0x40049409  # _IOW(0x94, 9, int), linux/fs.h
_CANNOT_SHARE = {
    errno.EOPNOTSUPP,
    errno.ENOTTY,
    errno.EXDEV,
    errno.EINVAL,
    errno.EPERM,
    errno.ENOSYS,
    errno.EMLINK,
}


@dataclass(frozen=True, slots=True)
class Source:
    """An open local file and the state it must keep while it is read."""

    descriptor: int
    path: str
    size: int
    inode: int
    mtime_ns: int

    def check(self) -> None:
        """Raises SourceChanged where the file was written since it was opened.

        ctime is left out: a hard link made or removed moves it and changes no byte.
        """
        now = os.fstat(self.descriptor)
        if (now.st_size, now.st_mtime_ns) != (self.size, self.mtime_ns):
            raise SourceChanged(self.path, "written while it was read")


@contextlib.contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open for reading; checks on a clean exit that the file kept its state."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        seen = os.fstat(descriptor)
        source = Source(descriptor, str(path), seen.st_size, seen.st_ino, seen.st_mtime_ns)
        yield source
        source.check()
    finally:
        os.close(descriptor)


def blocks(source: Source, *, start: int, end: int, buffer: bytearray) -> Iterator[memoryview]:
    """The bytes from `start` to `end`, in pieces of at most the buffer, which each piece reuses.

    Raises SourceChanged where the file ends early.
    """
    view = memoryview(buffer)
    offset = start
    while offset < end:
        count = os.preadv(source.descriptor, [view[: min(len(view), end - offset)]], offset)
        if count == 0:
            raise SourceChanged(source.path, f"ends at {offset}, expected {source.size} bytes")
        yield view[:count]
        offset += count


class HashBeside:
    """SHA-256 in a thread of its own, over blocks that are lent to it in order.

    It is the slowest step of an upload, so nothing else shares its thread. Leave by the context
    manager, which ends the thread.
    """

    def __init__(self, *, buffers: int = 6) -> None:
        self._digest = hashlib.sha256()
        self._free: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
        self._lent: queue.SimpleQueue[tuple[bytearray, int] | None] = queue.SimpleQueue()
        for _ in range(buffers):
            self._free.put(bytearray(BLOCK))
        self._thread = threading.Thread(target=self._run, name="rtj-sha256", daemon=True)

    def __enter__(self) -> HashBeside:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def blocks(self, source: Source, *, start: int, end: int) -> Iterator[memoryview]:
        """As `blocks`, each piece hashed too; it must not be changed, and is valid until the next.

        Raises SourceChanged.
        """
        offset = start
        while offset < end:
            buffer = self._free.get()
            piece = next(blocks(source, start=offset, end=min(end, offset + BLOCK), buffer=buffer))
            offset += len(piece)
            self._lent.put((buffer, len(piece)))
            yield piece

    def hexdigest(self) -> str:
        """Of all blocks lent; no more may be lent after it."""
        self._end()
        return self._digest.hexdigest()

    def _end(self) -> None:
        self._lent.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (lent := self._lent.get()) is not None:
            buffer, length = lent
            self._digest.update(memoryview(buffer)[:length])
            self._free.put(buffer)


def crc64(data: bytes | memoryview, previous: int = 0) -> int:
    # Imported late: it takes a tenth of a second, and a gang waits for a new pod's first report.
    from awscrt import checksums

    return int(checksums.crc64nvme(data, previous))


def crc64_text(value: int) -> str:
    """A CRC64NVME as S3 writes it: base64 of the eight bytes, most significant first."""
    return base64.b64encode(value.to_bytes(8, "big")).decode()


def hash_file(path: Path, *, cancel: threading.Event | None = None) -> tuple[int, str, str]:
    """(size, sha256, crc64nvme) of a local file, read once."""
    digest, crc, buffer = hashlib.sha256(), 0, bytearray(BLOCK)
    with open_source(path) as source:
        for block in blocks(source, start=0, end=source.size, buffer=buffer):
            check_cancel(cancel)
            digest.update(block)
            crc = crc64(block, crc)
        return source.size, digest.hexdigest(), crc64_text(crc)


def share(source: Path, target: Path) -> bool:
    """Make the new file `target` of the source's bytes without copying them: a reflink, else a
    hard link. False where the file system can do neither. Raises OSError for the source's trouble.

    A hard link shares what is written in place later, too: the caller hashes, and asks again.
    """
    with open_source(source) as found:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.ioctl(descriptor, _FICLONE, found.descriptor)
            os.fchmod(descriptor, 0o644)
            return True
        except OSError as error:
            os.unlink(target)
            if error.errno not in _CANNOT_SHARE:
                raise
        finally:
            os.close(descriptor)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno in _CANNOT_SHARE:
            return False
        raise
    return True


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """All of it: pwrite(2) may take less."""
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count


def start_writeback(descriptor: int, *, start: int, end: int) -> None:
    """Let the kernel begin to write a range out; the fsync after it then finds less to do.

    Waits for nothing and proves nothing: an error is for fsync to tell.
    """
    if _SYNC_FILE_RANGE is not None and end > start:
        _SYNC_FILE_RANGE(
            descriptor,
            ctypes.c_int64(start),
            ctypes.c_int64(end - start),
            ctypes.c_uint(_SYNC_FILE_RANGE_WRITE),
        )


def reserve(descriptor: int, *, size: int) -> None:
    """Take the blocks of a new file of that size at once: found one by one while they are written,
    they cost as much as the copy of the bytes.

    Its length stays: it grows with what is written. Proves nothing, and takes no block where they
    do not all fit: that the disk is full is for the write to tell. Not posix_fallocate(3), which
    writes every block where the file system cannot do it.
    """
    if _FALLOCATE is None or size < BLOCK:
        return
    room = os.fstatvfs(descriptor)
    if size <= room.f_bavail * room.f_frsize:
        _FALLOCATE(
            descriptor,
            ctypes.c_int(_FALLOC_FL_KEEP_SIZE),
            ctypes.c_int64(0),
            ctypes.c_int64(size),
        )


def fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
