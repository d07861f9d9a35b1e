"""The bytes of an object in order, going on where a connection broke.

Must never yield a byte as one of another position: an answer that is not the asked range is
noticed.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rtj_api.reasons import Reason

from rtj_sidecar.stores.base import Cancelled, ContentMismatch, StoreProblem, check_cancel

# After a try that brought nothing, before the next.
_PAUSE_S = 0.2


class RangeIgnored(Exception):
    """The server answers a range that does not begin at 0 with the whole object."""


class Streams:
    """Reads over `call(operation, key, *, patience_s, cancel, **arguments)`."""

    def __init__(self, *, call: Callable[..., Any], patience_s: float) -> None:
        self._call = call
        self._patience_s = patience_s

    def read(
        self,
        key: str,
        *,
        buffer: bytearray,
        start: int = 0,
        end: int | None = None,
        size: int | None = None,
        cancel: threading.Event | None,
    ) -> Iterator[memoryview]:
        """The object's bytes from `start` to `end`, in pieces that each reuse `buffer`.

        With `size`, an object of another size raises ContentMismatch. Raises errors.Absent,
        RangeIgnored, Cancelled, StoreProblem.
        """
        view, at = memoryview(buffer), start
        deadline = time.monotonic() + self._patience_s
        while end is None or at < end or at == end == start:
            before = at
            ranged = {} if end in (None, 0) and at == 0 else {"Range": _range(at, end)}
            answer = self._call(
                "get_object", key, patience_s=self._patience_s, cancel=cancel, **ranged
            )
            body = answer["Body"]
            try:
                first, total = _place(key, answer)
                if size is not None and total not in (size, None):
                    raise ContentMismatch(key, expected=f"{size} bytes", got=f"{total} bytes")
                if first == 0 and start > 0:
                    raise RangeIgnored(key)
                if first not in (0, at):
                    raise _other_range(key, asked=at, got=first)
                end = total if end is None else end
                skip = at - first
                while end is None or at < end:
                    wanted = skip or (len(view) if end is None else end - at)
                    count = body.readinto(view[:wanted])
                    check_cancel(cancel)
                    if not count:
                        break
                    deadline = time.monotonic() + self._patience_s
                    if skip:
                        skip -= count
                        continue
                    at += count
                    yield view[:count]
                if end is None or at >= end:
                    return
            except Exception as error:
                # botocore lets a few kinds of urllib3's errors through from a streaming body.
                if not _is_transport(error):
                    raise
                if time.monotonic() > deadline:
                    raise _cut_short(key, at) from error
            finally:
                body.close()
            if at == before:
                if time.monotonic() > deadline:
                    raise _cut_short(key, at)
                if (cancel or threading.Event()).wait(_PAUSE_S):
                    raise Cancelled


def _range(start: int, end: int | None) -> str:
    return f"bytes={start}-" if end is None else f"bytes={start}-{end - 1}"


def _place(key: str, answer: dict[str, Any]) -> tuple[int, int | None]:
    """(position of the first byte, size of the object, None where the server does not tell)."""
    told = answer.get("ContentRange")
    if told is None:
        length = answer.get("ContentLength")
        return 0, None if length is None else int(length)
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", told)
    if found is None:
        raise _other_range(key, asked=0, got=told)
    return int(found[1]), None if found[2] == "*" else int(found[2])


def _other_range(key: str, *, asked: int, got: object) -> StoreProblem:
    return StoreProblem(
        Reason.STORE_UNSUPPORTED,
        f"{key}: asked for the bytes from {asked}, the answer says {got}: check for a proxy or "
        "cache before the store that does not keep to Range",
    )


def _cut_short(key: str, at: int) -> StoreProblem:
    return StoreProblem(
        Reason.STORE_UNREACHABLE,
        f"{key}: the store's answers end at byte {at}; check the network and any proxy",
        transient=True,
    )


def _is_transport(error: Exception) -> bool:
    module = type(error).__module__.partition(".")[0]
    return module in ("botocore", "urllib3") or isinstance(error, OSError)
