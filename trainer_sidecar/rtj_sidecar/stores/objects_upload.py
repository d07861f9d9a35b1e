"""Large files to a storage service, in pieces, each byte read from the disk once.

One thread hashes a piece (SHA-256 of the whole, CRC64NVME of the piece, the service's own checksum)
and hands it to the threads that send. Must never tell success before the service's checksum was
compared with that of the hashed bytes.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from awscrt import checksums
from rtj_api.reasons import Reason

from rtj_sidecar.stores.answers import BadDigest, NoSuchUpload
from rtj_sidecar.stores.base import (
    Cancelled,
    Condition,
    Progress,
    StoreProblem,
    Uploaded,
    check_cancel,
)
from rtj_sidecar.stores.local import (
    BLOCK,
    HashBeside,
    Source,
    blocks,
    crc64,
    crc64_text,
    open_source,
)
from rtj_sidecar.stores.memory import within_memory
from rtj_sidecar.stores.pace import Pace
from rtj_sidecar.stores.put_aside import Begun, PutAside
from rtj_sidecar.stores.service import Piece, Service

SMALL = 4 << 20
_TRIES = 3


class SessionUploads:
    """Uploads over `call(operation, key, attempt, *, cancel)`."""

    def __init__(
        self,
        *,
        service: Service,
        full_key: Callable[[str], str],
        call: Callable[..., Any],
        pool: concurrent.futures.ThreadPoolExecutor,
        threads: int,
        pace: Pace | None,
    ) -> None:
        self._service, self._full_key, self._call = service, full_key, call
        self._pool, self._threads, self._pace = pool, threads, pace
        self._aside = PutAside()

    def upload(
        self,
        key: str,
        path: Path,
        *,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> Uploaded:
        with open_source(path) as source:
            if source.size <= SMALL:
                return self._upload_whole(key, source, progress, cancel)
            for _ in range(_TRIES):
                sent = _Sent(progress)
                try:
                    return self._upload_pieces(key, source, sent, cancel)
                except (NoSuchUpload, BadDigest):
                    # The service has lost or damaged it; or the file changed, which this tells.
                    source.check()
                    sent.take_back()
        raise StoreProblem(
            Reason.STORE_UNREACHABLE,
            f"{key}: the upload was lost or arrived damaged {_TRIES} times; check the network and "
            "any proxy between this pod and the store",
            transient=True,
        )

    def _upload_whole(
        self,
        key: str,
        source: Source,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> Uploaded:
        kept, buffer = bytearray(), bytearray(max(1, min(BLOCK, source.size)))
        for block in blocks(source, start=0, end=source.size, buffer=buffer):
            check_cancel(cancel)
            kept += block
        source.check()
        data = bytes(kept)
        if self._pace is not None:
            self._pace.take_all(len(data), cancel=cancel)

        full = self._full_key(key)
        etag = self._call(
            "write",
            key,
            lambda: put_once(self._service, full, data, None),
            cancel=cancel,
        )
        if progress:
            progress(len(data))
        sha256, crc = hashlib.sha256(data).hexdigest(), crc64_text(crc64(data))
        return Uploaded(len(data), sha256, crc, etag)

    def _upload_pieces(
        self, key: str, source: Source, sent: _Sent, cancel: threading.Event | None
    ) -> Uploaded:
        full = self._full_key(key)
        begun = self._aside.take(full, source) or Begun(
            self._call(
                "begin to write",
                key,
                lambda: self._service.begin(full, source.size),
                cancel=cancel,
            )
        )
        session, done = begun.session, begun.done
        stop = threading.Event()
        running: list[concurrent.futures.Future[None]] = []
        size = self._service.piece_size(source.size)
        held = self._service.held(source.size)
        window = within_memory(self._threads, each=held) if self._service.parallel else 1
        # Hashing stays at most this far ahead, so that what is sent is still cached.
        slots = threading.Semaphore(window + 1)
        pool = self._pool
        if not self._service.parallel:
            pool = concurrent.futures.ThreadPoolExecutor(1, "rtj-store-one")

        def send(piece: Piece) -> None:
            try:
                if piece.last:
                    source.check()  # with some services it makes the object visible
                self._call("write", key, lambda: session.send(piece), cancel=stop)
                done[piece.number] = piece.crc
                sent.add(len(piece))
            except BaseException:
                stop.set()
                raise
            finally:
                slots.release()

        try:
            pieces, whole = [], 0
            with HashBeside() as sha256:
                for number, start in enumerate(range(0, source.size, size)):
                    end, crc = min(start + size, source.size), 0
                    for block in sha256.blocks(source, start=start, end=end):
                        crc = crc64(block, crc)
                        session.hashed(block)
                        check_cancel(cancel)
                    whole = checksums.combine_crc64nvme(whole, crc, end - start)
                    piece = Piece(
                        source,
                        number,
                        start,
                        end,
                        crc,
                        session.digest(),
                        end == source.size,
                        pace=self._pace,
                        cancel=stop,
                    )
                    pieces.append(piece)
                    if number in done:
                        if done[number] != crc:
                            raise NoSuchUpload(key)  # begun with other bytes
                        sent.add(len(piece))
                        continue
                    while not slots.acquire(timeout=0.1):
                        check_cancel(cancel)
                    if stop.is_set():
                        break
                    running.append(pool.submit(send, piece))
            _wait(running, cancel)
            source.check()
            etag = self._call("complete", key, lambda: session.finish(pieces), cancel=cancel)
            return Uploaded(source.size, sha256.hexdigest(), crc64_text(whole), str(etag))
        except BaseException as error:
            stop.set()
            concurrent.futures.wait(running)
            if isinstance(error, Cancelled) and session.again():
                self._aside.keep(full, source, begun)
                raise
            # Best effort: what is left behind is invisible, and the next upload's to clean up.
            with contextlib.suppress(Exception):
                session.abort()
            raise
        finally:
            if pool is not self._pool:
                pool.shutdown(wait=False)


def put_once(service: Service, key: str, data: bytes, condition: Condition) -> str:
    """The new ETag. Raises as `Service.put`, but a damaged body as trouble that may pass."""
    try:
        return service.put(key, data, condition)
    except Exception as error:
        if isinstance(service.explain(error, operation="write", key=key), BadDigest):
            raise StoreProblem(
                Reason.STORE_UNREACHABLE,
                f"{key}: bytes arrive damaged at the store; check the network and any proxy",
                transient=True,
            ) from error
        raise


class _Sent:
    """What was told to `progress`, so that it can be taken back."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._count, self._lock = progress, 0, threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._count += count
        if self._progress:
            self._progress(count)

    def take_back(self) -> None:
        if self._progress and self._count:
            self._progress(-self._count)


def _wait(running: list[concurrent.futures.Future[None]], cancel: threading.Event | None) -> None:
    left = set(running)
    while left:
        check_cancel(cancel)
        done, left = concurrent.futures.wait(left, timeout=0.2)
        failed = [error for each in done if (error := each.exception()) is not None]
        # The first that failed tells why; the others were only stopped by it.
        causes = [error for error in failed if not isinstance(error, Cancelled)]
        if causes:
            raise causes[0]
        if failed and not left:
            raise failed[0]
