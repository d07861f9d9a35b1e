"""More ways to damage a run's directory. All leave the times of what they change as they were,
as a crash or a disk does, unless their name says otherwise."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

from kit.damage import Damage


def edited(name: str, edit: Callable[[bytes], bytes]) -> Damage:
    def do(root: Path) -> None:
        path = root / name
        status = path.stat()
        path.write_bytes(edit(path.read_bytes()))
        os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))

    return do


def cut(name: str, *, part: float = 0.6) -> Damage:
    return edited(name, lambda content: content[: int(len(content) * part)])


def cut_bytes(name: str, count: int) -> Damage:
    """The last `count` bytes are missing."""
    return edited(name, lambda content: content[:-count])


def emptied(name: str) -> Damage:
    return edited(name, lambda _: b"")


def zeros(name: str) -> Damage:
    return edited(name, lambda content: bytes(len(content)))


def zero_tail(name: str, *, count: int = 100) -> Damage:
    """The length is there, the last blocks never reached the disk."""
    return edited(name, lambda content: content[:-count] + bytes(count))


def longer(name: str, *, count: int = 100) -> Damage:
    return edited(name, lambda content: content + b"x" * count)


def tensor_hole(name: str) -> Damage:
    """Zeros within the bytes of a tensor: those of the last storage of a torch file, else the
    middle."""

    def edit(content: bytes) -> bytes:
        found = content.find(b"/data/0")
        begin = found + 60 if found >= 0 else int(len(content) * 0.7)
        size = min(64, len(content) - begin)
        return content[:begin] + bytes(size) + content[begin + size :]

    return edited(name, edit)


def flipped(name: str, *, at: float) -> Damage:
    """One bit."""

    def edit(content: bytes) -> bytes:
        position = int(len(content) * at)
        return content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :]

    return edited(name, edit)


def replaced(name: str, content: bytes) -> Damage:
    return edited(name, lambda _: content)


def added(name: str, content: bytes = b"x") -> Damage:
    """A file more; as old as everything else."""

    def do(root: Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (path.stat().st_mtime - 100,) * 2)

    return do


def copied(source: str, target: str) -> Damage:
    """The one file's bytes and times in the other's place: its inode stays another."""

    def do(root: Path) -> None:
        status = (root / source).stat()
        (root / target).unlink(missing_ok=True)
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        (root / target).write_bytes((root / source).read_bytes())
        os.utime(root / target, ns=(status.st_mtime_ns, status.st_mtime_ns))

    return do


def swapped(one: str, other: str) -> Damage:
    def do(root: Path) -> None:
        (root / one).rename(root / "swap")
        (root / other).rename(root / one)
        (root / "swap").rename(root / other)

    return do


def linked(name: str, target: str) -> Damage:
    """A symbolic link in the place of whatever stood there."""

    def do(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(target)

    return do


def hard_linked(name: str, target: str) -> Damage:
    def do(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        os.link(root / target, root / name)

    return do


def fifo(name: str) -> Damage:
    def do(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        os.mkfifo(root / name)

    return do


def socket_at(name: str) -> Damage:
    def do(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        # A path longer than 107 bytes cannot be bound: bind from within the directory.
        here = os.getcwd()
        os.chdir((root / name).parent)
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind((root / name).name)
        finally:
            os.chdir(here)

    return do


def newer_by(name: str, seconds: float) -> Damage:
    """Its time alone."""

    def do(root: Path) -> None:
        when = (root / name).stat().st_mtime + seconds
        os.utime(root / name, (when, when))

    return do


def directory_at(name: str) -> Damage:
    def do(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        (root / name).mkdir()

    return do
