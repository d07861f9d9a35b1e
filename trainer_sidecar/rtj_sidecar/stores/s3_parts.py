"""A file in several parts, each byte read from the disk once, going on where an earlier life ended.

One thread hashes (SHA-256 of the whole, CRC64NVME of the part) and hands each part to the pool,
which sends it from the page cache; the server verifies each part's CRC and the combined one. What
an unfinished upload of the key has already is proved and not sent. Must never use `bytes` of a
whole part (memory), nor a memory map (see `local`).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from dataclasses import dataclass, field
from typing import Any

from awscrt import checksums
from rtj_api.reasons import Reason

from rtj_sidecar.stores.answers import Absent, BadDigest, NoSuchUpload
from rtj_sidecar.stores.base import Cancelled, Progress, StoreProblem, Uploaded, check_cancel
from rtj_sidecar.stores.local import HashBeside, Source, crc64, crc64_text
from rtj_sidecar.stores.pace import Pace
from rtj_sidecar.stores.s3_body import Body, part_size_of
from rtj_sidecar.stores.s3_send import Sender, lost
from rtj_sidecar.stores.s3_unfinished import Leftovers, Proof, Unfinished


@dataclass(slots=True)
class _Sending:
    """One upload under way. `slots`: the hashing thread stays so far ahead at most, so that what
    is sent is still cached."""

    key: str
    source: Source
    there: Unfinished
    slots: threading.Semaphore
    progress: Progress | None
    cancel: threading.Event | None
    stop: threading.Event = field(default_factory=threading.Event)
    futures: list[concurrent.futures.Future[dict[str, Any]]] = field(default_factory=list)


class PartUploads:
    def __init__(
        self,
        *,
        sender: Sender,
        leftovers: Leftovers,
        pool: concurrent.futures.ThreadPoolExecutor,
        threads: int,
        part_size: int,
        pace: Pace | None,
    ) -> None:
        self._sender = sender
        self._leftovers = leftovers
        self._pool = pool
        self._threads = threads
        self._part_size = part_size
        self._pace = pace

    def upload(
        self,
        key: str,
        source: Source,
        *,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> Uploaded:
        going = _Sending(
            key=key,
            source=source,
            there=self._leftovers.of(key) or self._begin(key, cancel),
            slots=threading.Semaphore(self._threads + 1),
            progress=progress,
            cancel=cancel,
        )
        try:
            sha256, crc = self._hash_and_send(going)
            parts = [_result(each, going) for each in going.futures]
            source.check()
            etag = self._complete(going, parts, crc)
        except BaseException as error:
            going.stop.set()
            concurrent.futures.wait(going.futures)
            if not _may_go_on(error):
                self._leftovers.end(key, going.there.upload)
            raise
        return Uploaded(source.size, sha256, crc64_text(crc), etag)

    def _begin(self, key: str, cancel: threading.Event | None) -> Unfinished:
        answer = self._sender.say(
            "create_multipart_upload",
            key,
            cancel,
            ChecksumAlgorithm="CRC64NVME",
            ChecksumType="FULL_OBJECT",
        )
        return Unfinished(answer["UploadId"])

    def _hash_and_send(self, going: _Sending) -> tuple[str, int]:
        """(SHA-256, CRC64NVME) of the file; `going.futures` are its parts, in order."""
        size = part_size_of(going.source.size, least=self._part_size)
        whole = 0
        with HashBeside() as digest:
            for number, start in enumerate(range(0, going.source.size, size), 1):
                end, crc = min(start + size, going.source.size), 0
                proof = Proof(going.there.parts.get(number), size=end - start)
                for block in digest.blocks(going.source, start=start, end=end):
                    crc = crc64(block, crc)
                    proof.show(block)
                    check_cancel(going.cancel)
                whole = checksums.combine_crc64nvme(whole, crc, end - start)
                if (stored := proof.holds(crc)) is not None:
                    going.futures.append(_kept(number, stored.etag, crc))
                    if going.progress:
                        going.progress(end - start)
                    continue
                while not going.slots.acquire(timeout=0.1):
                    check_cancel(going.cancel)
                if going.stop.is_set():
                    break
                going.futures.append(self._pool.submit(self._send, going, number, start, end, crc))
            return digest.hexdigest(), whole

    def _send(self, going: _Sending, number: int, start: int, end: int, crc: int) -> dict[str, Any]:
        try:
            answer = self._sender.send(
                "upload_part",
                going.key,
                going.source,
                body=lambda: Body(
                    going.source, start=start, end=end, pace=self._pace, cancel=going.stop
                ),
                bounds=(start, end),
                crc=crc,
                cancel=going.stop,
                UploadId=going.there.upload,
                PartNumber=number,
            )
            if going.progress:
                going.progress(end - start)
            return _part(number, answer["ETag"], crc)
        except BaseException:
            going.stop.set()
            raise
        finally:
            going.slots.release()

    def _complete(self, going: _Sending, parts: list[dict[str, Any]], crc: int) -> str:
        key, upload = going.key, going.there.upload
        try:
            answer = self._sender.say(
                "complete_multipart_upload",
                key,
                going.cancel,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
                ChecksumType="FULL_OBJECT",
                ChecksumCRC64NVME=crc64_text(crc),
            )
            return str(answer["ETag"])
        except NoSuchUpload:
            # An earlier try may have completed it and only its reply been lost.
            with contextlib.suppress(Absent):
                head = self._sender.say("head_object", key, going.cancel, ChecksumMode="ENABLED")
                if head["ContentLength"] == going.source.size and (
                    head.get("ChecksumCRC64NVME") == crc64_text(crc)
                ):
                    return str(head["ETag"])
            raise lost(key) from None
        except (BadDigest, Absent) as error:
            self._leftovers.end(key, upload)
            raise lost(key) from error
        except StoreProblem as problem:
            if problem.reason != Reason.STORE_UNSUPPORTED or not going.there.parts:
                raise
            # It was begun in another way than ours: from the beginning, then.
            self._leftovers.end(key, upload)
            raise lost(key) from problem


def _result(future: concurrent.futures.Future[dict[str, Any]], going: _Sending) -> dict[str, Any]:
    while True:
        check_cancel(going.cancel)
        done, _ = concurrent.futures.wait([future], timeout=0.2)
        # The first that failed tells why; the others were only stopped by it.
        failed = [each for each in going.futures if each.done() and each.exception()]
        causes = [e.exception() for e in failed if not isinstance(e.exception(), Cancelled)]
        if causes and causes[0] is not None:
            raise causes[0]
        if done:
            return future.result()


def _may_go_on(error: BaseException) -> bool:
    """Whether what is in the store already is worth keeping for the next try."""
    if isinstance(error, StoreProblem):
        return error.reason != Reason.STORE_UNSUPPORTED
    return isinstance(error, Cancelled | OSError)


def _part(number: int, etag: str, crc: int) -> dict[str, Any]:
    return {"PartNumber": number, "ETag": etag, "ChecksumCRC64NVME": crc64_text(crc)}


def _kept(number: int, etag: str, crc: int) -> concurrent.futures.Future[dict[str, Any]]:
    future: concurrent.futures.Future[dict[str, Any]] = concurrent.futures.Future()
    future.set_result(_part(number, etag, crc))
    return future
