"""A store in memory that fails when told to: for simulations of crashes between any two writes.

It exists so that thousands of histories can be played in seconds. It keeps the promises of
`rtj_sidecar.stores.base.Store` and must never be more forgiving than a real one.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from rtj_api.reasons import Reason
from rtj_sidecar.stores.base import (
    ARCHIVES,
    Capabilities,
    Condition,
    Conflict,
    ContentMismatch,
    Head,
    IfAbsent,
    IfMatch,
    Listed,
    ObjectMissing,
    Progress,
    Small,
    StoreProblem,
    Uploaded,
    Written,
    clean_key,
)
from rtj_sidecar.stores.local import crc64, crc64_text


class Crash(BaseException):
    """The process that made this call is dead; nothing catches it but the test."""


class MemoryStore:
    """`objects` maps keys to bytes. `before_write` and `after_write` get the key, may raise.
    What is in `classes` under an archive's class cannot be read unless it is in `restored`."""

    url = "memory://store"

    def __init__(self, objects: dict[str, tuple[bytes, str]] | None = None) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {} if objects is None else objects
        self.before_write: Callable[[str], None] = lambda key: None
        self.after_write: Callable[[str], None] = lambda key: None
        self.writes = 0
        self.classes: dict[str, str] = {}
        self.restored: set[str] = set()
        self.has_classes = True
        self.copies = True
        self.copied: list[str] = []
        self.honours_conditions = True  # False: they are ignored, as old S3 servers do

    def seen_by_another(self) -> MemoryStore:
        """Another client of the same objects, with failures of its own."""
        other = MemoryStore(self.objects)
        other.classes, other.restored = self.classes, self.restored
        other.copies, other.honours_conditions = self.copies, self.honours_conditions
        return other

    def put(self, key: str, data: bytes, *, condition: Condition = None) -> Written | Conflict:
        self.before_write(key)
        there = self.objects.get(clean_key(key))
        match condition if self.honours_conditions else None:
            case IfAbsent() if there is not None:
                return Written(there[1]) if there[0] == data else Conflict()
            case IfMatch(etag) if there is None or there[1] != etag:
                return Written(there[1]) if there and there[0] == data else Conflict()
        self._set(key, data)
        return Written(self.objects[key][1])

    def get(self, key: str) -> Small | None:
        there = self.objects.get(clean_key(key))
        return Small(*there) if there else None

    def list(self, prefix: str) -> Iterator[Listed]:
        found = [
            Listed(k, len(v[0]), v[1], self._listed_class(k))
            for k, v in self.objects.items()
            if k.startswith(prefix)
        ]
        yield from sorted(found, key=lambda item: item.key)

    def _listed_class(self, key: str) -> str | None:
        """A listing does not tell the tier of intelligent tiering."""
        is_tier = self.classes.get(key, "").endswith("_ACCESS")
        return "INTELLIGENT_TIERING" if is_tier else self.classes.get(key)

    def head(self, key: str) -> Head | None:
        there = self.objects.get(clean_key(key))
        if there is None:
            return None
        return Head(
            len(there[0]),
            there[1],
            crc64_text(crc64(there[0])),
            storage_class=self.classes.get(key),
            restored=key in self.restored,
        )

    def copy(
        self, source: str, target: str, *, etag: str, cancel: threading.Event | None = None
    ) -> Head:
        self.before_write(target)
        if (there := self.objects.get(source)) is None or there[1] != etag:
            raise ObjectMissing(source)
        self._readable(source)
        self._set(target, there[0])
        self.copied.append(target)
        head = self.head(target)
        assert head is not None
        return head

    def reclass(self, key: str, *, storage_class: str) -> None:
        if key not in self.objects:
            raise ObjectMissing(key)
        self.before_write(key)
        if self.has_classes:
            self.classes[key] = storage_class
        self.after_write(key)

    def ask_back(self, key: str, *, days: int) -> None:
        if key not in self.objects:
            raise ObjectMissing(key)
        self.restored.add(key)

    def _readable(self, key: str) -> None:
        if self.classes.get(key) in ARCHIVES and key not in self.restored:
            raise StoreProblem(Reason.CHECKPOINT_ARCHIVED, f"{key}: InvalidObjectState")

    def delete(self, key: str) -> None:
        self.before_write(key)
        self.objects.pop(key, None)
        self.after_write(key)

    def upload_file(
        self,
        key: str,
        path: Path,
        *,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> Uploaded:
        data = path.read_bytes()
        self.before_write(key)
        self._set(key, data)
        if progress:
            progress(len(data))
        return Uploaded(
            len(data),
            hashlib.sha256(data).hexdigest(),
            crc64_text(crc64(data)),
            self.objects[key][1],
        )

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
        if (there := self.objects.get(key)) is None:
            raise ObjectMissing(key)
        self._readable(key)
        if hashlib.sha256(there[0]).hexdigest() != sha256:
            raise ContentMismatch(key, expected=sha256, got=hashlib.sha256(there[0]).hexdigest())
        path.write_bytes(there[0])

    def read(self, key: str, *, start: int, end: int) -> bytes:
        if (there := self.objects.get(key)) is None:
            raise ObjectMissing(key)
        self._readable(key)
        return there[0][start:end]

    def sha256(self, key: str, *, cancel: threading.Event | None = None) -> str:
        if (there := self.objects.get(key)) is None:
            raise ObjectMissing(key)
        self._readable(key)
        return hashlib.sha256(there[0]).hexdigest()

    def end_uploads(self, prefix: str, *, is_over: Callable[[str], bool]) -> int:
        return 0

    def probe(self, prefix: str) -> Capabilities:
        return Capabilities(self.honours_conditions, self.honours_conditions, "crc64nvme")

    def close(self) -> None:
        return None

    def _set(self, key: str, data: bytes) -> None:
        self.writes += 1
        self.objects[clean_key(key)] = (data, f"{self.writes}-{hashlib.md5(data).hexdigest()}")
        self.after_write(key)
