"""Large files to S3 in bounded memory, each byte read from the disk once.

One thread hashes a part (SHA-256 of the whole, CRC64NVME of the part) and hands it to the pool,
which sends it from the page cache; the server verifies each part's CRC and the combined one. Must
never use `bytes` of a whole part (memory), nor a memory map (see `local`).
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

from rtj_sidecar.stores.answers import Absent, BadDigest, NoSuchUpload
from rtj_sidecar.stores.base import (
    Cancelled,
    Progress,
    SourceChanged,
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
from rtj_sidecar.stores.s3_body import PART, Body, part_size_of

IN_MEMORY = 4 << 20
_SAME_BYTES_TRIES = 3


class Uploads:
    """Uploads over `call(operation, key, *, patience_s, cancel, **arguments)`."""

    def __init__(
        self,
        *,
        call: Callable[..., Any],
        full_key: Callable[[str], str],
        pool: concurrent.futures.ThreadPoolExecutor,
        threads: int,
        patience_s: float,
        part_size: int | None = None,
    ) -> None:
        self._call = call
        self._full_key = full_key
        self._pool = pool
        self._threads = threads
        self._patience_s = patience_s
        self._part_size = part_size or PART

    def upload(
        self,
        key: str,
        path: Path,
        *,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> Uploaded:
        with open_source(path) as source:
            if source.size <= self._part_size:
                return self._upload_whole(key, source, progress, cancel)
            return self._upload_parts(key, source, progress, cancel)

    def _upload_whole(
        self,
        key: str,
        source: Source,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> Uploaded:
        digest, crc, kept = hashlib.sha256(), 0, bytearray()
        in_memory = source.size <= IN_MEMORY
        buffer = bytearray(min(BLOCK, max(source.size, 1)))
        for block in blocks(source, start=0, end=source.size, buffer=buffer):
            check_cancel(cancel)
            digest.update(block)
            crc = crc64(block, crc)
            if in_memory:
                kept += block
        answer = self._send(
            "put_object",
            key,
            source,
            body=lambda: bytes(kept) if in_memory else Body(source, start=0, end=source.size),
            bounds=(0, source.size),
            crc=crc,
            cancel=cancel,
        )
        if progress:
            progress(source.size)
        return Uploaded(source.size, digest.hexdigest(), crc64_text(crc), answer["ETag"])

    def _upload_parts(
        self,
        key: str,
        source: Source,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> Uploaded:
        size = part_size_of(source.size, least=self._part_size)
        self._abort_earlier(key)
        upload = self._say(
            "create_multipart_upload",
            key,
            cancel,
            ChecksumAlgorithm="CRC64NVME",
            ChecksumType="FULL_OBJECT",
        )["UploadId"]
        stop = threading.Event()
        # The hashing thread stays this far ahead at most, so that what is sent is still cached.
        slots = threading.Semaphore(self._threads + 1)
        sending: list[concurrent.futures.Future[dict[str, Any]]] = []

        def send(number: int, start: int, end: int, crc: int) -> dict[str, Any]:
            try:
                answer = self._send(
                    "upload_part",
                    key,
                    source,
                    body=lambda: Body(source, start=start, end=end),
                    bounds=(start, end),
                    crc=crc,
                    cancel=stop,
                    UploadId=upload,
                    PartNumber=number,
                )
                if progress:
                    progress(end - start)
                return {
                    "PartNumber": number,
                    "ETag": answer["ETag"],
                    "ChecksumCRC64NVME": crc64_text(crc),
                }
            except BaseException:
                stop.set()
                raise
            finally:
                slots.release()

        try:
            whole = 0
            with HashBeside() as digest:
                for number, start in enumerate(range(0, source.size, size), 1):
                    end, crc = min(start + size, source.size), 0
                    for block in digest.blocks(source, start=start, end=end):
                        crc = crc64(block, crc)
                        check_cancel(cancel)
                    whole = checksums.combine_crc64nvme(whole, crc, end - start)
                    while not slots.acquire(timeout=0.1):
                        check_cancel(cancel)
                    if stop.is_set():
                        break
                    sending.append(self._pool.submit(send, number, start, end, crc))
            parts = [self._result(future, sending, cancel) for future in sending]
            source.check()
            etag = self._complete(key, upload, parts, whole, source.size, cancel)
        except BaseException:
            stop.set()
            concurrent.futures.wait(sending)
            with contextlib.suppress(StoreProblem, NoSuchUpload, Absent):
                self._call(
                    "abort_multipart_upload", key, patience_s=5, cancel=None, UploadId=upload
                )
            raise
        return Uploaded(source.size, digest.hexdigest(), crc64_text(whole), etag)

    @staticmethod
    def _result(
        future: concurrent.futures.Future[dict[str, Any]],
        sending: list[concurrent.futures.Future[dict[str, Any]]],
        cancel: threading.Event | None,
    ) -> dict[str, Any]:
        while True:
            check_cancel(cancel)
            done, _ = concurrent.futures.wait([future], timeout=0.2)
            # The first that failed tells why; the others were only stopped by it.
            failed = [each for each in sending if each.done() and each.exception()]
            causes = [e.exception() for e in failed if not isinstance(e.exception(), Cancelled)]
            if causes and causes[0] is not None:
                raise causes[0]
            if done:
                return future.result()

    def _complete(
        self,
        key: str,
        upload: str,
        parts: list[dict[str, Any]],
        crc: int,
        size: int,
        cancel: threading.Event | None,
    ) -> str:
        try:
            answer = self._say(
                "complete_multipart_upload",
                key,
                cancel,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
                ChecksumType="FULL_OBJECT",
                ChecksumCRC64NVME=crc64_text(crc),
            )
            return str(answer["ETag"])
        except NoSuchUpload:
            # An earlier try may have completed it and only its reply been lost.
            with contextlib.suppress(Absent):
                head = self._say("head_object", key, cancel, ChecksumMode="ENABLED")
                if head["ContentLength"] == size and (
                    head.get("ChecksumCRC64NVME") == crc64_text(crc)
                ):
                    return str(head["ETag"])
            raise _lost(key) from None
        except (BadDigest, Absent) as error:
            raise _lost(key) from error

    def _send(
        self,
        operation: str,
        key: str,
        source: Source,
        *,
        body: Callable[[], Any],
        bounds: tuple[int, int],
        crc: int,
        cancel: threading.Event | None,
        **arguments: Any,
    ) -> Any:
        """Send one body with its checksum; on a bad digest find out whose fault it is."""
        for _ in range(_SAME_BYTES_TRIES):
            try:
                return self._say(
                    operation,
                    key,
                    cancel,
                    Body=body(),
                    ChecksumCRC64NVME=crc64_text(crc),
                    **arguments,
                )
            except BadDigest:
                source.check()
                again, buffer = 0, bytearray(BLOCK)
                for block in blocks(source, start=bounds[0], end=bounds[1], buffer=buffer):
                    again = crc64(block, again)
                if again != crc:
                    raise SourceChanged(source.path, "its bytes changed while read") from None
            except NoSuchUpload as error:
                raise _lost(key) from error
        raise StoreProblem(
            Reason.STORE_UNREACHABLE,
            f"{key}: bytes arrive damaged at the store; check the network and any proxy",
            transient=True,
        )

    def _abort_earlier(self, key: str) -> None:
        """Free what an earlier life of this process left; nobody else ever writes this key."""
        with contextlib.suppress(StoreProblem, Absent, NoSuchUpload):
            full = self._full_key(key)
            answer = self._call(
                "list_multipart_uploads", None, patience_s=5, cancel=None, Prefix=full
            )
            for found in answer.get("Uploads", []):
                # A prefix also finds the uploads of longer keys.
                if found["Key"] == full:
                    self._call(
                        "abort_multipart_upload",
                        key,
                        patience_s=5,
                        cancel=None,
                        UploadId=found["UploadId"],
                    )

    def _say(
        self, operation: str, key: str, cancel: threading.Event | None, **arguments: Any
    ) -> Any:
        return self._call(operation, key, patience_s=self._patience_s, cancel=cancel, **arguments)


def _lost(key: str) -> StoreProblem:
    return StoreProblem(
        Reason.STORE_UNREACHABLE,
        f"{key}: the store lost an upload in progress; it is sent again",
        transient=True,
    )
