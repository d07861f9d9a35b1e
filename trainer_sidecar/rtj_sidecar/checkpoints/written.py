"""When a save was written: from the first of its files that was begun to the last that was changed.

The moment at which a sidecar finds a save says little: several are found in one look, and each
only once it has rested. Must never change a file, and never take what it cannot read for a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable
from dataclasses import dataclass

from rtj_sidecar.checkpoints.paths import UnsafePathError, open_below
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import FileEntry

_NANO = 1e9
_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_STATX_BYTES = 256
_MASK_AT, _BTIME_AT = 0, 0x50  # of stx_mask and stx_btime in struct statx, linux/stat.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Unix seconds."""

    begun: float
    ended: float


def when_written(
    files: Iterable[FileEntry], *, reader: Reader, since: float, after: float, seen: float
) -> Written | None:
    """None where the last change lies outside `since`..`seen`: copied, or of another clock.

    `since` is when the trainer was started, `after` when the save before was finished: a file that
    is overwritten in place was made before that, and only its last change tells of this save.
    """
    moments, ended = [], 0.0
    for entry in files:
        changed = entry.mtime_ns / _NANO
        ended = max(ended, changed)
        birth = birth_of(reader, entry)
        moments += [changed] if birth is None or birth <= after else [changed, birth]
    if not since <= ended <= seen:
        return None
    return Written(begun=min(at for at in moments if at >= since), ended=ended)


def birth_of(reader: Reader, entry: FileEntry) -> float | None:
    """When the file was made, Unix seconds; None where the volume does not tell."""
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    with contextlib.suppress(OSError, UnsafePathError, AttributeError):
        # os.stat tells no birth time on Linux; AttributeError: a C library without statx.
        statx = ctypes.CDLL(None).statx
        with open_below(reader.root, entry.path) as descriptor:
            if statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer) != 0:
                return None
            if os.fstat(descriptor).st_ino != entry.inode:
                return None
        mask = int.from_bytes(buffer[_MASK_AT : _MASK_AT + 4], "little")
        if not mask & _STATX_BTIME:
            return None
        seconds = int.from_bytes(buffer[_BTIME_AT : _BTIME_AT + 8], "little", signed=True)
        nanos = int.from_bytes(buffer[_BTIME_AT + 8 : _BTIME_AT + 12], "little")
        return seconds + nanos / _NANO
    return None
