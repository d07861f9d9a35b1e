"""A resumable upload to Google Cloud Storage: one file, piece after piece.

Its URL is a secret. Must never take a lost reply for a lost piece: the server is asked how far it
has come.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping
from typing import Any

import requests
from awscrt import checksums
from google.auth.transport.requests import AuthorizedSession

from rtj_sidecar.stores.answers import BadDigest, NoSuchUpload
from rtj_sidecar.stores.service import Piece

TIMEOUT = (3.0, 60.0)  # seconds to connect, and without a byte
_UNIT = 256 << 10  # a resumable upload's pieces are multiples of it


class Session:
    """A resumable upload: pieces in order, the object is there with the last of them."""

    def __init__(
        self, blob: Any, http: AuthorizedSession, place: str, *, key: str, size: int
    ) -> None:
        self._blob, self._http, self._place = blob, http, place
        self._key, self._size = key, size
        self._crc = 0
        self._generation: str | None = None
        self._sent_from: int | None = None  # a piece whose fate is unknown

    def hashed(self, block: memoryview) -> None:
        self._crc = checksums.crc32c(block, self._crc)

    def digest(self) -> str:
        """Of the file up to here."""
        return text_of(self._crc)

    def send(self, piece: Piece) -> None:
        data, at = piece.content(), piece.start
        if self._sent_from is not None:
            at = self._reached(piece)
        while at < piece.end:
            self._sent_from = at
            headers = {
                "Content-Range": f"bytes {at}-{piece.end - 1}/{self._size}",
            }
            if piece.last:
                headers["X-Goog-Hash"] = f"crc32c={piece.digest}"
            answer = self._put(data[at - piece.start :], headers)
            at = self._after(answer, piece)
        self._sent_from = None

    def finish(self, pieces: list[Piece]) -> str:
        if self._generation is None:
            raise NoSuchUpload(self._key)
        return self._generation

    def again(self) -> bool:
        self._crc = 0
        return True

    def abort(self) -> None:
        # What is visible stays: another holder may have committed it by now, and without a record
        # nobody believes it.
        if self._generation is None:
            self._http.delete(self._place, timeout=TIMEOUT, allow_redirects=False)

    def _reached(self, piece: Piece) -> int:
        """How far the server has come, after a reply was lost."""
        return self._after(self._put(b"", {"Content-Range": "bytes */*"}), piece)

    def _put(self, data: bytes, headers: dict[str, str]) -> requests.Response:
        return self._http.put(
            self._place, data=data, headers=headers, timeout=TIMEOUT, allow_redirects=False
        )

    def _after(self, answer: requests.Response, piece: Piece) -> int:
        """The position that the server has now. Raises NoSuchUpload, BadDigest, HTTPError."""
        if answer.status_code in (200, 201):
            self._take(answer.json(), piece)
            return piece.end
        if answer.status_code == 308:
            told = answer.headers.get("Range", "")
            reached = int(told.rpartition("-")[2]) + 1 if told else 0
            if piece.start <= reached <= piece.end and reached % _UNIT == 0:
                return reached
            raise NoSuchUpload(self._key)
        if answer.status_code in (404, 410):
            # Over. Its last reply may have been the one that was lost.
            blob = self._blob
            with contextlib.suppress(Exception):
                blob.reload(timeout=TIMEOUT, retry=None)
                if (blob.crc32c, blob.size) == (piece.digest, self._size) and piece.last:
                    self._generation = str(blob.generation)
                    return piece.end
            raise NoSuchUpload(self._key)
        if answer.status_code == 400 and piece.last:
            raise BadDigest(self._key)
        answer.raise_for_status()
        raise NoSuchUpload(self._key)

    def _take(self, resource: Mapping[str, Any], piece: Piece) -> None:
        if not piece.last or int(resource["size"]) != self._size:
            raise BadDigest(self._key)
        if resource["crc32c"] != piece.digest:
            raise BadDigest(self._key)
        self._generation = str(resource["generation"])


def text_of(crc: int) -> str:
    """A CRC32C as the service writes it."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode()
