"""S3 and everything that speaks its protocol, by boto3.

Small calls live here; large transfers in `s3_upload` and `s3_download`, their bytes in `s3_wire`.
botocore's own retries are off, so that one place, `retrying`, decides how long a call goes on
trying. Must never log or tell a credential.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from rtj_sidecar.stores.answers import Absent, BadDigest, ConditionFailed
from rtj_sidecar.stores.base import (
    Capabilities,
    Condition,
    Conflict,
    Head,
    IfAbsent,
    IfMatch,
    Listed,
    ObjectMissing,
    OnWait,
    Progress,
    Small,
    Uploaded,
    Written,
    clean_key,
)
from rtj_sidecar.stores.local import BLOCK, crc64, crc64_text
from rtj_sidecar.stores.memory import within_memory
from rtj_sidecar.stores.pace import Pace
from rtj_sidecar.stores.probing import probed
from rtj_sidecar.stores.retrying import Retrying
from rtj_sidecar.stores.s3_body import Body
from rtj_sidecar.stores.s3_checksums import Checksums
from rtj_sidecar.stores.s3_classes import ask_back, class_of, reclass, restored
from rtj_sidecar.stores.s3_clients import clients_of
from rtj_sidecar.stores.s3_copy import copy_proved
from rtj_sidecar.stores.s3_credentials import session_of
from rtj_sidecar.stores.s3_download import Downloads
from rtj_sidecar.stores.s3_errors import Place, explain
from rtj_sidecar.stores.s3_send import SAME_BYTES_TRIES, damaged
from rtj_sidecar.stores.s3_stream import Streams
from rtj_sidecar.stores.s3_upload import Uploads


class S3Store:
    """A store.base.Store in one bucket, below a prefix."""

    def __init__(
        self,
        *,
        bucket: str,
        prefix: str = "",
        endpoint: str | None = None,
        region: str | None = None,
        ca_file: str | None = None,
        credentials_dir: Path | None = None,
        patience_s: float = 10.0,
        transfer_patience_s: float = 300.0,
        threads: int | None = None,
        part_size: int | None = None,
        pace: Pace | None = None,
        on_wait: OnWait | None = None,
    ) -> None:
        self._bucket = bucket
        self._retrying = Retrying(on_wait=on_wait)
        self._prefix = f"{prefix}/" if prefix else ""
        self._place = Place(bucket=bucket, endpoint=endpoint, region=region)
        self._patience_s = patience_s
        # Two threads a core saturate a NIC with unsigned payloads; more only contend for the GIL.
        # A block in hand each, and one that the connection keeps.
        threads = threads or within_memory(max(4, 2 * len(os.sched_getaffinity(0))), each=2 * BLOCK)
        with self._explained("CreateClient", ""):
            self._clients = clients_of(
                session_of(credentials_dir),
                endpoint=endpoint,
                region=region,
                ca_file=ca_file,
                connections=threads + 8,
            )
        self._checksums = Checksums(self._send, probe_prefix=self._prefix)
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "rtj-s3")
        self._downloads = Downloads(
            streams=Streams(call=self._large_call, patience_s=transfer_patience_s), pool=self._pool
        )
        self._uploads = Uploads(
            call=self._large_call,
            full_key=self._full_key,
            pool=self._pool,
            threads=threads,
            patience_s=transfer_patience_s,
            part_size=part_size,
            pace=pace,
        )

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def put(self, key: str, data: bytes, *, condition: Condition = None) -> Written | Conflict:
        extra: dict[str, Any] = {"ChecksumCRC64NVME": crc64_text(crc64(data))}
        match condition:
            case IfAbsent():
                extra["IfNoneMatch"] = "*"
            case IfMatch(etag):
                extra["IfMatch"] = etag
        for _ in range(SAME_BYTES_TRIES):
            try:
                return Written(self._call("put_object", key, Body=data, **extra)["ETag"])
            except BadDigest:
                continue  # What is in memory does not change: it was the way.
            except (ConditionFailed, Absent):
                # Our own write may have succeeded and only its reply been lost.
                current = self.get(key)
                if current is not None and current.data == data:
                    return Written(current.etag)
                return Conflict()
        raise damaged(key)

    def get(self, key: str) -> Small | None:
        try:
            answer = self._call("get_object", key, read_body=True, ChecksumMode="ENABLED")
        except Absent:
            return None
        return Small(answer["Body"], answer["ETag"])

    def list(self, prefix: str) -> Iterator[Listed]:
        page: dict[str, Any] = {}
        while True:
            answer = self._call("list_objects_v2", None, Prefix=self._prefix + prefix, **page)
            for item in answer.get("Contents", []):
                yield Listed(
                    item["Key"][len(self._prefix) :],
                    item["Size"],
                    item.get("ETag"),
                    item.get("StorageClass"),
                )
            if not answer.get("IsTruncated"):
                return
            page = {"ContinuationToken": answer["NextContinuationToken"]}

    def head(self, key: str) -> Head | None:
        try:
            answer = self._call("head_object", key, ChecksumMode="ENABLED")
        except Absent:
            return None
        return Head(
            size=answer["ContentLength"],
            etag=answer["ETag"],
            crc64nvme=answer.get("ChecksumCRC64NVME"),
            storage_class=class_of(answer),
            restored=restored(answer),
        )

    def reclass(self, key: str, *, storage_class: str) -> None:
        head = self.head(key)
        if head is None:
            raise ObjectMissing(key)
        reclass(
            self._patient(None),
            bucket=self._bucket,
            full_key=self._full_key(key),
            key=key,
            head=head,
            storage_class=storage_class,
            pool=self._pool,
        )

    @property
    def copies(self) -> bool:
        return True

    def copy(
        self, source: str, target: str, *, etag: str, cancel: threading.Event | None = None
    ) -> Head:
        return copy_proved(
            self._patient(cancel),
            self.head,
            source={"Bucket": self._bucket, "Key": self._full_key(source)},
            keys=(source, target),
            etag=etag,
            pool=self._pool,
        )

    def ask_back(self, key: str, *, days: int) -> None:
        ask_back(self._call, key=key, days=days)

    def delete(self, key: str) -> None:
        with contextlib.suppress(Absent):
            self._call("delete_object", key)

    def upload_file(
        self,
        key: str,
        path: Path,
        *,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> Uploaded:
        return self._uploads.upload(key, path, progress=progress, cancel=cancel)

    def download(
        self,
        key: str,
        path: Path,
        *,
        size: int,
        sha256: str,
        crc64nvme: str | None = None,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        self._downloads.download(
            key,
            path,
            size=size,
            sha256=sha256,
            crc64nvme=crc64nvme,
            progress=progress,
            cancel=cancel,
        )

    def read(self, key: str, *, start: int, end: int) -> bytes:
        return self._downloads.read(key, start=start, end=end)

    def sha256(self, key: str, *, cancel: threading.Event | None = None) -> str:
        return self._downloads.sha256(key, cancel=cancel)

    def end_uploads(self, prefix: str, *, is_over: Callable[[str], bool]) -> int:
        skip = len(self._prefix)
        return self._uploads.leftovers.sweep(
            self._prefix + prefix, is_over=lambda full: is_over(full[skip:])
        )

    def probe(self, prefix: str) -> Capabilities:
        with probed(self, prefix) as seen:
            head = self.head(seen.key)
            told = head is not None and head.crc64nvme == crc64_text(crc64(seen.data))
        # Verified by the server at every write, and told by HEAD for what was stored.
        checksum = "crc64nvme" if told and self._checksums.name == "crc64nvme" else "none"
        return Capabilities(seen.create, seen.replace, checksum)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._clients.wire.close()

    def _full_key(self, key: str) -> str:
        return self._prefix + clean_key(key)

    def _call(self, operation: str, key: str | None, **arguments: Any) -> Any:
        return self._retried(self._clients.small, operation, key, self._patience_s, None, arguments)

    def _patient(self, cancel: threading.Event | None) -> Callable[..., Any]:
        """Copies inside the server: answered when they are done. What ends one is always said."""
        return lambda operation, key, **more: self._large_call(
            operation,
            key,
            patience_s=self._patience_s,
            cancel=None if operation.startswith("abort") else cancel,
            **more,
        )

    def _large_call(
        self,
        operation: str,
        key: str | None,
        *,
        patience_s: float,
        cancel: threading.Event | None,
        **arguments: Any,
    ) -> Any:
        return self._retried(self._clients.large, operation, key, patience_s, cancel, arguments)

    def _retried(
        self,
        client: Any,
        operation: str,
        key: str | None,
        patience_s: float,
        cancel: threading.Event | None,
        arguments: dict[str, Any],
    ) -> Any:
        read_body = arguments.pop("read_body", False)
        if key is not None:
            arguments["Key"] = self._full_key(key)

        def attempt() -> Any:
            with self._explained(operation, key or ""):

                def once(**worded: Any) -> Any:
                    # An earlier try has left a streamed body at its end.
                    if isinstance(body := worded.get("Body"), Body):
                        body.seek(0)
                    with self._explained(operation, key or ""):
                        return getattr(client, operation)(Bucket=self._bucket, **worded)

                answer = self._checksums.do(operation, once, arguments)
                if read_body:
                    answer["Body"] = answer["Body"].read()
                return answer

        return self._retrying.call(attempt, patience_s=patience_s, cancel=cancel)

    def _send(self, operation: str, **arguments: Any) -> Any:
        with self._explained(operation, ".rtj-probe"):
            return getattr(self._clients.small, operation)(Bucket=self._bucket, **arguments)

    @contextlib.contextmanager
    def _explained(self, operation: str, key: str) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError, ResponseParserError, ValueError) as error:
            # What the server or http.client said may repeat the signed request or a header of it.
            raise explain(error, operation=operation, key=key, place=self._place) from None
