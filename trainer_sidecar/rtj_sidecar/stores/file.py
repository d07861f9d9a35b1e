"""A directory as a store: `file:///mnt/share/runs`, for laptops, Slurm, NFS and tests.

Same promises as S3: an object appears whole or not at all, is durable when a call returns, and two
conditional writers never both win. Works by link(2) (create), flock(2) (replace what was read) and
rename(2). Must never follow a key out of its root.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from rtj_sidecar.stores.base import (
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
    Uploaded,
    Written,
    check_cancel,
    clean_key,
)
from rtj_sidecar.stores.file_writes import (
    HIDDEN,
    etag_of,
    locked,
    problem_of,
    temporary_beside,
    write_all,
)
from rtj_sidecar.stores.local import (
    BLOCK,
    blocks,
    crc64,
    crc64_text,
    fsync_directory,
    hash_file,
    open_source,
    share,
)
from rtj_sidecar.stores.pace import Pace

_RECOVERED = "lost+found"  # a file system's own, in its root: root's alone and no key of ours


class FileStore:
    """A store.base.Store below one directory, which is made when it does not exist."""

    def __init__(self, root: Path, *, links: bool = False, pace: Pace | None = None) -> None:
        """`links`: what is stored lies on the same volume and stays as it is: it is shared with
        the store (a reflink where the file system has them, else a hard link), not copied."""
        self._root = root
        self._links = links
        self._pace = pace

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def put(self, key: str, data: bytes, *, condition: Condition = None) -> Written | Conflict:
        target = self._at(key)
        with self._problems(key), temporary_beside(target) as (temporary, descriptor):
            write_all(descriptor, data)
            os.fsync(descriptor)
            etag = etag_of(os.fstat(descriptor))
            match condition:
                case None:
                    os.replace(temporary, target)
                case IfAbsent():
                    try:
                        os.link(temporary, target)
                    except FileExistsError:
                        return self._ours(key, data)
                case IfMatch(expected):
                    with locked(self._root):
                        current = self._stat(target)
                        if current is None or etag_of(current) != expected:
                            return self._ours(key, data)
                        os.replace(temporary, target)
            fsync_directory(target.parent)
            return Written(etag)

    def get(self, key: str) -> Small | None:
        with self._problems(key):
            try:
                with self._at(key).open("rb") as file:
                    return Small(file.read(), etag_of(os.fstat(file.fileno())))
            except (FileNotFoundError, NotADirectoryError):
                self._prove_there()
                return None

    def list(self, prefix: str) -> Iterator[Listed]:
        base = prefix.rpartition("/")[0]
        start = self._at(base) if base else self._root
        with self._problems(prefix):
            found: list[Listed] = []
            for directory, below, names in os.walk(start, onerror=self._unlisted):
                if Path(directory) == self._root and _RECOVERED in below:
                    below.remove(_RECOVERED)
                for name in names:
                    path = Path(directory) / name
                    key = path.relative_to(self._root).as_posix()
                    if name.startswith(HIDDEN) or not key.startswith(prefix):
                        continue
                    if (status := self._stat(path)) is not None:
                        found.append(Listed(key, status.st_size, etag_of(status)))
        yield from sorted(found, key=lambda item: item.key)

    def head(self, key: str) -> Head | None:
        with self._problems(key):
            status = self._stat(self._at(key))
        return None if status is None else Head(status.st_size, etag_of(status))

    def delete(self, key: str) -> None:
        with self._problems(key), contextlib.suppress(FileNotFoundError):
            self._at(key).unlink()

    def upload_file(
        self,
        key: str,
        path: Path,
        *,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> Uploaded:
        target = self._at(key)
        if self._links and (done := self._share(key, path, progress=progress, cancel=cancel)):
            return done
        digest, crc, buffer = hashlib.sha256(), 0, bytearray(BLOCK)
        # The source's own errors (gone, unreadable) leave as they are; the store's are mapped.
        with open_source(path) as source:
            with self._problems(key), temporary_beside(target) as (temporary, descriptor):
                for block in blocks(source, start=0, end=source.size, buffer=buffer):
                    check_cancel(cancel)
                    if self._pace is not None:
                        self._pace.take_all(len(block), cancel=cancel)
                    digest.update(block)
                    crc = crc64(block, crc)
                    write_all(descriptor, block)
                    if progress:
                        progress(len(block))
                os.fsync(descriptor)
                source.check()
                etag = etag_of(os.fstat(descriptor))
                os.replace(temporary, target)
                fsync_directory(target.parent)
            return Uploaded(source.size, digest.hexdigest(), crc64_text(crc), etag)

    def _share(
        self,
        key: str,
        path: Path,
        *,
        progress: Progress | None,
        cancel: threading.Event | None,
    ) -> Uploaded | None:
        """The object without a copy of its bytes; None where the file system can do neither.

        Hashed after it is shared: what is then read is what the store has. Source and store are one
        volume, so its errors are the store's; only a source that cannot be opened says so itself.
        """
        target = self._at(key)
        with self._problems(key):
            target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f"{HIDDEN}{uuid.uuid4().hex}"
        try:
            with open_source(path), self._problems(key):
                if not share(path, temporary):
                    return None
            with self._problems(key):
                size, sha256, crc = hash_file(temporary, cancel=cancel)
                descriptor = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                    etag = etag_of(os.fstat(descriptor))
                finally:
                    os.close(descriptor)
                os.replace(temporary, target)
                # rename(2) of two names of one inode does nothing and leaves both.
                temporary.unlink(missing_ok=True)
                fsync_directory(target.parent)
        finally:
            temporary.unlink(missing_ok=True)
        if progress:
            progress(size)
        return Uploaded(size, sha256, crc, etag)

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
        digest, count = hashlib.sha256(), 0
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            for block in self._read(key):
                check_cancel(cancel)
                digest.update(block)
                count += len(block)
                write_all(descriptor, block)
                if progress:
                    progress(len(block))
            if (count, digest.hexdigest()) != (size, sha256):
                raise ContentMismatch(
                    key,
                    expected=f"{size} bytes with SHA-256 {sha256}",
                    got=f"{count} bytes with SHA-256 {digest.hexdigest()}",
                )
            os.fsync(descriptor)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def read(self, key: str, *, start: int, end: int) -> bytes:
        with self._problems(key):
            try:
                with self._at(key).open("rb") as file:
                    return os.pread(file.fileno(), max(0, end - start), start)
            except (FileNotFoundError, NotADirectoryError) as error:
                self._prove_there()
                raise ObjectMissing(key) from error

    def sha256(self, key: str, *, cancel: threading.Event | None = None) -> str:
        digest = hashlib.sha256()
        for block in self._read(key):
            check_cancel(cancel)
            digest.update(block)
        return digest.hexdigest()

    def end_uploads(self, prefix: str, *, is_over: Callable[[str], bool]) -> int:
        return 0

    def probe(self, prefix: str) -> Capabilities:
        key = f"{prefix}probe-{uuid.uuid4().hex}"
        first = self.put(key, b"1", condition=IfAbsent())
        try:
            create = isinstance(self.put(key, b"2", condition=IfAbsent()), Conflict)
            etag = first.etag if isinstance(first, Written) else ""
            replaced = self.put(key, b"3", condition=IfMatch(etag))
            stale = self.put(key, b"4", condition=IfMatch(etag))
            replace = isinstance(replaced, Written) and isinstance(stale, Conflict)
        finally:
            self.delete(key)
        return Capabilities(create, replace, "none")

    def close(self) -> None:
        return None

    def _at(self, key: str) -> Path:
        return self._root / clean_key(key)

    def _read(self, key: str) -> Iterator[memoryview]:
        try:
            descriptor = os.open(self._at(key), os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            with self._problems(key):
                self._prove_there()
            raise ObjectMissing(key) from error
        except OSError as error:
            raise problem_of(self._root, key, error) from error
        buffer = memoryview(bytearray(BLOCK))
        try:
            while True:
                try:
                    count = os.readv(descriptor, [buffer])
                except OSError as error:
                    raise problem_of(self._root, key, error) from error
                if not count:
                    return
                yield buffer[:count]
        finally:
            os.close(descriptor)

    def _ours(self, key: str, data: bytes) -> Written | Conflict:
        current = self.get(key)
        if current is not None and current.data == data:
            return Written(current.etag)
        return Conflict()

    def _stat(self, path: Path) -> os.stat_result | None:
        try:
            return path.stat()
        except (FileNotFoundError, NotADirectoryError):
            self._prove_there()
            return None

    def _unlisted(self, error: OSError) -> None:
        """A directory that was not read may hold anything; only one that is gone holds nothing."""
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise error
        self._prove_there()

    def _prove_there(self) -> None:
        """A key is absent only from a store that is there. Raises OSError."""
        if self._root.exists() and not self._root.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self._root))

    @contextlib.contextmanager
    def _problems(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise problem_of(self._root, key, error) from error
