"""The ledger: which saves this lineage saw finish, kept beside them in `<path>/.rtj/ledger`.

Append-only JSON lines. A save on the disk counts as this run's own only if the ledger knows its
generation: files that someone put there, or that another run left, are never resumed by accident.
A torn last line (power loss in the middle of an append) is ignored, and the next append begins on
a line of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rtj_api.contract import HIDDEN_DIR

from rtj_sidecar.checkpoints.types import FileEntry, FoundSave


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One save that was seen to finish. `time` in Unix seconds, for people only.

    `n` is its ordinal in the fence once the holder named it, None before. `aliases` identify files
    of a fixed name that held this save, so that `best.pt` left alone later is no new save; `count`
    and `newest_ns` tell what a rotation left of a directory from a new save in the same place.
    """

    run_id: str
    fence: int | None
    n: int | None
    root: str
    fingerprint: str
    step: int | None
    time: float
    aliases: tuple[str, ...] = ()
    count: int = 0
    newest_ns: int = 0
    """Number of its files and the newest mtime among them."""
    ignored: bool = False
    """Its trainer had not loaded what it was given."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """All entries, oldest first."""

    entries: tuple[LedgerEntry, ...] = ()

    def find(self, save: FoundSave, *, run_id: str) -> LedgerEntry | None:
        """The newest entry of that run for this generation of this save, or None."""
        for entry in reversed(self.entries):
            known = (entry.root, entry.fingerprint) == save.identity
            if entry.run_id == run_id and known:
                return entry
        return None

    def holds_old_news(self, save: FoundSave, *, run_id: str) -> bool:
        """Whether nothing new finished: every file of it was an alias of a save already known, or
        it is what a rotation left of one."""
        for entry in self.entries:
            if (entry.run_id, entry.root) == (run_id, save.root_key):
                newest = max((file.mtime_ns for file in save.files), default=0)
                if len(save.files) < entry.count and newest <= entry.newest_ns:
                    return True
        known = {mark for e in self.entries if e.run_id == run_id for mark in e.aliases}
        return bool(save.files) and all(alias_mark(entry) in known for entry in save.all_files)


def alias_mark(entry: FileEntry) -> str:
    """Identifies one state of one file across restarts of the sidecar."""
    return f"{entry.path}:{entry.inode}:{entry.size}:{entry.mtime_ns}"


def entry_for(
    save: FoundSave, *, run_id: str, fence: int | None, n: int | None, time: float
) -> LedgerEntry:
    return LedgerEntry(
        run_id=run_id,
        fence=fence,
        n=n,
        root=save.root_key,
        fingerprint=save.fingerprint,
        step=save.step,
        time=time,
        aliases=tuple(alias_mark(entry) for entry in save.aliases),
        count=len(save.files),
        newest_ns=max((entry.mtime_ns for entry in save.files), default=0),
    )


def ledger_path(root: Path) -> Path:
    return root / HIDDEN_DIR / "ledger"


def read_ledger(root: Path) -> Ledger:
    """What the ledger in that checkpoint directory says; empty where there is none.

    A line that is no entry (torn, or of a newer version) is skipped. Raises OSError where the file
    is there and cannot be read: unknown is not empty.
    """
    try:
        raw = ledger_path(root).read_bytes()
    except FileNotFoundError:
        return Ledger()
    entries = []
    for line in raw.split(b"\n"):
        try:
            data = json.loads(line)
            known = {key: data[key] for key in LedgerEntry.__dataclass_fields__ if key in data}
            known["aliases"] = tuple(known.get("aliases", ()))
            entries.append(LedgerEntry(**known))
        except (ValueError, TypeError, KeyError):
            continue
    return Ledger(tuple(entries))


def append_ledger(root: Path, entries: Iterable[LedgerEntry]) -> None:
    """Adds entries and makes them durable before it returns. Raises OSError."""
    lines = b"".join(
        json.dumps(
            {key: getattr(entry, key) for key in LedgerEntry.__dataclass_fields__},
            separators=(",", ":"),
        ).encode()
        + b"\n"
        for entry in entries
    )
    if not lines:
        return
    path = ledger_path(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        view = memoryview(lines)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
