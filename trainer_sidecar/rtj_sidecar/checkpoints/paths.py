"""Opening files below the checkpoint directory without ever leaving it.

The trainer owns this directory and may replace anything in it at any moment. A name is therefore
opened component by component, never through a symbolic link, and only if it is a regular file:
otherwise a swapped link would make the sidecar read, ship or overwrite files of its own container.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO that took the place of a file must not hang the sidecar.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UnsafePathError(ValueError):
    """A relative path that would leave the checkpoint directory, or is no regular file."""


def safe_relative(path: str) -> str:
    """The path itself if it is a clean relative POSIX path, else UnsafePathError.

    Clean: not empty, not absolute, no empty, `.` or `..` component, no NUL.
    """
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise UnsafePathError(f"{path!r} is not a clean relative path")
    return path


@contextmanager
def open_below(root: Path, path: str) -> Iterator[int]:
    """A read-only descriptor of the regular file `root/path`, reached through no symbolic link.

    Raises UnsafePathError (a link, device, FIFO or unclean path on the way) or OSError.
    """
    parts = safe_relative(path).split("/")
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            deeper = _open_at(directory, part, _DIRECTORY, path)
            os.close(directory)
            directory = deeper
        descriptor = _open_at(directory, parts[-1], _FILE, path)
    finally:
        os.close(directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnsafePathError(f"{path!r} is not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def _open_at(directory: int, name: str, flags: int, path: str) -> int:
    try:
        return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        # ELOOP: the last component is a link. ENOTDIR: a link or file where a directory was.
        # ENXIO: a socket, or a FIFO opened without a writer.
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise UnsafePathError(f"{path!r} leads through a link or special file") from error
        raise


def fsync_directory(path: Path) -> None:
    """Make the names in that directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def resolve_link(*, link: str, target: str) -> str | None:
    """Where a link at relative path `link` points, relative to the root; None where outside it.

    Textual: an absolute target counts as outside, for it means another file in another container.
    """
    if target.startswith("/") or not target:
        return None
    parts = link.split("/")[:-1]
    for part in target.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts) or "."
