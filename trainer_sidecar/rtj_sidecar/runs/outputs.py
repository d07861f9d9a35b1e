"""The outputs of a run that succeeded: `outputs/f<fence>/…`, readable with any S3 tool.

The lowest rank's files under their own names; another rank's only where its bytes differ, below
`.rank<r>/`. A list of what each rank left is written last: `outputs/f<fence>/.rtj/<rank>.json`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.records import FileRecord, OutputsRecord
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.stores.base import Progress
from rtj_sidecar.stores.local import hash_file

OUTPUTS = "outputs/"


def put_outputs(
    context: Context,
    *,
    fence: int,
    attempt: int,
    files: Sequence[LocalFile],
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> OutputsRecord:
    """Ship this rank's outputs, then the list of them. May be done again.

    Raises SourceChanged, Cancelled, OSError (of a local file), StoreProblem.
    """
    base = f"{OUTPUTS}f{fence}/"
    sent = [_send(context, base, file, progress=progress, cancel=cancel) for file in files]
    record = OutputsRecord(
        fence=fence,
        attempt=attempt,
        rank=context.rank,
        files=sent,
        written_at=context.now(),
    )
    key = context.full(f"{base}.rtj/{context.rank}.json")
    context.store.put(key, record.dump_json().encode())
    return record


def _send(
    context: Context,
    base: str,
    file: LocalFile,
    *,
    progress: Progress | None,
    cancel: threading.Event | None,
) -> FileRecord:
    key = f"{base}{file.path}"
    if context.rank != 0:
        head = context.store.head(context.full(key))
        if head is not None and head.size == file.size:
            size, sha256, crc64nvme = hash_file(file.source, cancel=cancel)
            if crc64nvme == head.crc64nvme:
                return _record(file, key, size, sha256, crc64nvme)
        key = f"{base}.rank{context.rank}/{file.path}"
    done = context.store.upload_file(
        context.full(key), file.source, progress=progress, cancel=cancel
    )
    return _record(file, key, done.size, done.sha256, done.crc64nvme)


def _record(file: LocalFile, key: str, size: int, sha256: str, crc64nvme: str) -> FileRecord:
    return FileRecord(
        path=file.path,
        key=key,
        size=size,
        sha256=sha256,
        crc64nvme=crc64nvme,
        mode=file.mode & 0o7777,
    )
