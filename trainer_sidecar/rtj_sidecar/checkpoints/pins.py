"""Pins: copies of a finished save that the trainer can no longer change or take away.

A hard link is free and keeps the bytes through a rotation, but an inode that is overwritten in
place changes under it; then the bytes are cloned (reflink) or copied. Which it is, the history of
inodes tells: a path that kept its inode from one generation to the next is overwritten in place.
Pins live in `<path>/.rtj/pins/<id>/`: `files/…` under their own relative names, and `pin.json`,
written last; a directory without it is a pin that never finished. Must never change a file of
the trainer's.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rtj_api.contract import HIDDEN_DIR

from rtj_sidecar.checkpoints.paths import UnsafePathError, open_below, safe_relative
from rtj_sidecar.checkpoints.pin_choice import PinHow
from rtj_sidecar.checkpoints.reader import Reader, stamp_of
from rtj_sidecar.checkpoints.scan import entry_of
from rtj_sidecar.checkpoints.types import FileEntry, FoundSave, Stamp

_FICLONE = 0x40049409
_NO_CLONE = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM}


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """One pinned file. `source` is the trainer's file as it was; `stamp` the pin's own state."""

    path: str
    how: PinHow
    source: FileEntry
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Pin:
    """A whole save, pinned. The bytes of `path` lie at `root/files/<path>`."""

    id: str
    root_key: str
    fingerprint: str
    layout: str
    step: int | None
    files: tuple[PinnedFile, ...]


class PinError(Exception):
    """The save could not be pinned; nothing of the try is left. The message says why."""


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """Room on the volume, in bytes. `fits`: after taking `wanted`, `reserve` is still free."""

    free: int
    reserve: int
    wanted: int

    @property
    def fits(self) -> bool:
        return self.free - self.wanted >= self.reserve


def disk_room(root: Path, *, largest_save: int, wanted: int) -> DiskRoom:
    """Whether pins, mirrors or a restore of `wanted` bytes leave the trainer its room.

    Reserve: 1.5 times the largest save, which is what the next save may need while it grows.
    """
    status = os.statvfs(root)
    return DiskRoom(status.f_bavail * status.f_frsize, largest_save * 3 // 2, wanted)


def pins_dir(root: Path) -> Path:
    return root / HIDDEN_DIR / "pins"


def files_dir(root: Path, pin_id: str) -> Path:
    """Where a pin's files lie under their relative names."""
    return pins_dir(root) / safe_relative(pin_id) / "files"


def pin_save(*, reader: Reader, save: FoundSave, pin_id: str, how: Mapping[str, PinHow]) -> Pin:
    """Pins every file of the save, aliases included. Blocking; copies take as long as they take.

    A pin of that id which is whole and of the same fingerprint is returned as it is. Raises
    PinError where a file changed, vanished or is no regular file, or the disk refused.
    """
    root = reader.root
    existing = read_pin(root, pin_id)
    if existing is not None and existing.fingerprint == save.fingerprint:
        return existing
    drop_pin(reader=reader, pin_id=pin_id)
    target = files_dir(root, pin_id)
    try:
        target.mkdir(parents=True)
        pinned = tuple(
            _pin_file(reader, entry, target, how.get(entry.path, PinHow.COPY))
            for entry in save.all_files
        )
        pin = Pin(pin_id, save.root_key, save.fingerprint, save.layout, save.step, pinned)
        write_pin(root, pin)
    except (OSError, UnsafePathError) as error:
        drop_pin(reader=reader, pin_id=pin_id)
        raise PinError(f"{save.root_key} was not pinned: {error}") from error
    return pin


def write_pin(root: Path, pin: Pin) -> None:
    """`pin.json`, whole or not at all. Raises OSError."""
    _write_whole(pins_dir(root) / pin.id / "pin.json", json.dumps(asdict(pin)).encode())


def _pin_file(reader: Reader, entry: FileEntry, target: Path, how: PinHow) -> PinnedFile:
    place = target / entry.path
    place.parent.mkdir(parents=True, exist_ok=True)
    with open_below(reader.root, entry.path) as source:
        if stamp_of(os.fstat(source)) != entry.stamp:
            raise OSError(errno.ESTALE, f"{entry.path} changed before it was pinned")
        if how is PinHow.LINK:
            how = _link(source, reader.root / entry.path, place)
        else:
            _copy(source, place)
        after = os.fstat(source)
    kept = os.stat(place, follow_symlinks=False)
    unchanged = (after.st_ino, after.st_size, after.st_mtime_ns) == (
        entry.inode,
        entry.size,
        entry.mtime_ns,
    )
    # Our own link moves the ctime; a copy does not, so there it must have stayed, too.
    if how is PinHow.COPY:
        unchanged = unchanged and after.st_ctime_ns == entry.ctime_ns
    elif kept.st_ino != entry.inode:
        unchanged = False
    if not unchanged or kept.st_size != entry.size:
        raise OSError(errno.ESTALE, f"{entry.path} changed while it was pinned")
    if how is PinHow.LINK:
        reader.cache.carry(old=entry.stamp, new=stamp_of(kept))
    return PinnedFile(entry.path, how, entry, stamp_of(kept))


def _link(source: int, path: Path, place: Path) -> PinHow:
    try:
        os.link(path, place, follow_symlinks=False)
        return PinHow.LINK
    except OSError as error:
        # No hard links on this volume (FUSE, some NFS), or not allowed on another user's file.
        if error.errno not in (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP):
            raise
    _copy(source, place)
    return PinHow.COPY


def _copy(source: int, place: Path) -> None:
    target = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if clone(source, target):
            return
        copy_bytes(source, target)
    finally:
        os.close(target)


def clone(source: int, target: int) -> bool:
    """Make `target` share the bytes of `source` (reflink); False where the volume cannot."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NO_CLONE:
            return False
        raise
    return True


def copy_bytes(source: int, target: int) -> None:
    """Copy all bytes of one descriptor to another, from their beginnings, inside the kernel."""
    offset, size = 0, os.fstat(source).st_size
    while offset < size:
        count = os.sendfile(target, source, offset, min(size - offset, 1 << 30))
        if not count:
            raise OSError(errno.ESTALE, "it became shorter while it was copied")
        offset += count


def read_pin(root: Path, pin_id: str) -> Pin | None:
    """The pin of that id if it is whole, else None."""
    try:
        raw = (pins_dir(root) / safe_relative(pin_id) / "pin.json").read_bytes()
        data = json.loads(raw)
        files = tuple(
            PinnedFile(
                path=safe_relative(item["path"]),
                how=PinHow(item["how"]),
                source=FileEntry(**item["source"]),
                stamp=Stamp(**item["stamp"]),
            )
            for item in data.pop("files")
        )
        return Pin(files=files, **data)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def pin_entries(root: Path, pin: Pin) -> tuple[FileEntry, ...] | None:
    """The pinned files as they are now, relative to `files_dir`; None where one was changed.

    Only size, inode and mtime must be as they were: a rotation by the trainer moves the ctime.
    """
    entries = []
    for pinned in pin.files:
        try:
            status = os.stat(files_dir(root, pin.id) / pinned.path, follow_symlinks=False)
        except OSError:
            return None
        entry = entry_of(pinned.path, status)
        kept = (entry.inode, entry.size, entry.mtime_ns)
        if kept != (pinned.stamp.inode, pinned.stamp.size, pinned.stamp.mtime_ns):
            return None
        entries.append(entry)
    return tuple(entries)


def list_pins(root: Path) -> tuple[Pin, ...]:
    """All whole pins, by id."""
    try:
        names = sorted(os.listdir(pins_dir(root)))
    except FileNotFoundError:
        return ()
    return tuple(pin for name in names if (pin := read_pin(root, name)) is not None)


def sweep_pins(*, reader: Reader) -> tuple[str, ...]:
    """Removes what unfinished pins left (a crash in the middle). Returns their ids."""
    try:
        names = sorted(os.listdir(pins_dir(reader.root)))
    except FileNotFoundError:
        return ()
    broken = tuple(name for name in names if read_pin(reader.root, name) is None)
    for name in broken:
        shutil.rmtree(pins_dir(reader.root) / name, ignore_errors=True)
    return broken


def drop_pin(*, reader: Reader, pin_id: str) -> None:
    """Removes a pin, whole or not; no error where there is none.

    `pin.json` goes first, so that a crash in between leaves no pin that looks whole. Removing a
    hard link moves the ctime of the trainer's file; what is known of it is carried over.
    """
    pin = read_pin(reader.root, pin_id)
    place = pins_dir(reader.root) / safe_relative(pin_id)
    (place / "pin.json").unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    for pinned in pin.files if pin is not None else ():
        if pinned.how is PinHow.LINK:
            try:
                status = os.stat(reader.root / pinned.path, follow_symlinks=False)
            except OSError:
                continue
            new = entry_of(pinned.path, status).stamp
            reader.cache.carry(old=pinned.stamp, new=new)


def _write_whole(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)
