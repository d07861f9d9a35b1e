"""What lay in the checkpoint directory before any trainer of this project wrote there.

Pretrained weights, data, another run's saves: a person's own. They are remembered in
`<path>/.rtj/foreign` by the state of each file, so that a file that the trainer writes over is the
run's from then on. Must never be deleted by anybody here; what a restore has to move out of the way
goes to `<path>/.rtj/set-aside/<attempt>/` and stays there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path

from rtj_api.contract import HIDDEN_DIR

from rtj_sidecar.checkpoints.ledger import alias_mark, ledger_path
from rtj_sidecar.checkpoints.marks_file import write_marks
from rtj_sidecar.checkpoints.types import FileEntry, FoundSave, Snapshot


def foreign_path(root: Path) -> Path:
    return root / HIDDEN_DIR / "foreign"


def set_aside_dir(root: Path, attempt: int) -> Path:
    """Where the restore of that attempt moves what is foreign and in the way."""
    return root / HIDDEN_DIR / "set-aside" / str(attempt)


def read_foreign(root: Path) -> frozenset[str] | None:
    """The marks of foreign files; None where nobody has looked yet. Raises OSError."""
    try:
        return frozenset(json.loads(foreign_path(root).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except ValueError:
        return frozenset()


def is_first_look(root: Path) -> bool:
    """Whether no sidecar has ever seen a save finish here, nor listed what is foreign."""
    return not (foreign_path(root).exists() or ledger_path(root).exists())


def write_foreign(root: Path, snapshot: Snapshot) -> frozenset[str]:
    """Remember every file of the snapshot as foreign; nothing is written for none. Raises
    OSError."""
    marks = frozenset(alias_mark(entry) for entry in snapshot.files)
    if marks:
        write_marks(foreign_path(root), marks)
    return marks


def is_foreign(entry: FileEntry, marks: Collection[str]) -> bool:
    return alias_mark(entry) in marks


def are_foreign(entries: Iterable[FileEntry], marks: Collection[str]) -> bool:
    """Whether every one of them is; false for none."""
    known = [is_foreign(entry, marks) for entry in entries]
    return bool(known) and all(known)


def could_be_resumed(save: FoundSave) -> bool:
    """Whether a trainer that looks for its own newest save could take it: weights alone, and files
    that state no position, are data to it."""
    return save.full_state is not False and (save.step, save.epoch) != (None, None)
