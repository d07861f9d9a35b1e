"""A save's files onto this pod's disk, from peers before the store, each byte proved.

Into a directory that nobody else looks at; the caller moves it into place. A file is written under
a temporary name, hashed while it streams, made durable, then renamed, so a file that has its name
is whole. A peer's wrong bytes condemn only the peer; the store's condemn the save.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rtj_api.reasons import Reason

from rtj_sidecar.runs.at_once import at_once
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.peers import Peers
from rtj_sidecar.runs.records import FileRecord
from rtj_sidecar.runs.verify import Finding, corrupt, missing
from rtj_sidecar.stores.base import (
    ContentMismatch,
    ObjectMissing,
    Progress,
    check_cancel,
    clean_key,
)
from rtj_sidecar.stores.local import fsync_directory, hash_file

_FILES_AT_ONCE = 4
_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Fetched:
    """`bytes_kept` were there already, with the right hash."""

    files: int
    bytes_from_peers: int
    bytes_from_store: int
    bytes_kept: int


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """`finding`: the store's object is bad, so the save is; None: the fault is on this side."""

    reason: Reason
    message: str
    finding: Finding | None = None

    @property
    def evidence(self) -> dict[str, Any]:
        return dict(self.finding.evidence) if self.finding else {}


class _Failed(Exception):
    def __init__(self, outcome: FetchFailed) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


def fetch(
    context: Context,
    name: str,
    files: Sequence[FileRecord],
    dest: Path,
    *,
    peers: Sequence[str] | Peers = (),
    from_store: bool = True,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> Fetched | FetchFailed:
    """Bring `files` below `dest`. `peers`: `http://ip:port`, asked before the store.

    Raises StoreProblem where the store cannot be asked, Cancelled.
    """
    others = peers if isinstance(peers, Peers) else Peers(peers)

    def one(file: FileRecord) -> tuple[str, int]:
        check_cancel(cancel)
        return _fetch_one(context, name, file, dest, others, from_store, progress, cancel)

    try:
        ordered = sorted(files, key=lambda file: -file.size)
        threads = _FILES_AT_ONCE if context.workers > 1 else 1
        got = at_once(one, ordered, threads=threads, name="rtj-fetch")
        for directory in {(dest / file.path).parent for file in files} | {dest}:
            fsync_directory(directory)
    except _Failed as failed:
        return failed.outcome
    except OSError as error:
        return _disk(error, dest)
    total = {
        source: sum(size for where, size in got if where == source)
        for source in ("peer", "store", "kept")
    }
    return Fetched(len(got), total["peer"], total["store"], total["kept"])


def _fetch_one(
    context: Context,
    name: str,
    file: FileRecord,
    dest: Path,
    peers: Peers,
    from_store: bool,
    progress: Progress | None,
    cancel: threading.Event | None,
) -> tuple[str, int]:
    try:
        target = dest / clean_key(file.path)
    except ValueError:
        finding = corrupt(file, expected="a path below the directory", got=repr(file.path))
        raise _Failed(FetchFailed(finding.reason, finding.message, finding)) from None
    target.parent.mkdir(parents=True, exist_ok=True)
    same_size = target.is_file() and target.stat().st_size == file.size
    if same_size and hash_file(target, cancel=cancel)[1] == file.sha256:
        return "kept", file.size
    temporary = target.parent / f".rtj-{uuid.uuid4().hex}"
    try:
        source = "store"
        given = peers.give(
            name, file, temporary, has_other=from_store, progress=progress, cancel=cancel
        )
        if given:
            source = "peer"
        elif from_store:
            _from_store(context, file, temporary, progress, cancel)
        else:
            raise _Failed(
                FetchFailed(
                    Reason.RESTORE_FAILED,
                    f"{file.path} of {name} is not in the store yet and none of {len(peers)} "
                    "peers gave it whole",
                )
            )
        os.chmod(temporary, file.mode & 0o7777)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return source, file.size


def _from_store(
    context: Context,
    file: FileRecord,
    path: Path,
    progress: Progress | None,
    cancel: threading.Event | None,
) -> None:
    try:
        context.store.download(
            context.full(file.key),
            path,
            size=file.size,
            sha256=file.sha256,
            crc64nvme=file.crc64nvme,
            progress=progress,
            cancel=cancel,
        )
    except ObjectMissing:
        finding = missing(file)
    except ContentMismatch as error:
        finding = corrupt(file, expected=error.expected, got=error.got)
    else:
        return
    raise _Failed(FetchFailed(finding.reason, finding.message, finding))


def _disk(error: OSError, dest: Path) -> FetchFailed:
    if error.errno in _FULL:
        return FetchFailed(Reason.DISK_FULL, f"{dest}: no space left: enlarge the volume")
    if error.errno in _READ_ONLY:
        return FetchFailed(
            Reason.DIRECTORY_READ_ONLY,
            f"{dest}: {error.strerror}: mount the checkpoint volume writable for the sidecar",
        )
    return FetchFailed(Reason.RESTORE_FAILED, f"{dest}: {error}")
