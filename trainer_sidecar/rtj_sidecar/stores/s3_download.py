"""Large files from a store in bounded memory, proved in the same pass.

Several ranges arrive at once, each block checked (CRC64NVME) and written in place while the
processor's cache still holds it. A broken connection goes on where it broke. A file whose CRC64NVME
is known is proved by that and its size: it is the server's own checksum of the upload, catches
every damage but one in 2^64, and needs no order, so all cores share it. SHA-256 proves the rest,
and only SHA-256 condemns. Must never leave a file that was not proved.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from awscrt import checksums

from rtj_sidecar.stores.answers import Absent
from rtj_sidecar.stores.base import (
    ContentMismatch,
    ObjectMissing,
    Progress,
    changing,
    check_cancel,
)
from rtj_sidecar.stores.local import BLOCK, crc64, crc64_text, reserve, start_writeback, write_at
from rtj_sidecar.stores.s3_stream import RangeIgnored

RANGE = 32 << 20


class Reads(Protocol):
    """Where the bytes come from: `s3_stream.Streams`, and that of `objects`."""

    def read(
        self,
        key: str,
        *,
        buffer: bytearray,
        start: int = 0,
        end: int | None = None,
        size: int | None = None,
        cancel: threading.Event | None,
    ) -> Iterator[memoryview]:
        """The object's bytes from `start` to `end`, in pieces that each reuse `buffer`.

        With `size`, an object that is of another size may raise ContentMismatch. Raises Absent,
        RangeIgnored, Cancelled, StoreProblem.
        """
        ...


class Downloads:
    """Downloads over `streams`, several ranges at once in `pool`."""

    def __init__(self, *, streams: Reads, pool: concurrent.futures.ThreadPoolExecutor) -> None:
        self._streams = streams
        self._pool = pool

    def download(
        self,
        key: str,
        path: Path,
        *,
        size: int,
        sha256: str,
        crc64nvme: str | None,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> None:
        # Twice: bytes damaged on the way must not condemn a good object.
        before = ""
        for last in (False, True):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                reserve(descriptor, size=size)
                crc, got = self._fetch(
                    key, descriptor, size, crc64nvme is None, progress=progress, cancel=cancel
                )
                proved = crc64nvme is not None and crc64_text(crc) == crc64nvme
                if not proved:
                    got = got or _sha256(descriptor, 0, size, cancel=cancel)
                if proved or got == sha256:
                    os.fsync(descriptor)
                    return
                if last and got != before:
                    raise changing(key)
                before = got
                if last:
                    raise ContentMismatch(key, expected=f"SHA-256 {sha256}", got=f"SHA-256 {got}")
                if progress:
                    progress(-size)
            except Absent as error:
                path.unlink(missing_ok=True)
                raise ObjectMissing(key) from error
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            finally:
                os.close(descriptor)

    def read(self, key: str, *, start: int, end: int) -> bytes:
        """A range as the store sends it. Raises ObjectMissing."""
        if end <= start:
            return b""
        buffer = bytearray(min(BLOCK, end - start))
        try:
            found = self._streams.read(key, start=start, end=end, buffer=buffer, cancel=None)
            return b"".join(bytes(block) for block in found)
        except Absent as error:
            raise ObjectMissing(key) from error

    def sha256(self, key: str, *, cancel: threading.Event | None) -> str:
        """Of the object as the store sends it. Raises ObjectMissing."""
        digest, buffer = hashlib.sha256(), bytearray(BLOCK)
        try:
            for block in self._streams.read(key, buffer=buffer, cancel=cancel):
                digest.update(block)
        except Absent as error:
            raise ObjectMissing(key) from error
        return digest.hexdigest()

    def _fetch(
        self,
        key: str,
        descriptor: int,
        size: int,
        hashing: bool,
        *,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> tuple[int, str]:
        """(CRC64NVME, SHA-256 where `hashing`, else "") of what came."""
        bounds = [(start, min(start + RANGE, size)) for start in range(0, size, RANGE)]
        try:
            return self._fetch_ranges(key, descriptor, bounds, size, hashing, progress, cancel)
        except RangeIgnored:
            # Every range would bring the whole object: let it come once.
            return self._fetch_ranges(key, descriptor, [(0, size)], size, hashing, progress, cancel)

    def _fetch_ranges(
        self,
        key: str,
        descriptor: int,
        bounds: list[tuple[int, int]],
        size: int,
        hashing: bool,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> tuple[int, str]:
        stop, came, lock = threading.Event(), 0, threading.Lock()

        def fetch(start: int, end: int, cancelled: threading.Event | None) -> int:
            nonlocal came
            at, crc, buffer = start, 0, bytearray(min(BLOCK, max(end - start, 1)))
            for block in self._streams.read(
                key, start=start, end=end, size=size, buffer=buffer, cancel=cancelled
            ):
                crc = crc64(block, crc)
                write_at(descriptor, block, at)
                at += len(block)
                if progress:
                    with lock:
                        came += len(block)
                    progress(len(block))
            start_writeback(descriptor, start=start, end=end)
            return crc

        if len(bounds) <= 1:
            crc = fetch(0, size, cancel)
            return crc, _sha256(descriptor, 0, size, cancel=cancel) if hashing else ""
        running = [self._pool.submit(fetch, start, end, stop) for start, end in bounds]
        digest, whole = hashlib.sha256(), 0
        try:
            for future, (start, end) in zip(running, bounds, strict=True):
                while not concurrent.futures.wait([future], timeout=0.2).done:
                    check_cancel(cancel)
                whole = checksums.combine_crc64nvme(whole, future.result(), end - start)
                if hashing:
                    _sha256(descriptor, start, end, cancel=cancel, digest=digest)
        except BaseException as error:
            stop.set()
            for future in running:
                future.cancel()
            concurrent.futures.wait(running)
            if progress and isinstance(error, RangeIgnored):
                progress(-came)
            raise
        return whole, digest.hexdigest() if hashing else ""


def _sha256(
    descriptor: int,
    start: int,
    end: int,
    *,
    cancel: threading.Event | None,
    digest: Any = None,
) -> str:
    """Of a range just written, from the page cache; goes on with `digest`."""
    digest = digest or hashlib.sha256()
    view, at = memoryview(bytearray(BLOCK)), start
    while at < end:
        check_cancel(cancel)
        count = os.preadv(descriptor, [view[: min(BLOCK, end - at)]], at)
        if not count:
            break  # cut short on this disk: the hash will tell
        digest.update(view[:count])
        at += count
    return str(digest.hexdigest())
