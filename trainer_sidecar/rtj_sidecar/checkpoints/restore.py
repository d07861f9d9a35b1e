"""Puts a chosen save where the trainer looks for it. The only module that changes trainer files.

Nothing is deleted: what must go is renamed into `<path>/.rtj/quarantine/<attempt>/`. New files are
complete, hashed and on the disk before the first rename, so a crash at any point leaves the old or
the new file under every name, and planning and applying again finishes the work. Runs only while
no trainer does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rtj_api.contract import HIDDEN_DIR

from rtj_sidecar.checkpoints.foreign import set_aside_dir
from rtj_sidecar.checkpoints.paths import (
    UnsafePathError,
    fsync_directory,
    open_below,
    resolve_link,
    safe_relative,
)
from rtj_sidecar.checkpoints.pins import (
    clone,
    copy_bytes,
    files_dir,
    list_pins,
    pin_entries,
)
from rtj_sidecar.checkpoints.quarantine import quarantine_dir
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.restore_plan import Chosen, LocalBytes, RestorePlan
from rtj_sidecar.checkpoints.scan import entry_of
from rtj_sidecar.checkpoints.types import FileEntry, Pointer, PointerKind, Snapshot, WantedFile


class RestoreError(Exception):
    """The restore cannot be finished; the message names the file and why. Rerunning is safe."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom placed files are handed to: the trainer's user and group."""

    uid: int
    gid: int


def incoming_dir(root: Path, restore_id: str) -> Path:
    """Where the caller puts what it fetches, each file under its own relative name."""
    return root / HIDDEN_DIR / "incoming" / safe_relative(restore_id)


def survey(*, reader: Reader, snapshot: Snapshot, chosen: Chosen, restore_id: str) -> LocalBytes:
    """Hashes what is on this disk and may be right, each file at most once (cached by its state).

    Files of another size are not read. Raises OSError where the disk does not answer.
    """
    here = {entry.path: entry for entry in snapshot.lying}
    wanted = {file.path: file for file in (*chosen.companions, *chosen.files)}
    in_place = _hashes(reader, here, wanted.values())
    missing = {p: file for p, file in wanted.items() if in_place.get(p) != file.sha256}
    incoming = incoming_dir(reader.root, restore_id)
    arrived = _hashes(Reader(incoming), _entries(incoming, missing), missing.values())
    missing = {p: file for p, file in missing.items() if arrived.get(p) != file.sha256}
    pinned: dict[str, tuple[str, str]] = {}
    for pin in list_pins(reader.root) if missing else ():
        entries = {e.path: e for e in pin_entries(reader.root, pin) or () if e.path in missing}
        at = Reader(files_dir(reader.root, pin.id), cache=reader.cache)
        for path, digest in _hashes(at, entries, missing.values()).items():
            if digest == missing[path].sha256:
                pinned[path] = (pin.id, digest)
    extended = frozenset(
        file.path
        for file in chosen.companions
        if (entry := here.get(file.path)) is not None and _extends(reader, entry, file)
    )
    return LocalBytes(in_place, arrived, pinned, extended)


def _hashes(
    reader: Reader, entries: dict[str, FileEntry], wanted: Iterable[WantedFile]
) -> dict[str, str]:
    found = {}
    for file in wanted:
        entry = entries.get(file.path)
        if entry is not None and entry.size == file.size:
            try:
                found[file.path] = reader.sha256(entry)
            except (FileNotFoundError, UnsafePathError):
                continue
    return found


def _entries(directory: Path, wanted: Iterable[str]) -> dict[str, FileEntry]:
    entries = {}
    for path in wanted:
        try:
            entries[path] = entry_of(path, os.stat(directory / path, follow_symlinks=False))
        except OSError:
            continue
    return entries


def _extends(reader: Reader, entry: FileEntry, file: WantedFile) -> bool:
    """Whether a companion only grew since: a log that is appended to is not put back."""
    if entry.size <= file.size:
        return False
    try:
        with open_below(reader.root, entry.path) as descriptor:
            head = os.pread(descriptor, file.size, 0)
    except (OSError, UnsafePathError):
        return False
    return hashlib.sha256(head).hexdigest() == file.sha256


def apply_restore(
    *,
    root: Path,
    plan: RestorePlan,
    restore_id: str,
    attempt: int,
    owner: Owner | None = None,
) -> tuple[str, ...]:
    """Does the plan; everything in `plan.fetch` must lie in `incoming_dir`, whole and hashed.

    Returns the quarantined paths. Afterwards the save has a new generation: take a snapshot and
    write it to the ledger. Raises RestoreError naming what is missing or refused.
    """
    incoming = incoming_dir(root, restore_id)
    try:
        for pin_id, file in plan.from_pins:
            _copy_pinned(files_dir(root, pin_id), incoming, file)
        for file in plan.place:
            _check_arrived(incoming, file)
        aside, kept = quarantine_dir(root, attempt), set_aside_dir(root, attempt)
        made = [_set_aside(root, p, kept if p in plan.keep else aside) for p in plan.quarantine]
        # The files that stay first: a crash between two renames then leaves work to place, and
        # the next run gives all files one new time again.
        stamp = max(time.time_ns(), plan.after_ns + 1_000_000_000)
        for path in plan.touch:
            os.utime(root / path, ns=(stamp, stamp), follow_symlinks=False)
        for file in plan.place:
            _place(root, incoming, file, owner, stamp)
        if (plan.touch or plan.place) and (root / plan.root_key).is_dir():
            os.utime(root / plan.root_key, ns=(stamp, stamp), follow_symlinks=False)
        for pointer in plan.pointers:
            _point(root, incoming, pointer, owner)
        for directory in {(root / file.path).parent for file in plan.place} | {root}:
            fsync_directory(directory)
    except (OSError, UnsafePathError) as error:
        raise RestoreError(f"restore into {root} stopped: {error}") from error
    shutil.rmtree(incoming, ignore_errors=True)
    return tuple(path for path in made if path is not None)


def _copy_pinned(source: Path, incoming: Path, file: WantedFile) -> None:
    """Copied, not linked: the trainer may overwrite the file in place, and the pin must live."""
    place = incoming / file.path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    with open_below(source, file.path) as descriptor:
        target = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if not clone(descriptor, target):
                copy_bytes(descriptor, target)
        finally:
            os.close(target)


def _check_arrived(incoming: Path, file: WantedFile) -> None:
    """Size and durability; the hash was taken while the bytes arrived."""
    with open_below(incoming, file.path) as descriptor:
        size = os.fstat(descriptor).st_size
        if size != file.size:
            raise OSError(f"{file.path} has {size} bytes in {incoming}, {file.size} are wanted")
        os.fsync(descriptor)


def _set_aside(root: Path, path: str, directory: Path) -> str | None:
    source = root / safe_relative(path)
    place = directory / path
    number = 0
    while os.path.lexists(place):
        number += 1
        place = directory / f"{path}~{number}"
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(source, place)
    except FileNotFoundError:
        return None  # an earlier, interrupted run moved it
    return path


def _place(root: Path, incoming: Path, file: WantedFile, owner: Owner | None, stamp: int) -> None:
    source, place = incoming / file.path, root / file.path
    _make_parents(root, file.path, owner)
    os.chmod(source, file.mode & 0o777)
    os.utime(source, ns=(stamp, stamp), follow_symlinks=False)
    _hand_over(source, owner)
    os.rename(source, place)


def _make_parents(root: Path, path: str, owner: Owner | None) -> None:
    current = root
    for part in path.split("/")[:-1]:
        current = current / part
        try:
            current.mkdir()
        except FileExistsError:
            if current.is_symlink() or not current.is_dir():
                raise UnsafePathError(f"{current} is no directory") from None
            continue
        _hand_over(current, owner)


def _point(root: Path, incoming: Path, pointer: Pointer, owner: Owner | None) -> None:
    """Replaced by one rename, so that a reader sees the old pointer or the new one."""
    incoming.mkdir(parents=True, exist_ok=True)
    fresh = incoming / ".pointer"
    fresh.unlink(missing_ok=True)
    if pointer.kind is PointerKind.LINK:
        fresh.symlink_to(pointer.value)
    elif pointer.kind is PointerKind.COPY:
        _copy_within(root, pointer, fresh)
    else:
        fresh.write_text(pointer.value)
    _hand_over(fresh, owner)
    _make_parents(root, pointer.path, owner)
    os.rename(fresh, root / safe_relative(pointer.path))


def _copy_within(root: Path, pointer: Pointer, fresh: Path) -> None:
    """Bytes of its own, not a link: a trainer that writes over it must not change the save."""
    source = resolve_link(link=pointer.path, target=pointer.value) or pointer.value
    with open_below(root, source) as descriptor:
        known = os.fstat(descriptor)
        target = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if not clone(descriptor, target):
                copy_bytes(descriptor, target)
            os.fsync(target)
            os.fchmod(target, known.st_mode & 0o777)
            os.utime(target, ns=(known.st_mtime_ns, known.st_mtime_ns))
        finally:
            os.close(target)


def _hand_over(path: Path, owner: Owner | None) -> None:
    if owner is not None:
        os.chown(path, owner.uid, owner.gid, follow_symlinks=False)
