"""Files of a save whose bytes the store has already, so that they are named and not sent.

An unchanged tokenizer, config or frozen model, a copy under another name: the record names the key
of the save before. Never on a name's, a size's or a time's word: by the SHA-256 of the local bytes,
read now, and by the store's own word that the object is still what was recorded. Retention removes
no key that another manifest, or a part on its way, names.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.records import FileRecord
from rtj_sidecar.stores.local import crc64, crc64_text, hash_file

# Up to this size hashing costs less than asking whether it is worth it.
HASHED_AT_ONCE = 4 << 20
_PIECE = 64 << 10


def sample_of(path: Path, size: int) -> str | None:
    """CRC64NVME of the first, middle and last 64 KiB; None for a file that is hashed at once.

    Only says that hashing the whole may be worth it: weights differ in it from step to step.
    Raises OSError.
    """
    if size <= HASHED_AT_ONCE:
        return None
    descriptor, crc = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), 0
    try:
        for start in (0, (size - _PIECE) // 2, size - _PIECE):
            crc = crc64(os.pread(descriptor, _PIECE, start), crc)
    finally:
        os.close(descriptor)
    return crc64_text(crc)


class Earlier:
    """What this rank's part of an earlier, committed save holds."""

    def __init__(self, files: Sequence[FileRecord] = ()) -> None:
        self._by_size: dict[int, list[FileRecord]] = {}
        for file in files:
            self._by_size.setdefault(file.size, []).append(file)

    def equal(self, path: Path, size: int, *, cancel: threading.Event | None) -> FileRecord | None:
        """A record of the same bytes. Raises OSError, SourceChanged, Cancelled."""
        known = self._by_size.get(size)
        if not known:
            return None
        if size > HASHED_AT_ONCE:
            sample = sample_of(path, size)
            known = [file for file in known if file.sample == sample]
            if not known:
                return None
        _, sha256, _ = hash_file(path, cancel=cancel)
        return next((file for file in known if file.sha256 == sha256), None)


def is_there(context: Context, file: FileRecord) -> bool:
    """Whether the store says that it holds, ready to be read, what the record says. Raises
    StoreProblem."""
    head = context.store.head(context.full(file.key))
    if head is None or head.size != file.size or head.is_archived:
        return False
    if head.crc64nvme is not None:
        return head.crc64nvme == file.crc64nvme
    return head.etag == file.etag
