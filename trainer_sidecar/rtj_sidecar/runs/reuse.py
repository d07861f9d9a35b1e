"""Files of a save whose bytes the store has already, so that the store copies them to itself.

An unchanged tokenizer, config or frozen model, a copy under another name: the new save gets an
object of its own, so that no save rests on another's. Never on a name's, a size's or a time's word:
by the SHA-256 of the local bytes, read now, by the store's own word that the object is still what
was recorded, and by its checksum of the copy. Whatever else happens, the file is sent.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import FileRecord, MarkKind, MarkRecord
from rtj_sidecar.runs.ships import read_part
from rtj_sidecar.stores.base import Head, ObjectMissing, StoreProblem, copier
from rtj_sidecar.stores.local import crc64, crc64_text, hash_file

# Up to this size hashing costs less than asking whether it is worth it.
HASHED_AT_ONCE = 4 << 20
# Some stores (Ceph) copy by sharing the bytes, and damage to those damages all copies. So the bytes
# are sent again now and then.
MOST_COPIES = 15
_PIECE = 64 << 10
_HARMLESS = (MarkKind.GOOD, MarkKind.PINNED, MarkKind.UNPINNED)

log = logging.getLogger(__name__)


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
        """Small files often have all one size: what is equal is looked up, not searched for."""
        self._samples: dict[int, set[str | None]] = {}
        self._by_content: dict[tuple[int, str], FileRecord] = {}
        for file in files:
            if file.copies < MOST_COPIES:
                self._samples.setdefault(file.size, set()).add(file.sample)
                self._by_content.setdefault((file.size, file.sha256), file)

    def equal(self, path: Path, size: int, *, cancel: threading.Event | None) -> FileRecord | None:
        """A record of the same bytes. Raises OSError, SourceChanged, Cancelled."""
        samples = self._samples.get(size)
        if samples is None:
            return None
        if size > HASHED_AT_ONCE and sample_of(path, size) not in samples:
            return None
        _, sha256, _ = hash_file(path, cancel=cancel)
        return self._by_content.get((size, sha256))


def is_there(head: Head | None, file: FileRecord) -> bool:
    """Whether the store says that it holds, ready to be read, what the record says."""
    if head is None or head.size != file.size or head.is_archived:
        return False
    if head.crc64nvme is not None:
        return head.crc64nvme == file.crc64nvme
    return head.etag == file.etag


def copied(
    context: Context, file: FileRecord, key: str, *, cancel: threading.Event | None
) -> FileRecord | None:
    """The earlier save's object copied to `key` by the store itself, and proved; None where it is
    not: then the file is sent. Raises Cancelled; StoreProblem where the store fails."""
    store, source = context.store, context.full(file.key)
    by = copier(store)
    before = store.head(source) if by is not None else None
    if by is None or before is None or not is_there(before, file):
        return None
    try:
        after = by.copy(source, context.full(key), etag=before.etag, cancel=cancel)
    except ObjectMissing:
        return None
    except StoreProblem as problem:
        log.info("%s is sent, for it was not copied: %s", key, problem.message)
        return None
    same = after.crc64nvme in (None, file.crc64nvme) and after.size == file.size
    # What a lifecycle rule has moved elsewhere is no measure for what is new.
    usual = after.storage_class in (None, "STANDARD", before.storage_class)
    if not same or not usual or after.is_archived:
        log.info("%s is sent, for its copy is not as it should be: %s", key, after)
        return None
    return as_copy(file, key, after)


def as_copy(file: FileRecord, key: str, head: Head) -> FileRecord:
    return file.model_copy(update={"key": key, "etag": head.etag, "copies": file.copies + 1})


def earlier_of(context: Context, save: SaveId) -> Earlier:
    """What this rank's part of a committed save has that may be copied. Raises StoreProblem."""
    if copier(context.store) is None:
        return Earlier()
    part = read_part(context, save, context.rank)
    if part is None or not part.files or not _is_sound(context, save):
        return Earlier()
    return Earlier(part.files)


def _is_sound(context: Context, save: SaveId) -> bool:
    """Nobody has ever said a word against it, nor moved it or let it go."""
    marks = [key for key in context.keys(keys.marks_of(save)) if keys.parse_mark(key) is not None]
    read = context.map(lambda key: context.read(key, MarkRecord), marks)
    return all(found is not None and found[0].kind in _HARMLESS for found in read)
