"""Ways to damage a save on the disk, as the crashes and disks of the bug reports did."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path], None]
"""Called with the directory of the save (or of the run)."""


def lost(*names: str) -> Damage:
    """Files or directories that were never written, or are gone."""

    def do(root: Path) -> None:
        for name in names:
            place = root / name
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink()

    return do


def cut(name: str, *, part: float = 0.6) -> Damage:
    def do(root: Path) -> None:
        content = (root / name).read_bytes()
        (root / name).write_bytes(content[: int(len(content) * part)])

    return do


def hole(name: str, *, at: float = 0.5, size: int = 64) -> Damage:
    """Zeros in the middle, length and times as they were: a power cut without fsync, a bad disk."""

    def do(root: Path) -> None:
        status, content = (root / name).stat(), (root / name).read_bytes()
        begin = int(len(content) * at)
        (root / name).write_bytes(content[:begin] + bytes(size) + content[begin + size :])
        os.utime(root / name, ns=(status.st_mtime_ns, status.st_mtime_ns))

    return do


def emptied(name: str) -> Damage:
    return lambda root: (root / name).write_bytes(b"") and None


def written(name: str, text: str) -> Damage:
    return lambda root: (root / name).write_text(text) and None


def renamed(old: str, new: str) -> Damage:
    return lambda root: (root / old).rename(root / new) and None


def both(*damages: Damage) -> Damage:
    def do(root: Path) -> None:
        for damage in damages:
            damage(root)

    return do
