"""What comes to this disk from elsewhere: fetched for the rank or for others, or put back.

Makes a pin of what was fetched, and lets the pins follow what a restore did to the files they are
links to. Must never pass off fetched bytes as a save of this rank's own trainer.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from rtj_sidecar.checkpoints.pin_choice import PinHow
from rtj_sidecar.checkpoints.pins import Pin, PinnedFile, files_dir, write_pin
from rtj_sidecar.checkpoints.reader import stamp_of
from rtj_sidecar.checkpoints.scan import walk
from rtj_sidecar.checkpoints.types import Stamp
from rtj_sidecar.directory import Directory
from rtj_sidecar.directory_problem import problem_of
from rtj_sidecar.localsave import LocalSave, PinRecord, write_record
from rtj_sidecar.room import make_room


def begin_fetch(directory: Directory, pin: str, *, wanted: int) -> Path:
    """Room for `wanted` bytes, and the place to fetch them into. Raises DirectoryProblem."""
    make_room(directory, wanted)
    base = files_dir(directory.path, pin)
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise problem_of(error, directory.path, "write to") from error
    return base


def adopt_fetched(directory: Directory, record: PinRecord, *, pin: str) -> LocalSave:
    """Make what was fetched into that pin's `files_dir` a pin. Raises DirectoryProblem."""
    base = files_dir(directory.path, pin)
    try:
        files = tuple(
            PinnedFile(entry.path, PinHow.COPY, entry, entry.stamp) for entry in walk(base)[0]
        )
        facts = record.facts
        whole = Pin(pin, facts.root_key, pin, facts.layout, facts.step, files)
        write_record(directory.path, pin, record)
        write_pin(directory.path, whole)
    except OSError as error:
        raise problem_of(error, directory.path, "write to") from error
    return directory.hold(LocalSave(whole, record))


def follow_touch(directory: Directory, paths: Collection[str]) -> None:
    """A restore gave these files a new time; pins that are links to them have it, too.

    Raises OSError.
    """
    given = frozenset(paths)
    for save in directory.saves if given else ():
        files = tuple(
            replace(file, stamp=touched)
            if file.path in given and (touched := _touched(directory.path, save, file)) is not None
            else file
            for file in save.pin.files
        )
        if files != save.pin.files:
            pin = replace(save.pin, files=files)
            write_pin(directory.path, pin)
            directory.hold(LocalSave(pin, save.record))


def _touched(root: Path, save: LocalSave, file: PinnedFile) -> Stamp | None:
    try:
        pinned = os.stat(files_dir(root, save.pin.id) / file.path, follow_symlinks=False)
        placed = os.stat(root / file.path, follow_symlinks=False)
    except OSError:
        return None
    same = (pinned.st_dev, pinned.st_ino) == (placed.st_dev, placed.st_ino)
    was = (pinned.st_ino, pinned.st_size) == (file.stamp.inode, file.stamp.size)
    return stamp_of(pinned) if same and was else None


def learn_hash(directory: Directory, path: Path, sha256: str) -> None:
    """Remember the hash of a file's present state, so that a restore reads nothing."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return
    stamp = Stamp(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )
    directory.reader.cache.put(stamp, "sha256", sha256)
