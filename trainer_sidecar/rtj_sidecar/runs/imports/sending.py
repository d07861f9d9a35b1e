"""The files of a proved save to the run's store, hashed on the way, the same bytes only once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rtj_sidecar.checkpoints.types import FileEntry, FoundSave
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.imports.surveying import How
from rtj_sidecar.runs.records import FileRecord
from rtj_sidecar.stores.base import Cancelled, SourceChanged, check_cancel
from rtj_sidecar.stores.local import hash_file

_FILES_AT_ONCE = 4


def send(
    context: Context,
    name: str,
    save: FoundSave,
    beside: Sequence[FileEntry],
    root: Path,
    *,
    how: How,
) -> list[FileRecord]:
    """Every file of the save, which lie below `root`, and what lies beside it; in order of their
    paths. Raises SourceChanged, Cancelled, OSError, StoreProblem."""
    stop = threading.Event()

    def one(entry: FileEntry, *, alias: bool) -> FileRecord:
        check_cancel(how.cancel)
        check_cancel(stop)
        key = keys.data_key(name, entry.path)
        try:
            done = context.store.upload_file(
                context.full(key),
                root / entry.path,
                progress=how.progress,
                cancel=how.cancel,
            )
        except BaseException:
            stop.set()
            raise
        if done.size != entry.size:
            raise SourceChanged(entry.path, f"has {done.size} bytes, had {entry.size}")
        return FileRecord(
            path=entry.path,
            key=key,
            size=done.size,
            sha256=done.sha256,
            crc64nvme=done.crc64nvme,
            mode=entry.mode & 0o7777,
            alias=alias,
            etag=done.etag,
        )

    with ThreadPoolExecutor(_FILES_AT_ONCE, "rtj-import") as pool:
        futures = [pool.submit(one, entry, alias=False) for entry in save.files]
    errors = [error for future in futures if (error := future.exception()) is not None]
    # One that was cancelled may only have been stopped by the one that failed.
    for error in sorted(errors, key=lambda each: isinstance(each, Cancelled)):
        raise error
    sent = [future.result() for future in futures]
    for entry in (*save.aliases, *beside):
        same = [record for record in sent if record.size == entry.size]
        sha256 = hash_file(root / entry.path, cancel=how.cancel)[1] if same else ""
        twin = next((record for record in same if record.sha256 == sha256), None)
        sent.append(
            one(entry, alias=True)
            if twin is None
            else twin.model_copy(
                update={"path": entry.path, "mode": entry.mode & 0o7777, "alias": True}
            )
        )
    return sorted(sent, key=lambda record: record.path)
