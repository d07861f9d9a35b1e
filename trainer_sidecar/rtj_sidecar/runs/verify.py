"""Is what the store holds still what was written there?

The record made in the pass that read the bytes is the truth; the store's own checksum only proves
what it was last given, so an object put again with other bytes shows by a CRC64NVME or ETag that
is not the recorded one. Where neither tells, the bytes are read. Never changes anything.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from rtj_api.reasons import Reason

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.records import FileRecord
from rtj_sidecar.stores.base import READ_AT_ONCE, Head, ObjectMissing, StoreProblem, changing

# Below so many files of a save, one request each costs no more than a listing.
FEW = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with one file of a save in the store."""

    reason: Reason
    path: str
    key: str
    expected: str
    got: str

    @property
    def message(self) -> str:
        return f"{self.path} ({self.key}): expected {self.expected}, got {self.got}"

    @property
    def evidence(self) -> dict[str, str]:
        return {"file": self.path, "key": self.key, "expected": self.expected, "got": self.got}


def missing(file: FileRecord) -> Finding:
    return Finding(
        Reason.CHECKPOINT_OBJECT_MISSING,
        file.path,
        file.key,
        f"{file.size} bytes with SHA-256 {file.sha256}",
        "no object",
    )


def corrupt(file: FileRecord, *, expected: str, got: str) -> Finding:
    return Finding(Reason.CHECKPOINT_CORRUPT, file.path, file.key, expected, got)


def archived(file: FileRecord, storage_class: str) -> Finding:
    return Finding(
        Reason.CHECKPOINT_ARCHIVED,
        file.path,
        file.key,
        "an object that can be read",
        f"one in {storage_class}. Ask for it with `rtj checkpoints restore` (or `aws "
        f"s3api restore-object` for every object of the save); hours later it can be chosen",
    )


def is_archive(finding: Finding) -> bool:
    """It says that the bytes cannot be read now, and nothing against them."""
    return finding.reason == Reason.CHECKPOINT_ARCHIVED


def _archived(context: Context, file: FileRecord, head: Head) -> Finding | None:
    """None where it can be read all the same: some servers keep the class as a mere word."""
    try:
        context.store.read(context.full(file.key), start=0, end=1)
    except ObjectMissing:
        return missing(file)
    except StoreProblem as problem:
        if problem.reason != Reason.CHECKPOINT_ARCHIVED:
            raise
        return archived(file, head.storage_class or "an archive")
    return None


def check_files(
    context: Context,
    files: Sequence[FileRecord],
    *,
    read_all: bool = False,
    cancel: threading.Event | None = None,
) -> list[Finding]:
    """What is wrong, in the order of `files`; empty where all is well.

    With `read_all` every byte is read. Raises StoreProblem, Cancelled: unknown is not bad.
    """
    by_key = {file.key: file for file in files}
    proved = frozenset() if read_all else _listed_whole(context, list(by_key.values()))
    doubtful = [file for key, file in by_key.items() if key not in proved]
    found = context.map(
        lambda file: _check(context, file, read_all=read_all, cancel=cancel), doubtful
    )
    return [finding for finding in found if finding is not None]


def _listed_whole(context: Context, files: Sequence[FileRecord]) -> frozenset[str]:
    """Keys of which a listing says that the object is the recorded one: a request for a thousand
    files, not one for each. What a listing says otherwise, or not at all, convicts nobody."""
    by_save: dict[str, list[FileRecord]] = {}
    for file in files:
        if keys.save_of(file.key) is not None and file.etag is not None:
            name = file.key.removeprefix(keys.CHECKPOINTS).partition("/")[0]
            by_save.setdefault(keys.data_key(name, ""), []).append(file)
    proved: set[str] = set()
    skip = len(context.full(""))
    for prefix, group in by_save.items():
        if len(group) < FEW:
            continue
        there = {each.key[skip:]: each for each in context.store.list(context.full(prefix))}
        for file in group:
            seen = there.get(file.key)
            if (
                seen is not None
                and (seen.size, seen.etag) == (file.size, file.etag)
                and seen.storage_class in READ_AT_ONCE
            ):
                proved.add(file.key)
    return frozenset(proved)


def _check(
    context: Context, file: FileRecord, *, read_all: bool, cancel: threading.Event | None
) -> Finding | None:
    head = context.store.head(context.full(file.key))
    if head is None:
        return missing(file)
    if head.size != file.size:
        return corrupt(file, expected=f"{file.size} bytes", got=f"{head.size} bytes")
    if head.crc64nvme is not None and head.crc64nvme != file.crc64nvme:
        return corrupt(
            file, expected=f"CRC64NVME {file.crc64nvme}", got=f"CRC64NVME {head.crc64nvme}"
        )
    if head.is_archived and (finding := _archived(context, file, head)) is not None:
        return finding
    if not read_all and (head.crc64nvme is not None or head.etag == file.etag):
        return None
    try:
        got = context.store.sha256(context.full(file.key), cancel=cancel)
        if got == file.sha256:
            return None
        # Once more: bytes damaged on the way must not condemn a good object.
        again = context.store.sha256(context.full(file.key), cancel=cancel)
    except ObjectMissing:
        return missing(file)
    except StoreProblem as problem:
        if problem.reason != Reason.CHECKPOINT_ARCHIVED:
            raise
        return archived(file, "an archive")  # moved there since its header was read
    if again == file.sha256:
        return None
    if again != got:
        raise changing(file.key)
    return corrupt(file, expected=f"SHA-256 {file.sha256}", got=f"SHA-256 {got}")
