"""Files of DCP directories as a restore laid them, where each rank has a disk of its own.

A restore brings the shards of all ranks, for a load needs them. Saved again into the same
directory, each rank rewrites its own shard alone, and rank 0 the `.metadata`: what the others wrote
of the save before stays beside them, with the right name and size, and with the new `.metadata` it
loads without an error, as a mix of two steps. So such a file is known by its state (`alias_mark`),
remembered in `<path>/.rtj/laid`, and is no part of a save once anything beside it was rewritten.
A later restore finds it all the same (`Snapshot.left`): what is right stays, all else goes aside.
Must never leave out a file of a directory in which nothing was, nor one that the trainer wrote.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from rtj_api.contract import HIDDEN_DIR

from rtj_sidecar.checkpoints.layouts.dcp_rules import MARKER, SHARD
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.ledger import alias_mark
from rtj_sidecar.checkpoints.marks_file import write_marks
from rtj_sidecar.checkpoints.types import FileEntry


def laid_path(root: Path) -> Path:
    return root / HIDDEN_DIR / "laid"


def read_laid(root: Path) -> frozenset[str]:
    """Marks of the files as the last restore left them; empty where there was none. Raises
    OSError."""
    try:
        return frozenset(json.loads(laid_path(root).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return frozenset()
    except ValueError:
        return frozenset()  # the write did not finish, so no trainer was told to go after it


def write_laid(root: Path, files: Iterable[FileEntry]) -> frozenset[str]:
    """Remember the DCP files among these, and nothing else any more. Raises OSError."""
    marks = frozenset(alias_mark(entry) for entry in files if _is_member(entry.path))
    path = laid_path(root)
    if not marks and not path.exists():
        return marks
    write_marks(path, marks)
    return marks


def without_left(files: Sequence[FileEntry], laid: Collection[str]) -> tuple[FileEntry, ...]:
    """`files` without those laid ones beside which a member of the directory was rewritten."""
    if not laid:
        return tuple(files)
    members = {entry.path: alias_mark(entry) in laid for entry in files if _is_member(entry.path)}
    rewritten = {parent_of(path) for path, is_laid in members.items() if not is_laid}
    return tuple(
        entry
        for entry in files
        if not (members.get(entry.path) and parent_of(entry.path) in rewritten)
    )


def _is_member(path: str) -> bool:
    name = name_of(path)
    return name == MARKER or SHARD.match(name) is not None
