"""A part: a range of an open file as the body of a request, seekable, from the page cache.

Must never hold more than a block in memory.
"""

from __future__ import annotations

import math
import os
import threading

from rtj_sidecar.stores.base import SourceChanged
from rtj_sidecar.stores.local import BLOCK, Source
from rtj_sidecar.stores.pace import Pace

PART = 64 << 20
# S3 takes 10,000 parts; some below, so that a rounding never matters.
MOST_PARTS = 9_000


def part_size_of(size: int, *, least: int = PART) -> int:
    """Bytes a part: 64 MiB, grown in whole MiB so that 9,000 parts hold `size`."""
    return max(least, math.ceil(size / MOST_PARTS / (1 << 20)) << 20)


class Body:
    """What botocore signs and measures; `s3_wire` sends it straight from the file.

    `read` gives up to 1 MiB whatever smaller size is asked for: http.client asks for 16 KiB at a
    time, and four thousand small writes a part cost more than the checksum.
    """

    def __init__(
        self,
        source: Source,
        *,
        start: int,
        end: int,
        pace: Pace | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        self._source, self._start, self._end, self._at = source, start, end, start
        self._pace, self._cancel = pace, cancel
        self._buffer = bytearray()

    @property
    def path(self) -> str:
        return self._source.path

    @property
    def offset(self) -> int:
        """In the file, of the next byte to be sent."""
        return self._at

    @property
    def descriptor(self) -> int:
        return self._source.descriptor

    def __len__(self) -> int:
        return self._end - self._start

    def granted(self, wanted: int) -> int:
        """How many of `wanted` bytes may be sent now; waits for its turn. Raises Cancelled."""
        if self._pace is None or wanted <= 0:
            return wanted
        return self._pace.take(wanted, cancel=self._cancel)

    def read(self, size: int | None = -1) -> bytes | memoryview:
        if not self._buffer:
            self._buffer = bytearray(min(BLOCK, max(len(self), 1)))
        view = memoryview(self._buffer)
        room = self.granted(min(len(view), self._end - self._at))
        count = os.preadv(self._source.descriptor, [view[:room]], self._at)
        if count == 0 and self._at < self._end:
            raise SourceChanged(self._source.path, f"ends at {self._at}")
        self._at += count
        return view[:count]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: self._start, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        self._at = base + offset
        return self.tell()

    def tell(self) -> int:
        return self._at - self._start
