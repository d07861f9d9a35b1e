"""One body to the store with its checksum, and whose fault it is when that is refused.

Must never tell a damaged way for a changed file, nor the other way round.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from rtj_api.reasons import Reason

from rtj_sidecar.stores.answers import BadDigest, NoSuchUpload
from rtj_sidecar.stores.base import SourceChanged, StoreProblem
from rtj_sidecar.stores.local import BLOCK, Source, blocks, crc64, crc64_text

SAME_BYTES_TRIES = 3


class Sender:
    """Over `call(operation, key, *, patience_s, cancel, **arguments)`."""

    def __init__(self, *, call: Callable[..., Any], patience_s: float) -> None:
        self._call = call
        self._patience_s = patience_s

    def say(
        self, operation: str, key: str, cancel: threading.Event | None, **arguments: Any
    ) -> Any:
        return self._call(operation, key, patience_s=self._patience_s, cancel=cancel, **arguments)

    def send(
        self,
        operation: str,
        key: str,
        source: Source,
        *,
        body: Callable[[], Any],
        bounds: tuple[int, int],
        crc: int,
        cancel: threading.Event | None,
        **arguments: Any,
    ) -> Any:
        """The answer. Raises SourceChanged, Cancelled, StoreProblem."""
        for _ in range(SAME_BYTES_TRIES):
            try:
                return self.say(
                    operation,
                    key,
                    cancel,
                    Body=body(),
                    ChecksumCRC64NVME=crc64_text(crc),
                    **arguments,
                )
            except BadDigest:
                source.check()
                again, buffer = 0, bytearray(BLOCK)
                for block in blocks(source, start=bounds[0], end=bounds[1], buffer=buffer):
                    again = crc64(block, again)
                if again != crc:
                    raise SourceChanged(source.path, "its bytes changed while read") from None
            except NoSuchUpload as error:
                raise lost(key) from error
        raise damaged(key)


def damaged(key: str) -> StoreProblem:
    return StoreProblem(
        Reason.STORE_UNREACHABLE,
        f"{key}: bytes arrive damaged at the store; check the network and any proxy",
        transient=True,
    )


def lost(key: str) -> StoreProblem:
    return StoreProblem(
        Reason.STORE_UNREACHABLE,
        f"{key}: the store lost an upload in progress; it is sent again",
        transient=True,
    )
