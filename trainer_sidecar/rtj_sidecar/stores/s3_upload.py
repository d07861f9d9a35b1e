"""Files to S3 in bounded memory: a small one in one request, a large one in parts.

Must never report success for bytes whose checksum the server has not compared.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rtj_sidecar.stores.base import Progress, Uploaded, check_cancel
from rtj_sidecar.stores.local import BLOCK, Source, blocks, crc64, crc64_text, open_source
from rtj_sidecar.stores.pace import Pace
from rtj_sidecar.stores.s3_body import PART, Body
from rtj_sidecar.stores.s3_parts import PartUploads
from rtj_sidecar.stores.s3_send import Sender
from rtj_sidecar.stores.s3_unfinished import Leftovers

IN_MEMORY = 4 << 20


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
        pace: Pace | None = None,
    ) -> None:
        self._part_size = part_size or (PART if pace is None else pace.part_size(PART))
        self._pace = pace
        self._sender = Sender(call=call, patience_s=patience_s)
        self.leftovers = Leftovers(call=call, full_key=full_key)
        self._parts = PartUploads(
            sender=self._sender,
            leftovers=self.leftovers,
            pool=pool,
            threads=threads,
            part_size=self._part_size,
            pace=pace,
        )

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
            return self._parts.upload(key, source, progress=progress, cancel=cancel)

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
        if in_memory and self._pace is not None:
            self._pace.take_all(source.size, cancel=cancel)

        def body() -> bytes | Body:
            if in_memory:
                return bytes(kept)
            return Body(source, start=0, end=source.size, pace=self._pace, cancel=cancel)

        answer = self._sender.send(
            "put_object",
            key,
            source,
            body=body,
            bounds=(0, source.size),
            crc=crc,
            cancel=cancel,
        )
        if progress:
            progress(source.size)
        return Uploaded(source.size, digest.hexdigest(), crc64_text(crc), answer["ETag"])
