"""Where foreign checkpoints lie: a directory that this machine sees, or a path in a bucket.

Both are looked at alike, and a save is brought to where it can be proved: a directory's stay where
they are, a bucket's come to the disk. Nothing is written to a place.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from rtj_sidecar.checkpoints.formats.sniff import TORCH_SUFFIXES
from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.base import Layout
from rtj_sidecar.checkpoints.paths import safe_relative
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.scan import EMPTY, snapshot_of, take_snapshot
from rtj_sidecar.checkpoints.types import FileEntry, FoundSave, Snapshot
from rtj_sidecar.runs.imports.remote import RemoteReader
from rtj_sidecar.stores.base import Head, Listed, Progress, SourceChanged, Store, check_cancel

SETTLE_S = 1.0
_PIECE = 8 << 20
_AT_ONCE = 8
_LOOKED_INTO = 4096


@dataclass(frozen=True, slots=True)
class Look:
    """`broken`: root key -> what is wrong, of saves that show at a glance that they are torn. Their
    content cannot say where they belong, so they must not confuse the order of the others."""

    found: Snapshot
    broken: Mapping[str, str] = field(default_factory=dict)


class Place(Protocol):
    @property
    def url(self) -> str:
        """For words and records, without a slash at its end."""
        ...

    def look(self, layouts: Sequence[Layout]) -> Look: ...

    def small(self, name: str, *, limit: int) -> bytes | None:
        """A file directly in it; None where there is none. Raises ValueError beyond `limit`."""
        ...

    def fingerprint(self, save: FoundSave) -> str:
        """The state of its files now: the same as long as nobody writes them."""
        ...

    def bring(
        self,
        files: Sequence[FileEntry],
        into: Path,
        *,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> Path:
        """A directory below which they lie under their own paths. Raises SourceChanged, OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Directory:
    """`only`: a single top-level name of it is meant."""

    root: Path
    only: str | None = None
    settle_seconds: float | None = None  # SETTLE_S
    sleep: Callable[[float], None] = time.sleep

    @property
    def url(self) -> str:
        return str(self.root / self.only if self.only else self.root)

    def look(self, layouts: Sequence[Layout]) -> Look:
        """What did not change for a while: a save that is being written shows itself by that."""
        reader = Reader(self.root)
        before = take_snapshot(reader=reader, layouts=layouts, only=self.only)
        if not before.files:
            return Look(before)
        self.sleep(SETTLE_S if self.settle_seconds is None else self.settle_seconds)
        now = take_snapshot(reader=reader, layouts=layouts, only=self.only, previous=before)
        still = {save.identity for save in before.saves} & {save.identity for save in now.saves}
        moving = [save.root_key for save in now.saves if save.identity not in still]
        if moving:
            raise SourceChanged(str(self.root / moving[0]), "is being written right now")
        return Look(now, _broken(now, reader))

    def small(self, name: str, *, limit: int) -> bytes | None:
        path = self.root / name
        try:
            if not path.is_file():
                return None
            with path.open("rb") as file:
                data = file.read(limit + 1)
        except FileNotFoundError:
            return None
        if len(data) > limit:
            raise ValueError(f"{path} is larger than {limit} bytes")
        return data

    def fingerprint(self, save: FoundSave) -> str:
        digest = hashlib.sha256()
        for entry in save.all_files:
            seen = os.lstat(self.root / entry.path)
            digest.update(f"{entry.path}\0{seen.st_size}\0{seen.st_mtime_ns}\n".encode())
        return digest.hexdigest()[:32]

    def bring(
        self,
        files: Sequence[FileEntry],
        into: Path,
        *,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> Path:
        return self.root


@dataclass(frozen=True, slots=True)
class Bucket:
    """`prefix`: key of the place in `store`, without a slash at its end, perhaps empty."""

    store: Store
    prefix: str
    only: str | None = None

    @property
    def url(self) -> str:
        parts = (self.store.url, self.prefix, self.only)
        return "/".join(part for part in parts if part)

    def key(self, path: str) -> str:
        return f"{self.prefix}/{path}" if self.prefix else path

    def look(self, layouts: Sequence[Layout]) -> Look:
        files = self._files()
        remote = RemoteReader(self.store, key_of=self.key)
        reader = cast(Reader, remote)  # the layouts ask it nothing else
        # Each look is a request or two: many at once, for they only wait.
        likely = [entry for entry in files if entry.path.endswith(TORCH_SUFFIXES)]
        if 1 < len(likely) <= _LOOKED_INTO:
            with ThreadPoolExecutor(_AT_ONCE, "rtj-look") as pool:
                list(pool.map(lambda entry: common.peek_of(reader, entry), likely))
        found = snapshot_of(files, reader=reader, layouts=layouts)
        return Look(found, _broken(found, reader))

    def small(self, name: str, *, limit: int) -> bytes | None:
        head = self.store.head(self.key(name))
        if head is None:
            return None
        if head.size > limit:
            raise ValueError(f"{self.url}/{name} is larger than {limit} bytes")
        return self.store.read(self.key(name), start=0, end=head.size)

    def fingerprint(self, save: FoundSave) -> str:
        with ThreadPoolExecutor(_AT_ONCE, "rtj-head") as pool:
            heads = list(pool.map(lambda entry: self._head(entry), save.all_files))
        digest = hashlib.sha256()
        for entry, head in zip(save.all_files, heads, strict=True):
            digest.update(f"{entry.path}\0{head.size}\0{head.etag}\n".encode())
        return digest.hexdigest()[:32]

    def bring(
        self,
        files: Sequence[FileEntry],
        into: Path,
        *,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> Path:
        for entry in files:
            self._bring(entry, into / safe_relative(entry.path), progress, cancel)
        # They came in some order; no file of one save is newer than another.
        now = time.time_ns()
        for entry in files:
            os.utime(into / entry.path, ns=(now, now))
        return into

    def _bring(
        self,
        entry: FileEntry,
        path: Path,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = self._head(entry)
        starts = range(0, entry.size, _PIECE)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

        def piece(start: int) -> None:
            check_cancel(cancel)
            end = min(start + _PIECE, entry.size)
            data = self.store.read(self.key(entry.path), start=start, end=end)
            if len(data) != end - start:
                raise SourceChanged(entry.path, "became shorter while it was read")
            view, at = memoryview(data), start
            while view:
                count = os.pwrite(descriptor, view, at)
                view, at = view[count:], at + count
            if progress:
                progress(len(data))

        try:
            with ThreadPoolExecutor(_AT_ONCE, "rtj-bring") as pool:
                list(pool.map(piece, starts))
        finally:
            os.close(descriptor)
        if self._head(entry).etag != before.etag:
            raise SourceChanged(entry.path, "was replaced while it was read")

    def _head(self, entry: FileEntry) -> Head:
        head = self.store.head(self.key(entry.path))
        if head is None or head.size != entry.size:
            raise SourceChanged(entry.path, "is gone, or another one, since it was listed")
        return head

    def _files(self) -> tuple[FileEntry, ...]:
        skip = len(self.prefix) + 1 if self.prefix else 0
        start = self.key(self.only) if self.only else f"{self.prefix}/" if self.prefix else ""
        found = []
        for listed in self.store.list(start):
            path = listed.key[skip:]
            top = path.partition("/")[0]
            if self.only is not None and top != self.only:
                continue  # `ckpt-10` also begins the names of `ckpt-100`
            if _is_file(path, listed):
                found.append(_entry(path, listed))
        return tuple(sorted(found, key=lambda entry: entry.path))


def _is_file(path: str, listed: Listed) -> bool:
    """Not the marker of a "directory", nothing of ours, and no name that a disk cannot bear."""
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") and "\0" not in part for part in parts)
    short = all(len(os.fsencode(part)) <= 255 for part in parts)
    return plain and short and parts[0] != ".rtj" and len(parts) <= 32


def _entry(path: str, listed: Listed) -> FileEntry:
    inode = int.from_bytes(hashlib.sha256(path.encode()).digest()[:7], "big")
    stamp: dict[str, Any] = {"mtime_ns": 0, "ctime_ns": 0, "inode": inode, "device": 0}
    return FileEntry(path=path, size=listed.size, mode=0o644, **stamp)


def _broken(look: Snapshot, reader: Reader) -> dict[str, str]:
    broken: dict[str, str] = {}
    for save in look.saves:
        for entry in save.files[:_LOOKED_INTO]:
            if not entry.path.endswith((*TORCH_SUFFIXES, ".safetensors")):
                continue
            peek = common.peek_of(reader, entry)
            if peek is not None and peek.passed is False:
                broken[save.root_key] = peek.detail
                break
    return broken


def within(place: Place, layouts: Sequence[Layout]) -> tuple[Place, Look]:
    """The place, seen from above where that shows that it is itself one save or one file."""
    if isinstance(place, Directory) and place.only is None:
        if place.root.is_file():
            place = Directory(place.root.parent, place.root.name, place.settle_seconds, place.sleep)
        elif place.root.name:
            above = Directory(place.root.parent, place.root.name, 0.0, place.sleep)
            if _is_one_save(above, layouts):
                place = Directory(above.root, above.only, place.settle_seconds, place.sleep)
        return place, place.look(layouts)
    if isinstance(place, Bucket) and place.only is None and place.prefix:
        parent, _, last = place.prefix.rpartition("/")
        above = Bucket(place.store, parent, last)
        look = above.look(layouts)
        if [save.root_key for save in look.found.saves] == [last] or any(
            entry.path == last for entry in look.found.files
        ):
            return above, look
    return place, place.look(layouts)


def _is_one_save(above: Directory, layouts: Sequence[Layout]) -> bool:
    look = take_snapshot(
        reader=Reader(above.root), layouts=layouts, only=above.only, previous=EMPTY
    )
    return any(save.root_key == above.only for save in look.saves)
