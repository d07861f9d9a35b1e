"""One rank's share of a ship: its files to the store, then its part record.

The part is written last, so a part in the store means that every byte of it is there. What an
interrupted try has sent is not sent again, and what an earlier save has the same bytes of is copied
inside the store. Ends
without a part when a file is not what it was. Must never write a key that a part already names.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rtj_api.reasons import Reason

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.at_once import at_once
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import FileRecord, PartRecord, SaveFacts, ShipRecord
from rtj_sidecar.runs.reuse import Earlier, as_copy, copied, sample_of
from rtj_sidecar.runs.sent import Sent, State, state_of
from rtj_sidecar.runs.ships import answer, read_part
from rtj_sidecar.stores.base import Progress, SourceChanged, StoreProblem, check_cancel
from rtj_sidecar.stores.local import hash_file

NOTHING = Earlier()
_FILES_AT_ONCE = 4
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR}


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of a pinned save. `path` as the trainer sees it, relative; `source` the pin."""

    path: str
    source: Path
    size: int
    mode: int
    alias: bool = False


def upload_part(
    context: Context,
    ship: ShipRecord,
    *,
    files: Sequence[LocalFile],
    save: SaveFacts,
    earlier: Earlier = NOTHING,
    tried: Sent | None = None,
    progress: Progress | None = None,
    kept: Progress | None = None,
    cancel: threading.Event | None = None,
) -> PartRecord:
    """Upload and answer. What this rank answered before stands and nothing is sent again.

    `tried`: what earlier calls have sent. `progress` counts what is sent, `kept` what need not be.

    Raises SourceChanged (also for a file that is gone or has another size), Cancelled,
    StoreProblem.
    """
    at = SaveId(ship.fence, ship.n)
    if (there := read_part(context, at, context.rank)) is not None:
        return there
    sending = _Sending(
        context,
        ship,
        earlier=earlier,
        there=_already(context, ship),
        contested=frozenset(ship.contested),
        tried=tried or Sent(),
        progress=progress or _ignore,
        kept=kept or _ignore,
        cancel=cancel,
    )

    # Files that others have too come last: by then those are there and need not be sent again.
    shared = sending.contested
    own = [file for file in files if not file.alias]
    sent: list[FileRecord] = []
    threads = _FILES_AT_ONCE if context.workers > 1 else 1
    for group in (
        [file for file in own if file.path not in shared],
        [file for file in own if file.path in shared],
    ):
        group.sort(key=lambda file: -file.size)
        sent += at_once(sending.send, group, threads=threads, name="rtj-upload")
    sent += _aliases([file for file in files if file.alias], own, sent, sending=sending)
    part = answer(
        context,
        PartRecord(
            fence=ship.fence,
            n=ship.n,
            rank=context.rank,
            files=sorted(sent, key=lambda record: record.path),
            save=save,
            written_at=context.now(),
        ),
    )
    sending.tried.forget(ship.name)
    return part


@dataclass(frozen=True, slots=True)
class _Sending:
    """One file after the other into the store. `there`: see `_already`; `contested`: the ship's."""

    context: Context
    ship: ShipRecord
    earlier: Earlier
    there: frozenset[tuple[str, int]]
    contested: frozenset[str]
    tried: Sent
    progress: Progress
    kept: Progress
    cancel: threading.Event | None

    def send(self, file: LocalFile) -> FileRecord:
        """The file in the store, however it got there."""
        check_cancel(self.cancel)
        key, known = self._keys(file)
        with _vanished(file):
            state = state_of(file.source)
            record = self._tried(file, key, state) or self._spared(file, key, known)
            if record is not None:
                self.kept(file.size)
                return record
            done = self.context.store.upload_file(
                self.context.full(key), file.source, progress=self.progress, cancel=self.cancel
            )
        if done.size != file.size:
            raise SourceChanged(file.path, f"has {done.size} bytes, had {file.size} when pinned")
        with _vanished(file):
            sample = sample_of(file.source, file.size)
        record = FileRecord(
            path=file.path,
            key=key,
            size=done.size,
            sha256=done.sha256,
            crc64nvme=done.crc64nvme,
            mode=file.mode & 0o7777,
            alias=file.alias,
            etag=done.etag,
            sample=sample,
        )
        self.tried.note(self.ship.name, state, record)
        return record

    def _tried(self, file: LocalFile, key: str, state: State) -> FileRecord | None:
        """The file, where an earlier call of this process sent it and it lies there as it did."""
        record = self.tried.find(self.ship.name, key, state)
        if record is None or record.etag is None or (key, file.size) not in self.there:
            return None
        head = self.context.store.head(self.context.full(key))
        is_same = head is not None and (head.etag, head.size) == (record.etag, record.size)
        return record.model_copy(update=_as(file)) if is_same else None

    def _keys(self, file: LocalFile) -> tuple[str, list[str]]:
        """Where it goes, and where in this save it may be already."""
        ship, rank = self.ship, None
        mine = self.context.rank
        if file.path in self.contested and mine != min(ship.expected, default=mine):
            rank = mine
        elif mine not in ship.expected:
            # The holder did not know of us when it named the ship: keep out of the others' way.
            rank = mine
        key = keys.data_key(ship.name, file.path, rank=rank)
        known = [keys.data_key(ship.name, file.path)] if rank is not None else []
        return key, known + ([key] if (key, file.size) in self.there else [])

    def _spared(self, file: LocalFile, key: str, known: list[str]) -> FileRecord | None:
        """The file where no byte of it need be sent."""
        equal = self.earlier.equal(file.source, file.size, cancel=self.cancel)
        for each in known:
            if (stored := _stored(self.context, each, file, equal, self.cancel)) is not None:
                return stored
        if equal is None:
            return None
        copy = copied(self.context, equal, key, cancel=self.cancel)
        return copy.model_copy(update=_as(file)) if copy is not None else None


def _as(file: LocalFile) -> dict[str, Any]:
    return {"path": file.path, "mode": file.mode & 0o7777, "alias": file.alias}


def _ignore(_: int) -> None:
    return None


def _already(context: Context, ship: ShipRecord) -> frozenset[tuple[str, int]]:
    """(key, size) of what lies there of this save: an interrupted try's, and other ranks'."""
    skip = len(context.full(""))
    found = context.store.list(context.full(keys.data_key(ship.name, "")))
    return frozenset((listed.key[skip:], listed.size) for listed in found)


def _stored(
    context: Context,
    key: str,
    file: LocalFile,
    equal: FileRecord | None,
    cancel: threading.Event | None,
) -> FileRecord | None:
    """The object at `key`, where the store itself says that it holds our very bytes; `equal`: a
    record of those, where there is one."""
    head = context.store.head(context.full(key))
    if head is None or head.crc64nvme is None or head.size != file.size or head.is_archived:
        return None
    if equal is not None:
        if head.crc64nvme != equal.crc64nvme:
            return None
        return as_copy(equal, key, head).model_copy(update=_as(file))
    size, sha256, crc64nvme = hash_file(file.source, cancel=cancel)
    if (size, crc64nvme) != (head.size, head.crc64nvme):
        return None
    return FileRecord(
        path=file.path,
        key=key,
        size=size,
        sha256=sha256,
        crc64nvme=crc64nvme,
        mode=file.mode & 0o7777,
        alias=file.alias,
        etag=head.etag,
        sample=sample_of(file.source, size),
    )


def _aliases(
    aliases: Sequence[LocalFile],
    own: Sequence[LocalFile],
    sent: Sequence[FileRecord],
    *,
    sending: _Sending,
) -> list[FileRecord]:
    """An alias (`last.pt`) or companion that is the same inode, or has the same bytes, as a file
    that was sent gets its record; looked up, for those may be a hundred thousand."""
    by_content = {(record.size, record.sha256): record for record in sent}
    by_path = {record.path: record for record in sent}
    by_inode: dict[tuple[int, int], FileRecord] = {}
    for file in own if aliases else ():
        with contextlib.suppress(OSError):  # it was sent: that it is gone by now is no trouble
            by_inode.setdefault(_inode(file), by_path[file.path])
    sizes = {record.size for record in sent}
    found = []
    for file in aliases:
        record = None
        if file.size in sizes:
            with _vanished(file):
                record = by_inode.get(_inode(file))
                if record is None:
                    record = by_content.get((file.size, hash_file(file.source)[1]))
        if record is None:
            record = sending.send(file)
            by_content.setdefault((record.size, record.sha256), record)
            sizes.add(record.size)
        else:
            sending.kept(file.size)
        found.append(record.model_copy(update={**_as(file), "alias": True}))
    return found


def _inode(file: LocalFile) -> tuple[int, int]:
    status = os.stat(file.source)
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def _vanished(file: LocalFile) -> Iterator[None]:
    """Only a pin that is gone, or something else by now, is worthless: any other trouble passes."""
    try:
        yield
    except OSError as error:
        if error.errno in _GONE:
            raise SourceChanged(file.path, f"cannot be read any more: {error}") from error
        raise StoreProblem(
            Reason.PATH_NOT_WRITABLE,
            f"cannot read {file.source} to upload it: {error.strerror or error}. Check that the "
            f"volume is healthy and that the sidecar's user (uid {os.getuid()}) may read it",
            transient=True,
        ) from error
