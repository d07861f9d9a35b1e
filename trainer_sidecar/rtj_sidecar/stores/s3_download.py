"""Large files from S3 in bounded memory, hashed in the same pass.

The pool writes ranges in place while one thread hashes them in order, from the page cache. A broken
connection goes on where it broke. Must never leave a file that was not proved.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rtj_sidecar.stores.base import (
    ContentMismatch,
    ObjectMissing,
    Progress,
    changing,
    check_cancel,
)
from rtj_sidecar.stores.local import BLOCK
from rtj_sidecar.stores.s3_errors import Absent

RANGE = 32 << 20


class Downloads:
    """Downloads over `call(operation, key, *, patience_s, cancel, **arguments)`."""

    def __init__(
        self,
        *,
        call: Callable[..., Any],
        pool: concurrent.futures.ThreadPoolExecutor,
        patience_s: float,
    ) -> None:
        self._call = call
        self._pool = pool
        self._patience_s = patience_s

    def download(
        self,
        key: str,
        path: Path,
        *,
        size: int,
        sha256: str,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> None:
        # Twice: bytes damaged on the way must not condemn a good object.
        before = ""
        for last in (False, True):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                got = self._fetch(key, descriptor, size, progress, cancel)
                if got == sha256:
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

    def _fetch(
        self,
        key: str,
        descriptor: int,
        size: int,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> str:
        digest = hashlib.sha256()
        if size <= RANGE:
            at = 0
            for block in self.stream(key, end=size, size=size, cancel=cancel):
                digest.update(block)
                at += os.pwrite(descriptor, block, at)
                if progress:
                    progress(len(block))
            return digest.hexdigest()
        stop = threading.Event()

        def fetch(start: int, end: int) -> None:
            at = start
            for block in self.stream(key, start=start, end=end, size=size, cancel=stop):
                at += os.pwrite(descriptor, block, at)
                if progress:
                    progress(len(block))

        bounds = [(start, min(start + RANGE, size)) for start in range(0, size, RANGE)]
        running = [self._pool.submit(fetch, *bound) for bound in bounds]
        view = memoryview(bytearray(BLOCK))
        try:
            for future, (start, end) in zip(running, bounds, strict=True):
                while not concurrent.futures.wait([future], timeout=0.2).done:
                    check_cancel(cancel)
                future.result()
                at = start
                while at < end:
                    count = os.preadv(descriptor, [view[: min(BLOCK, end - at)]], at)
                    digest.update(view[:count])
                    at += count
        except BaseException:
            stop.set()
            for future in running:
                future.cancel()
            concurrent.futures.wait(running)
            raise
        return digest.hexdigest()

    def stream(
        self,
        key: str,
        *,
        start: int = 0,
        end: int | None = None,
        size: int | None = None,
        cancel: threading.Event | None,
    ) -> Iterator[bytes]:
        """The object's bytes from `start` to `end`, going on after a broken connection.

        With `size`, an object of another size raises ContentMismatch. Raises Absent.
        """
        at, deadline = start, time.monotonic() + self._patience_s
        while end is None or at < end or (at == end == start):
            arguments = {} if end in (None, 0) and at == 0 else {"Range": _range(at, end)}
            answer = self._say("get_object", key, cancel, **arguments)
            total = _total(answer)
            if size is not None and total != size:
                answer["Body"].close()
                raise ContentMismatch(key, expected=f"{size} bytes", got=f"{total} bytes")
            end = total if end is None else end
            try:
                for block in answer["Body"].iter_chunks(BLOCK):
                    check_cancel(cancel)
                    at += len(block)
                    deadline = time.monotonic() + self._patience_s
                    yield block
                if at >= end:
                    return
            except Exception as error:
                # botocore lets a few kinds of urllib3's errors through from a streaming body.
                if not _is_transport(error) or time.monotonic() > deadline:
                    raise
            finally:
                answer["Body"].close()

    def _say(
        self, operation: str, key: str, cancel: threading.Event | None, **arguments: Any
    ) -> Any:
        return self._call(operation, key, patience_s=self._patience_s, cancel=cancel, **arguments)


def _range(start: int, end: int | None) -> str:
    return f"bytes={start}-" if end is None else f"bytes={start}-{end - 1}"


def _total(answer: dict[str, Any]) -> int:
    if "ContentRange" in answer:
        return int(answer["ContentRange"].rpartition("/")[2])
    return int(answer["ContentLength"])


def _is_transport(error: Exception) -> bool:
    module = type(error).__module__.partition(".")[0]
    return module in ("botocore", "urllib3") or isinstance(error, OSError)
