"""A Store made of a storage service: what is the same for all of them is here, once.

When a request is made again, whose write a lost reply was, and what is proved before success is
told. Must never take an answer for success that another writer's object could have caused.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar, cast

from rtj_api.reasons import Reason

from rtj_sidecar.stores.answers import Absent, BadDigest, ConditionFailed
from rtj_sidecar.stores.base import (
    Capabilities,
    Condition,
    Conflict,
    ContentMismatch,
    Head,
    Listed,
    ObjectMissing,
    OnWait,
    Progress,
    Small,
    StoreProblem,
    Uploaded,
    Written,
    check_cancel,
    clean_key,
)
from rtj_sidecar.stores.memory import within_memory
from rtj_sidecar.stores.objects_upload import SessionUploads, put_once
from rtj_sidecar.stores.pace import Pace
from rtj_sidecar.stores.probing import probed
from rtj_sidecar.stores.retrying import Retrying
from rtj_sidecar.stores.s3_download import Downloads
from rtj_sidecar.stores.service import CopyService, Service
from rtj_sidecar.stores.service_errors import is_ours, no_answer, unforeseen

T = TypeVar("T")


class ObjectStore:
    """A store.base.Store over a service, its keys below `prefix`."""

    def __init__(
        self,
        service: Service,
        *,
        prefix: str = "",
        patience_s: float = 10.0,
        transfer_patience_s: float = 300.0,
        pace: Pace | None = None,
        on_wait: OnWait | None = None,
    ) -> None:
        self._service = service
        self._prefix = f"{prefix}/" if prefix else ""
        self._patience_s, self._transfer_patience_s = patience_s, transfer_patience_s
        self._retrying = Retrying(on_wait=on_wait)
        cores = len(os.sched_getaffinity(0))
        threads = within_memory(max(4, cores), each=service.held(0))
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "rtj-store")
        self._downloads = Downloads(
            streams=_Streams(self._transfer, service, self._full), pool=self._pool
        )
        self._uploads = SessionUploads(
            service=service,
            full_key=self._full,
            call=self._transfer,
            pool=self._pool,
            threads=threads,
            pace=pace,
        )

    @property
    def url(self) -> str:
        return f"{self._service.url}/{self._prefix}".rstrip("/")

    def put(self, key: str, data: bytes, *, condition: Condition = None) -> Written | Conflict:
        full = self._full(key)
        try:
            etag = self._small("write", key, lambda: put_once(self._service, full, data, condition))
        except (ConditionFailed, Absent):
            # Our own write may have succeeded and only its reply been lost.
            current = self.get(key)
            if current is not None and current.data == data:
                return Written(current.etag)
            return Conflict()
        return Written(etag)

    def get(self, key: str) -> Small | None:
        full = self._full(key)
        try:
            return Small(*self._small("read", key, lambda: self._service.get(full)))
        except Absent:
            return None

    def list(self, prefix: str) -> Iterator[Listed]:
        full, token = self._prefix + prefix, None
        while True:
            found, token = self._small(
                "list", prefix, lambda token=token: self._service.page(full, token)
            )
            for item in found:
                yield Listed(item.key[len(self._prefix) :], item.size)
            if token is None:
                return

    def head(self, key: str) -> Head | None:
        full = self._full(key)
        try:
            return self._small("look at", key, lambda: self._service.head(full))
        except Absent:
            return None

    @property
    def copies(self) -> bool:
        return hasattr(self._service, "copy")

    def copy(
        self, source: str, target: str, *, etag: str, cancel: threading.Event | None = None
    ) -> Head:
        service = cast(CopyService, self._service)
        one, other = self._full(source), self._full(target)
        try:
            return self._transfer(
                "copy", source, lambda: service.copy(one, other, etag), cancel=cancel
            )
        except (Absent, ConditionFailed) as error:
            raise ObjectMissing(source) from error
        except BadDigest as error:
            raise StoreProblem(
                Reason.STORE_UNSUPPORTED, f"{target}: the store's copy of {source} differs from it"
            ) from error

    def delete(self, key: str) -> None:
        full = self._full(key)
        with contextlib.suppress(Absent):
            self._small("delete", key, lambda: self._service.delete(full))

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

    def probe(self, prefix: str) -> Capabilities:
        with probed(self, prefix) as seen:
            return Capabilities(seen.create, seen.replace, "none")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._service.close()

    def _full(self, key: str) -> str:
        return self._prefix + clean_key(key)

    def _small(self, operation: str, key: str, attempt: Callable[[], T]) -> T:
        return self._call(operation, key, attempt, patience_s=self._patience_s, cancel=None)

    def _transfer(
        self,
        operation: str,
        key: str,
        attempt: Callable[[], T],
        *,
        cancel: threading.Event | None,
    ) -> T:
        return self._call(
            operation, key, attempt, patience_s=self._transfer_patience_s, cancel=cancel
        )

    def _call(
        self,
        operation: str,
        key: str,
        attempt: Callable[[], T],
        *,
        patience_s: float,
        cancel: threading.Event | None,
    ) -> T:
        def explained() -> T:
            try:
                return attempt()
            except Exception as error:
                # Libraries' errors repeat whole URLs, and what the other side said of a request:
                # either may hold a secret. Some are the cause of an error of the service's own.
                raise self._meaning(error, operation=operation, key=key) from None

        return self._retrying.call(explained, patience_s=patience_s, cancel=cancel)

    def _meaning(self, error: Exception, *, operation: str, key: str) -> Exception:
        """What the service makes of it. It may have to ask for that, and fail with anything."""
        try:
            meant = self._service.explain(error, operation=operation, key=key)
            return (
                meant if is_ours(meant) else unforeseen(meant, f"{operation} {key} in {self.url}")
            )
        except StoreProblem as problem:
            return problem
        except Exception as unknown:
            return no_answer(unknown, self.url)


class _Streams:
    """Reads in pieces of the service's size, each tried for itself; see `s3_download.Reads`."""

    def __init__(
        self, call: Callable[..., bytes], service: Service, full: Callable[[str], str]
    ) -> None:
        self._call, self._service, self._full = call, service, full

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
        if end is None:
            end = size = self._total(key, cancel)
        elif start == end:
            # No byte to ask for, and still it must be there, with that size.
            self._require(key, size if size is not None else end, cancel)
        at, full = start, self._full(key)
        while at < end:
            upto = min(at + self._service.read_size, end)
            data = self._call(
                "read",
                key,
                lambda at=at, upto=upto: self._service.read(full, at, upto),
                cancel=cancel,
            )
            short = len(data) < upto - at
            if short and size is not None:
                self._require(key, size, cancel)
                if not data:
                    raise StoreProblem(
                        Reason.STORE_UNREACHABLE,
                        f"{key}: the store's answers end at byte {at}; check the network and any "
                        "proxy",
                        transient=True,
                    )
            at = end if short and size is None else at + len(data)
            for begin in range(0, len(data), len(buffer)):
                check_cancel(cancel)
                piece = data[begin : begin + len(buffer)]
                buffer[: len(piece)] = piece
                yield memoryview(buffer)[: len(piece)]

    def _require(self, key: str, size: int, cancel: threading.Event | None) -> None:
        """Raises ContentMismatch where the object is not of that size."""
        if (total := self._total(key, cancel)) != size:
            raise ContentMismatch(key, expected=f"{size} bytes", got=f"{total} bytes")

    def _total(self, key: str, cancel: threading.Event | None) -> int:
        def look() -> bytes:
            return b"%d" % self._service.head(self._full(key)).size

        return int(self._call("look at", key, look, cancel=cancel))
