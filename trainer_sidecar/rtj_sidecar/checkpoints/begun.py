"""Directories of saves that a killed trainer had only begun: no file in them has its name yet.

No layout recognises them, for there is nothing to recognise, but a framework that looks for the
highest number would take one (seen with Accelerate: the weights are written under a temporary name
first). Pure. Must never name a directory that holds a save which stays.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.types import Snapshot

_NUMBER = re.compile(r"\d+")
_TEMPORARY = re.compile(r"^\.|tmp|temp|partial|incomplete", re.IGNORECASE)


def begun_after(snapshot: Snapshot, *, root_key: str, staying: Collection[str]) -> set[str]:
    """Directories that are named as `root_key` is, with a higher number, and have none of `staying`
    (root keys of saves) in them. Where only the directory above it has a number (`step_20/dcp`),
    those like that one which hold no file but temporary ones: it may be a run's, with its logs."""
    level = root_key if _NUMBER.search(name_of(root_key)) else parent_of(root_key)
    if not _NUMBER.search(name_of(level)):
        return set()
    later = {
        path
        for path in snapshot.directories
        if (parent_of(path), _shape(path)) == (parent_of(level), _shape(level))
        and _numbers(path) > _numbers(level)
        and not any(key == path or key.startswith(f"{path}/") for key in staying)
    }
    return later if level == root_key else later - _used(snapshot)


def begun_at_all(snapshot: Snapshot) -> set[str]:
    """Directories with a number in their name that hold files, all of them temporary ones."""
    holding = {parent_of(entry.path) for entry in snapshot.lying}
    numbered = {path for path in holding if _NUMBER.search(name_of(path))}
    return numbered - _used(snapshot)


def _used(snapshot: Snapshot) -> set[str]:
    """Directories with a file of a lasting name in them, at any depth."""
    used: set[str] = set()
    for entry in snapshot.lying:
        if not _TEMPORARY.search(name_of(entry.path)):
            parts = entry.path.split("/")[:-1]
            used |= {"/".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
    return used


def _shape(path: str) -> str:
    return _NUMBER.sub("#", name_of(path))


def _numbers(path: str) -> tuple[int, ...]:
    return tuple(int(found) for found in _NUMBER.findall(name_of(path)))
