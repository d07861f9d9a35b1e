"""One look at the checkpoint directory: every file, the saves among them, pointers, companions.

Polling is the base (inotify sees nothing from other nodes and misses files in new directories).
An unchanged directory costs one `lstat` for each file and no read. Files vanish while we look
(rotation) and that is no error. Symbolic links are recorded and never followed; `.rtj` is ours and
is never entered. Nothing here writes.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rtj_api.contract import HIDDEN_DIR

from rtj_sidecar.checkpoints.laid import without_left
from rtj_sidecar.checkpoints.layouts.base import Layout, Listing
from rtj_sidecar.checkpoints.layouts.grouping import name_of, parent_of
from rtj_sidecar.checkpoints.layouts.metric_names import with_named_metrics
from rtj_sidecar.checkpoints.layouts.names import is_temporary
from rtj_sidecar.checkpoints.layouts.stated import to_rebuild
from rtj_sidecar.checkpoints.paths import UnsafePathError, resolve_link
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import (
    FileEntry,
    FoundSave,
    LinkEntry,
    OddEntry,
    Pointer,
    PointerKind,
    Snapshot,
)
from rtj_sidecar.checkpoints.versions import with_versions

COMPANION_BYTES = 1 << 20
COMPANION_COUNT = 256
_POINTER_BYTES = 256
_POINTER_NAMES = {"latest", "latest_universal", "checkpoint", "last", "last_checkpoint"}
_POINTER_NAMES |= {"latest_checkpointed_iteration.txt", "dlrover_latest.txt"}
# Logs and dumps; source code, which a person may mend between two starts; and what may be secret.
_NO_COMPANION = re.compile(
    r"(^|/)\.|(^|/)events\.out\.tfevents\.|\.log(\.\d+)?$|(^|/)core(\.\d+)?$"
    r"|\.(py|pyc|ipynb|sh|env|pem|key|crt)$|(^|/)(id_\w+|token|credentials)$"
)
_MAX_DEPTH = 32

EMPTY = Snapshot(files=(), links=(), odd=(), saves=(), pointers=(), companions=())


def take_snapshot(
    *,
    reader: Reader,
    layouts: Sequence[Layout],
    previous: Snapshot = EMPTY,
    only: str | None = None,
    laid: Collection[str] = (),
) -> Snapshot:
    """What `reader.root` holds now (`only` this top-level name of it, if given).

    `laid`: see `checkpoints.laid`. A directory that does not exist yet is an empty one.
    `previous` is the snapshot before (same root, same layouts): where nothing changed its saves
    are taken over, and a save that only lost files since is named in `shrinking`.
    Raises OSError only where the root itself cannot be read.
    """
    lying, links, odd, directories = walk(reader.root, only=only)
    files = without_left(lying, laid)
    kept = {entry.path for entry in files} if len(files) < len(lying) else None
    left = tuple(e for e in lying if e.path not in kept) if kept is not None else ()
    before = (previous.files, previous.links, previous.odd, previous.left, previous.directories)
    if files and (files, links, odd, left, directories) == before:
        return replace(previous, shrinking=frozenset()) if previous.shrinking else previous
    found = snapshot_of(files, links, odd, reader=reader, layouts=layouts)
    shrinking = _shrinking(previous.saves, found.saves)
    return replace(found, shrinking=shrinking, left=left, directories=directories)


def snapshot_of(
    files: tuple[FileEntry, ...],
    links: tuple[LinkEntry, ...] = (),
    odd: tuple[OddEntry, ...] = (),
    *,
    reader: Reader,
    layouts: Sequence[Layout],
) -> Snapshot:
    """The saves, pointers and companions among these, which need not lie on a disk: `reader`
    answers for them. `files` sorted by path."""
    saves = _recognise(files, links, reader=reader, layouts=layouts)
    pointers = _pointers(files, links, saves, reader=reader)
    return Snapshot(
        files=files,
        links=links,
        odd=odd,
        saves=saves,
        pointers=pointers,
        companions=_companions(files, saves, pointers),
    )


def walk(
    root: Path, *, only: str | None = None
) -> tuple[tuple[FileEntry, ...], tuple[LinkEntry, ...], tuple[OddEntry, ...], tuple[str, ...]]:
    """Files, links, others and directories below `root`, each sorted by path; `only` one top-level
    name."""
    files: list[FileEntry] = []
    links: list[LinkEntry] = []
    odd: list[OddEntry] = []
    directories: list[str] = []
    stack = [""]
    while stack:
        prefix = stack.pop()
        if prefix:
            directories.append(prefix)
        try:
            with os.scandir(root / prefix if prefix else root) as entries:
                for entry in entries:
                    if not prefix and (entry.name == HIDDEN_DIR or only not in (None, entry.name)):
                        continue
                    path = f"{prefix}/{entry.name}" if prefix else entry.name
                    _add(path, entry, files, links, odd, stack)
        except FileNotFoundError:
            continue  # rotated away, or the directory is not there yet
        except NotADirectoryError:
            continue  # a directory replaced by a file while we looked; the next scan sees it
        except PermissionError as error:
            if not prefix:
                raise
            odd.append(OddEntry(prefix, f"cannot be read: {error.strerror}"))
    files.sort(key=lambda found: found.path)
    links.sort(key=lambda found: found.path)
    odd.sort(key=lambda found: found.path)
    return tuple(files), tuple(links), tuple(odd), tuple(sorted(directories))


def _add(
    path: str,
    entry: os.DirEntry[str],
    files: list[FileEntry],
    links: list[LinkEntry],
    odd: list[OddEntry],
    stack: list[str],
) -> None:
    try:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            files.append(entry_of(path, status))
        elif stat.S_ISDIR(status.st_mode):
            if path.count("/") >= _MAX_DEPTH:
                odd.append(OddEntry(path, f"is deeper than {_MAX_DEPTH} directories"))
            else:
                stack.append(path)
        elif stat.S_ISLNK(status.st_mode):
            target = os.readlink(entry.path)
            links.append(LinkEntry(path, target, resolve_link(link=path, target=target)))
        else:
            odd.append(OddEntry(path, "is a device, FIFO or socket"))
    except OSError:
        return  # gone between listing and stat


def entry_of(path: str, status: os.stat_result) -> FileEntry:
    """The entry of a regular file from its `lstat`."""
    return FileEntry(
        path=path,
        size=status.st_size,
        mode=stat.S_IMODE(status.st_mode),
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        inode=status.st_ino,
        device=status.st_dev,
    )


def save_order(save: FoundSave) -> tuple[int, int, int, str]:
    """A sort key, oldest first: by step, else by epoch; saves without either come first."""
    known = save.step is not None or save.epoch is not None
    return (
        int(known),
        save.step if save.step is not None else (save.epoch or 0),
        save.epoch or 0,
        save.root_key,
    )


def _recognise(
    files: Sequence[FileEntry],
    links: tuple[LinkEntry, ...],
    *,
    reader: Reader,
    layouts: Sequence[Layout],
) -> tuple[FoundSave, ...]:
    left = tuple(files)
    saves: list[FoundSave] = []
    for layout in layouts:
        found = layout.recognise(listing=Listing(left, links), reader=reader)
        if not found:
            continue
        saves += found
        taken = {entry.path for save in found for entry in save.all_files}
        roots = {save.root_key for save in found} - taken
        # Whatever lies below a save's directory is settled by that layout, claimed or not.
        left = tuple(e for e in left if e.path not in taken and not _is_below(e.path, roots))
    told = (with_versions(with_named_metrics(save), reader) for save in saves)
    return tuple(sorted(told, key=save_order))


def _pointers(
    files: Iterable[FileEntry],
    links: Iterable[LinkEntry],
    saves: Sequence[FoundSave],
    *,
    reader: Reader,
) -> tuple[Pointer, ...]:
    roots = {save.root_key: save for save in saves}
    by_file = {entry.path: save for save in saves for entry in save.all_files}
    pointers = []
    for link in links:
        if link.resolved is not None:
            save = roots.get(link.resolved) or by_file.get(link.resolved)
            if save is not None or name_of(link.path).startswith(("latest", "last", "best")):
                named = save.root_key if save else None
                pointers.append(Pointer(link.path, PointerKind.LINK, link.target, named))
    for entry in files:
        usable = entry.size <= _POINTER_BYTES and entry.path not in by_file
        if usable and not is_temporary(entry.path):
            found = _text_pointer(entry, saves, reader)
            pointers += [found] if found else []
    return tuple(sorted(pointers, key=lambda pointer: pointer.path))


def _text_pointer(entry: FileEntry, saves: Sequence[FoundSave], reader: Reader) -> Pointer | None:
    known = reader.cache.get(entry.stamp, "text")
    if not isinstance(known, str):
        try:
            known = reader.small(entry, limit=_POINTER_BYTES).decode("utf-8")
        except (OSError, UnsafePathError, UnicodeDecodeError):
            known = "\n\n"
        reader.cache.put(entry.stamp, "text", known)
    word = known.strip()
    if not word or "\n" in word:
        return None
    named = None
    for save in saves:
        beside = parent_of(save.root_key) == parent_of(entry.path)
        inside = save.root_key != "." and parent_of(entry.path) == save.root_key
        last = word.rstrip("/").rpartition("/")[2]
        number = name_of(entry.path) in _POINTER_NAMES and word.isdecimal()
        named_so = (beside or inside) and name_of(save.root_key) == last
        if named_so or (beside and number and save.step == int(word[:18])):
            named = save.root_key
    if named is None and name_of(entry.path) not in _POINTER_NAMES:
        return None
    return Pointer(entry.path, PointerKind.TEXT, known, named)


def _companions(
    files: Iterable[FileEntry], saves: Sequence[FoundSave], pointers: Iterable[Pointer]
) -> tuple[FileEntry, ...]:
    taken = {entry.path for save in saves for entry in save.all_files}
    taken |= {pointer.path for pointer in pointers}
    taken |= {p.path for save in saves for p in to_rebuild(save.facts, root_key=save.root_key)}
    roots = {save.root_key for save in saves} - taken
    found = [
        entry
        for entry in files
        if entry.size <= COMPANION_BYTES
        and entry.path not in taken
        and not _is_below(entry.path, roots)
        and not is_temporary(entry.path)
        and not _NO_COMPANION.search(entry.path)
    ]
    return tuple(found[:COMPANION_COUNT])


def _is_below(path: str, roots: Container[str]) -> bool:
    """Whether one of the directories above it is among `roots`, which may be ten thousand."""
    end = path.rfind("/")
    while end > 0:
        if path[:end] in roots:
            return True
        end = path.rfind("/", 0, end)
    return False


def _shrinking(before: Sequence[FoundSave], now: Sequence[FoundSave]) -> frozenset[str]:
    """Saves that lost files, gained none and changed none since the look before."""
    old = {save.root_key: save for save in before}
    shrunk = set()
    for save in now:
        earlier = old.get(save.root_key)
        if earlier is not None and lost_files(before=earlier.files, now=save.files):
            shrunk.add(save.root_key)
    return frozenset(shrunk)


def lost_files(*, before: Sequence[FileEntry], now: Sequence[FileEntry]) -> bool:
    """Whether files went away while none came and none changed."""
    if len(now) >= len(before):
        return False
    return {_identity(entry) for entry in now} < {_identity(entry) for entry in before}


def _identity(entry: FileEntry) -> tuple[str, int, int, int]:
    return entry.path, entry.inode, entry.size, entry.mtime_ns
