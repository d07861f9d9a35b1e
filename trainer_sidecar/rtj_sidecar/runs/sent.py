"""Whole files that this process has sent of a part that is not answered yet.

A try that was put aside for a newer save, or failed, goes on behind them with every store, also
where the store tells no checksum by which the bytes could be known again. Must never spare a file
whose source is another than was sent, nor an object that was written since.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from rtj_sidecar.runs.records import FileRecord

_SHIPS = 4
State = tuple[int, int, int, int]


@dataclass(slots=True)
class Sent:
    """By ship and key: the source as it was, and the record of the object. Thread-safe."""

    _by_ship: dict[str, dict[str, tuple[State, FileRecord]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, ship: str, state: State, record: FileRecord) -> None:
        with self._lock:
            if ship not in self._by_ship and len(self._by_ship) >= _SHIPS:
                del self._by_ship[next(iter(self._by_ship))]
            self._by_ship.setdefault(ship, {})[record.key] = (state, record)

    def find(self, ship: str, key: str, state: State) -> FileRecord | None:
        """The record, where that very source was sent there."""
        with self._lock:
            found = self._by_ship.get(ship, {}).get(key)
        return found[1] if found is not None and found[0] == state else None

    def forget(self, ship: str) -> None:
        """Its part is answered."""
        with self._lock:
            self._by_ship.pop(ship, None)


def state_of(source: Path) -> State:
    """Without ctime, which a hard link made or removed moves. Raises OSError."""
    seen = os.stat(source)
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns
