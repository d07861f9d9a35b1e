"""Files on HDFS by the client `hdfs`: the few operations that all stands on, and its checksum.

Must never append to or write into a file that has its own name.
"""

from __future__ import annotations

import hashlib
import posixpath
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from awscrt import checksums
from hdfs import Client, HdfsError
from hdfs.client import _Request

from rtj_sidecar.stores.answers import Absent, ConditionFailed
from rtj_sidecar.stores.hdfs_swap import HIDDEN
from rtj_sidecar.stores.webhdfs_errors import is_absent

BLOCK_SIZE = 128 << 20
_CRC_UNIT = 512
# The client has no method for it, and this is how it makes its own.
_concat = _Request("POST").to_method("CONCAT")


class Files:
    """The few operations on files that all stands on. Raises Absent, ConditionFailed and the
    client's errors."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def write(self, path: str, data: bytes | Iterator[bytes]) -> None:
        self._client.write(path, data=data, overwrite=True, blocksize=BLOCK_SIZE)

    def write_beside(self, path: str, data: bytes) -> str:
        """A new hidden file in the directory of `path`; its path."""
        directory = posixpath.dirname(path)
        hidden = f"{directory.rstrip('/')}/{HIDDEN}{short(path)}-{uuid.uuid4().hex}"
        self.write(hidden, data)
        return hidden

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        length = None if end is None else end - start
        try:
            with self._client.read(path, offset=start, length=length) as came:
                data: bytes = came.read()
        except HdfsError as error:
            if is_absent(error):
                raise Absent(path) from error
            if start and start >= int(self.status(path)["length"]):
                return b""
            raise
        return data

    def status(self, path: str) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = self._client.status(path)
        except HdfsError as error:
            if is_absent(error):
                raise Absent(path) from error
            raise
        return found

    def number(self, path: str) -> str:
        """Of the inode: it moves with a rename, and never comes again."""
        return str(self.status(path)["fileId"])

    def has(self, path: str, digest: str) -> bool:
        """Whether HDFS's own checksum says that the bytes are those; False: it says nothing."""
        if not digest:
            return False
        try:
            told = self._client.checksum(path)
        except HdfsError:
            return False
        return told["algorithm"] == f"MD5-of-0MD5-of-{_CRC_UNIT}CRC32C" and (
            told["bytes"][24:56] == digest
        )

    def rename(self, path: str, to: str, *, over: bool) -> None:
        """Raises ConditionFailed where `to` is there and may not be, Absent where `path` is not."""
        try:
            self._client._rename(
                path, destination=to, renameoptions="OVERWRITE" if over else "NONE"
            )
        except HdfsError as error:
            if error.exception == "FileAlreadyExistsException":
                raise ConditionFailed(to) from error
            if is_absent(error):
                raise Absent(path) from error
            raise

    def join(self, first: str, others: list[str]) -> None:
        _concat(self._client, first, sources=",".join(others))

    def remove(self, path: str) -> None:
        self._client.delete(path)

    def walk(self, directory: str) -> Iterator[tuple[str, int]]:
        """(path, size) of every file below that is an object."""
        try:
            found = self._client.list(directory, status=True)
        except HdfsError as error:
            if is_absent(error) or "is not a directory" in str(error):
                return
            raise
        for name, status in found:
            path = posixpath.join(directory, name)
            if status["type"] == "DIRECTORY":
                yield from self.walk(path)
            elif not name.startswith(HIDDEN):
                yield path, int(status["length"])

    def sweep(self, path: str) -> None:
        """Remove what an upload that was killed left of `path`; nobody else ever writes it."""
        directory, start = posixpath.dirname(path), f"{HIDDEN}{short(path)}-"
        try:
            names = self._client.list(directory)
        except HdfsError as error:
            if is_absent(error):
                return
            raise
        for name in names:
            if name.startswith(start):
                self.remove(posixpath.join(directory, name))


class Crcs:
    """HDFS's checksum of a block: the MD5 of its CRC32Cs, one for each 512 bytes.

    As `FileChecksumHelper` makes it of a file of one block: the MD5 of that MD5 in a buffer of 32
    bytes, the rest zero (hadoop-hdfs-client 3.4.2).
    """

    def __init__(self) -> None:
        self._inner, self._rest, self.size = hashlib.md5(usedforsecurity=False), b"", 0

    def update(self, data: bytes | memoryview) -> None:
        self.size += len(data)
        view = memoryview(self._rest + data) if self._rest else memoryview(data)
        whole = len(view) - len(view) % _CRC_UNIT
        crc32c, unit = checksums.crc32c, _CRC_UNIT
        crcs = [crc32c(view[at : at + unit]).to_bytes(4, "big") for at in range(0, whole, unit)]
        self._inner.update(b"".join(crcs))
        self._rest = bytes(view[whole:])

    def hexdigest(self) -> str:
        if self._rest:
            self._inner.update(checksums.crc32c(self._rest).to_bytes(4, "big"))
            self._rest = b""
        padded = self._inner.digest() + bytes(16)
        return hashlib.md5(padded, usedforsecurity=False).hexdigest()


def short(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:12]
