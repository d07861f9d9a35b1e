"""Uploads of large files that were put aside, so that the next call goes on with their pieces.

Of this process only: what a killed one had begun, the service forgets by itself. Must never go on
with a file that is another by now.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field

from rtj_sidecar.stores.local import Source
from rtj_sidecar.stores.service import Session

_KEPT = 4


@dataclass(frozen=True, slots=True)
class Begun:
    """An upload in progress; `done`: the CRC64NVME of each piece that the service has."""

    session: Session
    done: dict[int, int] = field(default_factory=dict)


class PutAside:
    """By key. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[int, int, int], Begun]] = {}
        self._lock = threading.Lock()

    def take(self, key: str, source: Source) -> Begun | None:
        """What was begun with that very file, if the service still goes on with it."""
        with self._lock:
            state, begun = self._kept.pop(key, (None, None))
        if begun is None or (state == _state(source) and begun.session.again()):
            return begun
        _abort(begun)
        return None

    def keep(self, key: str, source: Source, begun: Begun) -> None:
        """Until it is taken, or too many others were kept since."""
        with self._lock:
            self._kept[key] = (_state(source), begun)
            over = list(self._kept)[:-_KEPT]
            ended = [self._kept.pop(each)[1] for each in over]
        for each in ended:
            _abort(each)


def _state(source: Source) -> tuple[int, int, int]:
    return source.inode, source.size, source.mtime_ns


def _abort(begun: Begun) -> None:
    # Best effort: what is left behind is invisible, and the service forgets it.
    with contextlib.suppress(Exception):
        begun.session.abort()
