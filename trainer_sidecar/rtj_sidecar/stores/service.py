"""What a storage service must offer so that `objects.ObjectStore` makes a Store of it.

One file a service (`gcs`, `azure`, `webhdfs`), each by its own client library. A service says what
one request does; when a request is made again, how a file is cut and hashed and what proves it is
decided in `objects`. A service must never try again by itself: after a lost reply, only the caller
can tell its own write from somebody else's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from rtj_sidecar.stores.base import Condition, Head, Listed, SourceChanged
from rtj_sidecar.stores.local import BLOCK, Source, blocks, crc64
from rtj_sidecar.stores.pace import Pace


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a local file, hashed once; `digest` is the service's own, see `Session`. What is
    taken of it to be sent leaves at the rate of `pace`, until `cancel` is set."""

    source: Source
    number: int  # from 0
    start: int
    end: int
    crc: int
    digest: str
    last: bool
    pace: Pace | None = None
    cancel: threading.Event | None = None

    def content(self) -> bytes:
        """The very bytes that were hashed, when all of them may be sent. Raises SourceChanged,
        Cancelled."""
        content = bytearray()
        for block in self._proved():
            content += block
        if self.pace is not None:
            self.pace.take_all(len(self), cancel=self.cancel)
        return bytes(content)

    def stream(self) -> Iterator[bytes]:
        """The same bytes, block by block as each may be sent. Raises SourceChanged after the last,
        Cancelled."""
        for block in self._proved():
            rest = block
            while rest:
                wanted = len(rest)
                may = wanted if self.pace is None else self.pace.take(wanted, cancel=self.cancel)
                yield bytes(rest[:may])
                rest = rest[may:]

    def _proved(self) -> Iterator[memoryview]:
        buffer, crc = bytearray(min(BLOCK, max(len(self), 1))), 0
        for block in blocks(self.source, start=self.start, end=self.end, buffer=buffer):
            crc = crc64(block, crc)
            yield block
        if crc != self.crc:
            raise SourceChanged(self.source.path, "its bytes changed while read")

    def __len__(self) -> int:
        return self.end - self.start


class Session(Protocol):
    """One upload in progress. `hashed` and `digest` are called by one thread, in order."""

    def hashed(self, block: memoryview) -> None:
        """Every block of the file, once, in order."""
        ...

    def digest(self) -> str:
        """After the last block of each piece: what the service's own checksum of it is."""
        ...

    def send(self, piece: Piece) -> None:
        """May be called again for the same piece, whatever the earlier call has done.

        Raises NoSuchUpload where the upload must begin anew.
        """
        ...

    def finish(self, pieces: list[Piece]) -> str:
        """Make the object visible, whole; its ETag. May be called again.

        Raises BadDigest where the service has other bytes than were hashed.
        """
        ...

    def again(self) -> bool:
        """The same file is to be hashed and sent from its start, without the pieces that the
        service has; False where that cannot be."""
        ...

    def abort(self) -> None:
        """Free what the service keeps of it."""
        ...


class CopyService(Protocol):
    """A service that copies inside itself; see `base.Copies`."""

    def copy(self, source: str, target: str, etag: str) -> Head:
        """The copy. The service must have compared checksums. May be called again.

        Raises Absent, ConditionFailed where the source has another ETag, BadDigest."""
        ...


class Service(Protocol):
    """Requests, each made once. Keys are whole; all methods are thread-safe.

    Errors come as the library raises them, or as those of `answers`; `explain` turns any of them
    into one of `answers`, a StoreProblem, or itself; of what is none of ours then only the kind is
    told.
    """

    @property
    def url(self) -> str: ...

    @property
    def parallel(self) -> bool:
        """Whether pieces of one file may be sent at once."""
        ...

    @property
    def read_size(self) -> int:
        """Bytes asked for in one request."""
        ...

    def piece_size(self, size: int) -> int:
        """Bytes a piece of a file of `size` bytes."""
        ...

    def held(self, size: int) -> int:
        """Bytes in memory while a piece of such a file is sent, or a range is read."""
        ...

    def put(self, key: str, data: bytes, condition: Condition) -> str:
        """The new ETag. The service must have checked the bytes. Raises ConditionFailed."""
        ...

    def get(self, key: str) -> tuple[bytes, str]:
        """(content, ETag)."""
        ...

    def page(self, prefix: str, token: str | None) -> tuple[list[Listed], str | None]:
        """Keys in the order of their bytes, and how to ask for the next page."""
        ...

    def head(self, key: str) -> Head: ...

    def delete(self, key: str) -> None: ...

    def read(self, key: str, start: int, end: int) -> bytes:
        """These bytes; fewer where the object ends before. Raises Absent."""
        ...

    def begin(self, key: str, size: int) -> Session: ...

    def explain(self, error: Exception, *, operation: str, key: str) -> Exception: ...

    def close(self) -> None: ...
