"""What can be wrong with the checkpoint directory itself, told with its remedy.

Apart from the directory, so that who only tells of a problem does not depend on who has it. Must
never name a cause that errno does not tell.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from rtj_api.reasons import Reason

DISK_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
)
"""Of the volume, and no sign that a save changed while it was pinned."""


@dataclass(frozen=True, slots=True)
class DirectoryProblem(Exception):
    """The directory does not take what must be written, or cannot be read."""

    reason: Reason
    message: str

    def __str__(self) -> str:
        return self.message


def problem_of(error: OSError, path: Path, what: str) -> DirectoryProblem:
    """An error of the checkpoint directory, with its remedy. `what` was not possible there."""
    text = f"cannot {what} {path}: {error.strerror or error}"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return DirectoryProblem(
                Reason.DISK_FULL,
                f"{text}. Make the volume larger, or let the trainer keep fewer checkpoints",
            )
        case errno.EROFS:
            return DirectoryProblem(
                Reason.DIRECTORY_READ_ONLY,
                f"{text}. Mount it read-write, or set checkpoint.path to a writable directory",
            )
        case errno.ENOENT:
            return DirectoryProblem(
                Reason.DIRECTORY_MISSING, f"{text}. Check checkpoint.path and its volume"
            )
        case _:
            return DirectoryProblem(
                Reason.PATH_NOT_WRITABLE,
                f"{text}. Give the sidecar's user (uid {os.getuid()}) access, e.g. by fsGroup",
            )
