"""What a store is: small records with conditions, and large files streamed both ways.

The only place where the words of a store are defined, so that the rest of the sidecar cannot tell
S3 from a directory. A driver must never report success for bytes it has not proved stored, never
hold a large file in memory, and never put a credential into a message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from rtj_api.reasons import Reason

Progress = Callable[[int], None]
"""Called with the bytes moved since the last call; negative when a piece is sent again."""


class StoreProblem(Exception):
    """The store did not do what was asked. The message names the remedy.

    `transient`: the same call may succeed later without anybody changing anything.
    """

    def __init__(self, reason: Reason, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.transient = transient


class Cancelled(Exception):
    """The caller's cancel event was set; nothing half-done is visible in the store."""


class SourceChanged(Exception):
    """A local file is not what it was when it was pinned: what was read of it is worthless."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path


class ContentMismatch(Exception):
    """An object's bytes are not the expected ones, twice in a row."""

    def __init__(self, key: str, *, expected: str, got: str) -> None:
        super().__init__(f"{key}: expected {expected}, got {got}")
        self.key = key
        self.expected = expected
        self.got = got


class ObjectMissing(Exception):
    """There is no such object."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} is not in the store")
        self.key = key


@dataclass(frozen=True, slots=True)
class IfAbsent:
    """Write only if the key does not exist."""


@dataclass(frozen=True, slots=True)
class IfMatch:
    """Write only if the object is still the one that was read."""

    etag: str


Condition = IfAbsent | IfMatch | None
# Called from any thread: with what a call has been waiting out for some seconds, still going on,
# and with None once the store has answered again.
OnWait = Callable[[StoreProblem | None], None]


@dataclass(frozen=True, slots=True)
class Written:
    etag: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """The condition did not hold, and what is there is not what we wanted to write."""


@dataclass(frozen=True, slots=True)
class Small:
    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Listed:
    """`etag` as `Head`'s, None where a listing does not tell it."""

    key: str
    size: int
    etag: str | None = None
    storage_class: str | None = None


ARCHIVES = ("GLACIER", "DEEP_ARCHIVE", "ARCHIVE_ACCESS", "DEEP_ARCHIVE_ACCESS", "Archive")
"""Classes that may have to be waited for, for hours: S3's, and Azure's, which writes it so.
GLACIER_IR is none, nor is Google's ARCHIVE: they are read at once."""

READ_AT_ONCE = (None, "STANDARD", "STANDARD_IA", "ONEZONE_IA", "GLACIER_IR", "REDUCED_REDUNDANCY")
"""Classes of which a listing alone says that the object can be read. INTELLIGENT_TIERING is none:
which tier the object has moved to only its own header tells."""


@dataclass(frozen=True, slots=True)
class Head:
    """`crc64nvme` in base64, None where the store keeps none for this object."""

    size: int
    etag: str
    crc64nvme: str | None = None
    storage_class: str | None = None
    restored: bool = False  # a copy of an archived object can be read for some time

    @property
    def is_archived(self) -> bool:
        """Its bytes cannot be read before somebody asks the store to restore them."""
        return self.storage_class in ARCHIVES and not self.restored


@dataclass(frozen=True, slots=True)
class Uploaded:
    size: int
    sha256: str
    crc64nvme: str
    etag: str


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the store was seen to do. `checksum`: "crc64nvme" or "none"."""

    conditional_create: bool
    conditional_replace: bool
    checksum: str


class Store(Protocol):
    """Keys are `/`-separated, relative to the store's URL. All methods are thread-safe.

    Every method raises StoreProblem where the store fails. Order of a listing is that of the keys'
    bytes and means nothing else.
    """

    @property
    def url(self) -> str:
        """The URL without credentials, for messages and the index."""
        ...

    def put(self, key: str, data: bytes, *, condition: Condition = None) -> Written | Conflict:
        """Write a small object (at most a few MiB), durable when this returns.

        A condition that fails on exactly our own bytes (the reply to an earlier try was lost)
        is success.
        """
        ...

    def get(self, key: str) -> Small | None:
        """A small object whole; None where there is none."""
        ...

    def list(self, prefix: str) -> Iterator[Listed]:
        """Every object whose key begins with `prefix`, over all pages."""
        ...

    def head(self, key: str) -> Head | None: ...

    def delete(self, key: str) -> None:
        """Absent already is success."""
        ...

    def upload_file(
        self,
        key: str,
        path: Path,
        *,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> Uploaded:
        """Store a file whole under `key`, hashed in the same pass; visible only when complete.

        Raises SourceChanged, Cancelled, OSError (of the local file), StoreProblem.
        """
        ...

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
        """Fetch `key` into the new file `path`, checked in the same pass, fsynced.

        `crc64nvme`, taken together with `sha256` when the file was uploaded: a driver may take
        bytes that have it as proved. Only another SHA-256 makes them wrong.
        Raises ObjectMissing, ContentMismatch, Cancelled, OSError, StoreProblem; the file is gone
        then.
        """
        ...

    def read(self, key: str, *, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end` of an object, not proved by anything: to look into
        what another wrote. Shorter where it ends before. Raises ObjectMissing, StoreProblem."""
        ...

    def sha256(self, key: str, *, cancel: threading.Event | None = None) -> str:
        """The SHA-256 of an object's bytes as the store sends them. Raises ObjectMissing."""
        ...

    def end_uploads(self, prefix: str, *, is_over: Callable[[str], bool]) -> int:
        """End unfinished uploads of keys below `prefix` of which `is_over` is true; how many.

        0 from a store that keeps none, or ends them by itself. What is not over stays, and the next
        `upload_file` of the same bytes to the same key may go on with it.
        """
        ...

    def probe(self, prefix: str) -> Capabilities:
        """Find out by trying, below `prefix`; leaves nothing there."""
        ...

    def close(self) -> None: ...


class Reclasses(Protocol):
    """A store whose objects have classes of different speed and price."""

    def reclass(self, key: str, *, storage_class: str) -> None:
        """Move an object to that class without its bytes coming here. Raises ObjectMissing,
        StoreProblem."""
        ...

    def ask_back(self, key: str, *, days: int) -> None:
        """Ask for an archived object to be readable for some days. Raises as `reclass`."""
        ...


class Copies(Protocol):
    """A store that may copy an object inside itself, so that its bytes need not come again."""

    @property
    def copies(self) -> bool: ...

    def copy(
        self,
        source: str,
        target: str,
        *,
        etag: str,
        cancel: threading.Event | None = None,
    ) -> Head:
        """Copy `source`, if that is its ETag, to `target`; the copy as the store tells it then.

        Returns only where the store's own checksums say that both have the same bytes. Raises
        ObjectMissing (`source` is gone, or another by now), Cancelled, StoreProblem; then `target`
        may be there, proved by nothing.
        """
        ...


def copier(store: Store) -> Copies | None:
    """The store as one that copies; None where it cannot."""
    return cast(Copies, store) if getattr(store, "copies", False) else None


def changing(key: str) -> StoreProblem:
    """Two reads of one object gave two contents: that convicts the way to it, not the object."""
    return StoreProblem(
        Reason.STORE_UNREACHABLE,
        f"{key}: two reads gave two different contents, so bytes change on the way: check the "
        "network, proxies and memory between this pod and the store",
        transient=True,
    )


def check_cancel(cancel: threading.Event | None) -> None:
    if cancel is not None and cancel.is_set():
        raise Cancelled


def clean_key(key: str) -> str:
    """The key itself if no component of it is empty, `.` or `..`; else ValueError."""
    if not key or "\0" in key or any(part in ("", ".", "..") for part in key.split("/")):
        raise ValueError(f"{key!r} is not a clean key")
    return key
