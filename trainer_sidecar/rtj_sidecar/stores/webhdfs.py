"""HDFS over WebHDFS or HttpFS, by the client `hdfs`: `hdfs://namenode/directory`.

A new object is written beside its place under a hidden name, proved by the checksum that HDFS
keeps, and renamed: it appears whole or not at all. Replacing what was read stands on `hdfs_swap`,
for HDFS has no such operation. Must never append to or write into a file that has its name.
"""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests
from hdfs import Client, HdfsError, InsecureClient, TokenClient
from requests.adapters import HTTPAdapter
from rtj_api.stores import keys_of

from rtj_sidecar.stores.answers import Absent, BadDigest, NoSuchUpload
from rtj_sidecar.stores.base import Condition, Head, IfMatch, Listed
from rtj_sidecar.stores.hdfs_files import BLOCK_SIZE, Crcs, Files, short
from rtj_sidecar.stores.hdfs_swap import HIDDEN, Swap
from rtj_sidecar.stores.local import crc64
from rtj_sidecar.stores.secrets import Fresh, keep_requests_out_of_logs
from rtj_sidecar.stores.service import Piece
from rtj_sidecar.stores.sessions import trust
from rtj_sidecar.stores.webhdfs_errors import Place, explain

WEB_PORT = 9870
_TIMEOUT = (3.0, 60.0)


class WebHdfs:
    """A service.Service on one name node, or several that stand in for each other."""

    parallel = True
    read_size = 16 << 20

    def __init__(
        self,
        host: str,
        *,
        endpoint: str | None,
        ca_file: str | None,
        credentials_dir: Path | None,
    ) -> None:
        keep_requests_out_of_logs("hdfs.client")
        self._host, self._ca_file = host, ca_file
        # The port of an hdfs:// URL is that of the RPC protocol, which is not spoken here.
        self._endpoint = endpoint or f"http://{host.partition(':')[0]}:{WEB_PORT}"
        self._place = Place(host=host, endpoint=self._endpoint)
        self._fresh = Fresh(self._make, directory=credentials_dir, names=keys_of("hdfs"))
        self._joins = True

    @property
    def url(self) -> str:
        return f"hdfs://{self._host}"

    def piece_size(self, size: int) -> int:
        # A block each, so that HDFS's checksum of it is one.
        return BLOCK_SIZE if self._joins else max(size, 1)

    def held(self, size: int) -> int:
        return self.read_size  # pieces are streamed

    def put(self, key: str, data: bytes, condition: Condition) -> str:
        path, files = _path(key), self._files()
        hasher = Crcs()
        hasher.update(data)
        written = files.write_beside(path, data)
        try:
            if not files.has(written, hasher.hexdigest()) and files.read(written) != data:
                raise BadDigest(key)
            number = files.number(written)
            if not isinstance(condition, IfMatch):
                files.rename(written, path, over=condition is None)
        except BaseException:
            with contextlib.suppress(Exception):
                files.remove(written)
            raise
        if isinstance(condition, IfMatch):
            Swap(files).replace(path, written, expected=condition.etag)
        return number

    def get(self, key: str) -> tuple[bytes, str]:
        path, files = _path(key), self._files()
        number = Swap(files).settled(path)
        # What is read may be newer than its number: a write over that number then fails.
        return files.read(path), number

    def page(self, prefix: str, token: str | None) -> tuple[list[Listed], str | None]:
        base = posixpath.dirname(_path(prefix + "x"))
        found = [
            Listed(path.lstrip("/"), size)
            for path, size in self._files().walk(base)
            if path.lstrip("/").startswith(prefix)
        ]
        return sorted(found, key=lambda item: item.key.encode()), None

    def head(self, key: str) -> Head:
        path, files = _path(key), self._files()
        Swap(files).settled(path)
        status = files.status(path)
        if status["type"] != "FILE":
            raise Absent(key)
        return Head(int(status["length"]), str(status["fileId"]))

    def delete(self, key: str) -> None:
        path, files = _path(key), self._files()
        with contextlib.suppress(Absent):
            claim = Swap.claim_of(path, files.number(path))
            files.remove(path)
            files.remove(claim)

    def read(self, key: str, start: int, end: int) -> bytes:
        return self._files().read(_path(key), start, end)

    def begin(self, key: str, size: int) -> _Session:
        files = self._files()
        files.sweep(_path(key))
        return _Session(self, files, key=key, size=size)

    def explain(self, error: Exception, *, operation: str, key: str) -> Exception:
        return explain(error, operation=operation, key=key, place=self._place)

    def close(self) -> None:
        return None

    def joins_no_more(self) -> None:
        """Here files cannot be joined (an encryption zone, another server): one piece each."""
        self._joins = False

    def _files(self) -> Files:
        return Files(self._fresh.get())

    def _make(self, values: Mapping[str, str]) -> Client:
        session = requests.Session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(pool_maxsize=16))
        if self._ca_file:
            trust(session, self._ca_file)
        settings: dict[str, Any] = {"session": session, "timeout": _TIMEOUT}
        if token := values.get("HADOOP_DELEGATION_TOKEN"):
            return TokenClient(self._endpoint, token, **settings)
        if user := values.get("HADOOP_USER_NAME"):
            return InsecureClient(self._endpoint, user=user, **settings)
        return Client(self._endpoint, **settings)


class _Session:
    """Pieces of a block each as hidden files, proved one by one, joined and renamed at the end."""

    def __init__(self, service: WebHdfs, files: Files, *, key: str, size: int) -> None:
        self._service, self._files = service, files
        self._key, self._path, self._size = key, _path(key), size
        directory = posixpath.dirname(self._path).rstrip("/")
        self._base = f"{directory}/{HIDDEN}{short(self._path)}-{uuid.uuid4().hex}"
        self._crcs = Crcs()
        self._number: str | None = None

    def hashed(self, block: memoryview) -> None:
        self._crcs.update(block)

    def digest(self) -> str:
        done, self._crcs = self._crcs, Crcs()
        # That of several blocks is made otherwise: such a file is read back.
        return done.hexdigest() if done.size <= BLOCK_SIZE else ""

    def send(self, piece: Piece) -> None:
        name = self._name(piece.number)
        self._files.write(name, piece.stream())
        if not self._files.has(name, piece.digest) and self._crc_of(name, len(piece)) != piece.crc:
            raise BadDigest(self._key)

    def finish(self, pieces: list[Piece]) -> str:
        first = self._name(0)
        try:
            if self._number is None:
                self._number = self._files.number(first)
            if len(pieces) > 1 and int(self._files.status(first)["length"]) != self._size:
                self._join(pieces)
            self._files.rename(first, self._path, over=True)
        except Absent:
            # Renamed already, if only the reply was lost.
            if self._number is None or self._files.number(self._path) != self._number:
                raise NoSuchUpload(self._key) from None
        return self._number

    def again(self) -> bool:
        return False  # its pieces lie beside the file, where the next upload of it sweeps them

    def abort(self) -> None:
        self._files.sweep(self._path)

    def _join(self, pieces: list[Piece]) -> None:
        try:
            self._files.join(self._name(0), [self._name(p.number) for p in pieces[1:]])
        except HdfsError as error:
            if error.exception in (
                "UnsupportedOperationException",
                "HadoopIllegalArgumentException",
                "IllegalArgumentException",
            ):
                self._service.joins_no_more()
                raise NoSuchUpload(self._key) from error
            raise
        if int(self._files.status(self._name(0))["length"]) != self._size:
            raise BadDigest(self._key)

    def _crc_of(self, path: str, size: int) -> int:
        crc, step = 0, self._service.read_size
        for start in range(0, size, step):
            crc = crc64(self._files.read(path, start, min(start + step, size)), crc)
        return crc

    def _name(self, number: int) -> str:
        return f"{self._base}-{number:06}"


def _path(key: str) -> str:
    return f"/{key}"
