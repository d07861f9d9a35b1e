"""What can happen to every layout alike: a line of the table for each layout and each damage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rtj_sidecar.checkpoints.types import Reason, Status

from damage.acts import cut, emptied, tensor_hole
from damage.case import Case, Kind, Pick, fine
from damage.trees import NEW, OLD, TREES, Tree

_HOUR = 3600 * 1_000_000_000
HIDDEN_HOLE = "zeros within a tensor, where the format has no checksum"


def cases() -> Iterator[Case]:
    for name, tree in TREES.items():
        biggest = tree.path_of(NEW)
        yield Case(
            "its largest file is cut off", Kind.KILLED, name, cut(biggest), reason=Reason.TRUNCATED
        )
        yield Case(
            "a file has no bytes after a power cut",
            Kind.DISK, name, emptied(biggest), reason=Reason.TRUNCATED,
            report="tdrussell/diffusion-pipe#159",
        )  # fmt: skip
        yield _hole(name, tree, biggest)
        yield fine("all times are turned around", Kind.ORDER, name, times_reversed)
        yield fine("the clock went back an hour", Kind.ORDER, name, clock_back)


def _hole(name: str, tree: Tree, path: str) -> Case:
    if tree.hole_is_seen:
        reason = Reason.CHECKSUM_MISMATCH
        return Case("zeros within a tensor", Kind.DISK, name, tensor_hole(path), reason=reason)
    verified, newer = Status.VERIFIED, Pick.NEWER
    return Case(HIDDEN_HOLE, Kind.DISK, name, tensor_hole(path), verified, Reason.OK, newer)


def times_reversed(root: Path) -> None:
    """What was written last seems oldest: within a save the order stays."""
    for path in _files(root):
        back = 2 * 3600 * 1_000_000_000 if _is_of(path.relative_to(root), NEW) else 0
        when = path.stat().st_mtime_ns - back
        os.utime(path, ns=(when, when))


def clock_back(root: Path) -> None:
    """The newer save was written after the clock was set back by an hour."""
    for path in _files(root):
        if _is_of(path.relative_to(root), NEW):
            when = path.stat().st_mtime_ns - _HOUR
            os.utime(path, ns=(when, when))


def _is_of(path: Path, number: int) -> bool:
    """By the numbers in its path; the older number is no part of the newer one."""
    text = str(path)
    epoch = text.startswith(("epoch_", "models/")) or "epoch" in text
    other = OLD if number == NEW else NEW
    wanted = str(number // 100) if epoch else str(number)
    return wanted in text and (epoch or str(other) not in text)


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
