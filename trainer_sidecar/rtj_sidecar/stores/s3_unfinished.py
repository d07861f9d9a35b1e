"""Multipart uploads that an earlier life of a sidecar left: gone on with, or ended.

What of one is in the store is taken only where the store's own checksum of a part is that of the
local bytes, read now: CRC64NVME where the store tells it, else the MD5 that a plain ETag is. Must
never end an upload that may still be written, nor one of a key that is not the caller's.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rtj_sidecar.stores.answers import Absent, NoSuchUpload
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.stores.local import crc64_text

_PATIENCE_S = 5.0
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part as ListParts tells it. `crc64nvme` in base64, None where it is not told."""

    size: int
    etag: str
    crc64nvme: str | None = None

    @property
    def md5(self) -> str | None:
        """Of its bytes; None for an ETag that is none (of an encrypting store)."""
        found = _MD5.fullmatch(self.etag)
        return found[1] if found else None


class Proof:
    """Whether a stored part holds exactly the local bytes that are shown to it, in order."""

    def __init__(self, stored: StoredPart | None, *, size: int) -> None:
        self._stored = stored if stored is not None and stored.size == size else None
        wants_md5 = self._stored is not None and self._stored.crc64nvme is None
        # Only for what the store tells no better checksum of: it costs twice what SHA-256 does.
        self._md5 = hashlib.md5(usedforsecurity=False) if wants_md5 else None

    def show(self, block: memoryview) -> None:
        if self._md5 is not None:
            self._md5.update(block)

    def holds(self, crc: int) -> StoredPart | None:
        """The part, where it need not be sent again. `crc`: of all that was shown."""
        stored = self._stored
        if stored is None:
            return None
        if self._md5 is None:
            return stored if stored.crc64nvme == crc64_text(crc) else None
        return stored if stored.md5 == self._md5.hexdigest() else None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An upload that can be gone on with. `parts`: number -> what the store has of it."""

    upload: str
    parts: Mapping[int, StoredPart] = field(default_factory=dict)


class Leftovers:
    """What uploads left, over `call(operation, key, *, patience_s, cancel, **arguments)`."""

    def __init__(self, *, call: Callable[..., Any], full_key: Callable[[str], str]) -> None:
        self._call = call
        self._full_key = full_key

    def of(self, key: str) -> Unfinished | None:
        """The upload of exactly this key that got furthest; its other ones are ended.

        None too where the store cannot tell: then all is sent, as for the first time.
        """
        full = self._full_key(key)
        best: Unfinished | None = None
        with contextlib.suppress(StoreProblem, Absent, NoSuchUpload):
            # A prefix also finds the uploads of longer keys.
            found = [upload for upload in self._open(full) if upload["Key"] == full]
            for upload in found:
                one = self._parts_of(key, upload["UploadId"])
                if one is None:
                    continue
                worse: Unfinished | None = one
                if one.parts and (best is None or _bytes(one) > _bytes(best)):
                    worse, best = best, one
                if worse is not None:
                    self.end(key, worse.upload)
        return best

    def end(self, key: str, upload: str) -> None:
        """Free what it has stored; no error where it is over, or the store does not answer."""
        self._end(Key=self._full_key(key), UploadId=upload)

    def _end(self, **which: str) -> bool:
        with contextlib.suppress(StoreProblem, NoSuchUpload, Absent):
            self._ask("abort_multipart_upload", None, **which)
            return True
        return False

    def sweep(self, prefix: str, *, is_over: Callable[[str], bool]) -> int:
        """End the uploads below `prefix` of whose full key `is_over` is true; how many."""
        over = [upload for upload in self._open(prefix) if is_over(upload["Key"])]
        return sum(self._end(Key=each["Key"], UploadId=each["UploadId"]) for each in over)

    def _parts_of(self, key: str, upload: str) -> Unfinished | None:
        parts: dict[int, StoredPart] = {}
        page: dict[str, Any] = {}
        try:
            while True:
                answer = self._ask("list_parts", key, UploadId=upload, **page)
                for part in answer.get("Parts", []):
                    parts[part["PartNumber"]] = StoredPart(
                        size=part["Size"],
                        etag=part["ETag"],
                        crc64nvme=part.get("ChecksumCRC64NVME"),
                    )
                if not answer.get("IsTruncated"):
                    return Unfinished(upload, parts)
                page = {"PartNumberMarker": answer["NextPartNumberMarker"]}
        except (NoSuchUpload, Absent):
            return None

    def _open(self, prefix: str) -> Iterator[dict[str, Any]]:
        page: dict[str, Any] = {}
        while True:
            answer = self._ask("list_multipart_uploads", None, Prefix=prefix, **page)
            yield from answer.get("Uploads", [])
            if not answer.get("IsTruncated") or not answer.get("NextKeyMarker"):
                return
            page = {
                "KeyMarker": answer["NextKeyMarker"],
                "UploadIdMarker": answer.get("NextUploadIdMarker", ""),
            }

    def _ask(self, operation: str, key: str | None, **arguments: Any) -> Any:
        return self._call(operation, key, patience_s=_PATIENCE_S, cancel=None, **arguments)


def _bytes(upload: Unfinished) -> int:
    return sum(part.size for part in upload.parts.values())
