"""What this run's lineage knows of the saves that lie, or lay, in its directory.

Asks and adds to the ledger (`checkpoints.ledger`), which outlives pods: whether a save is news,
whose it is, whether the store has it, whether a restore must set it aside. Must never take a
ledger that could not be read for an empty one.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from rtj_sidecar.checkpoints.carried import carried
from rtj_sidecar.checkpoints.foreign import (
    are_foreign,
    is_first_look,
    read_foreign,
    write_foreign,
)
from rtj_sidecar.checkpoints.laid import read_laid, write_laid
from rtj_sidecar.checkpoints.ledger import (
    LedgerEntry,
    alias_mark,
    append_ledger,
    entry_for,
    read_ledger,
)
from rtj_sidecar.checkpoints.scan import entry_of
from rtj_sidecar.checkpoints.types import FileEntry, FoundSave, Snapshot
from rtj_sidecar.localsave import LocalSave

_MARKED = 16  # files of a durable save by which it is known again under a fixed name


class LocalLedger:
    """One run's view of `path`'s ledger. Every call may raise OSError where it says nothing."""

    def __init__(self, path: Path, *, run_id: str) -> None:
        self._path = path
        self._run_id = run_id
        self._known: set[tuple[str, str]] = set()  # generations that the ledger has
        self.foreign: frozenset[str] = frozenset()  # marks of files that were there before us
        self.laid: frozenset[str] = frozenset()  # marks of DCP files as the last restore left them

    def load(self, *, snapshot_if_new: Callable[[], Snapshot] | None) -> None:
        """`snapshot_if_new`: no trainer was started in this pod yet, so what a directory holds that
        no sidecar of this run has ever looked at is somebody else's. Raises OSError."""
        entries = read_ledger(self._path).entries
        others = bool(entries) and all(e.run_id != self._run_id for e in entries)
        if snapshot_if_new is not None and (others or is_first_look(self._path)):
            self.foreign = write_foreign(self._path, snapshot_if_new())
        else:
            self.foreign = read_foreign(self._path) or frozenset()
        self._known = {(e.root, e.fingerprint) for e in entries if e.run_id == self._run_id}
        self.laid = read_laid(self._path)

    # --- asking ---

    def is_known(self, found: FoundSave) -> bool:
        """Whether it was seen finished, or was there before us: by memory, without a read."""
        return found.identity in self._known or are_foreign(found.all_files, self.foreign)

    def is_news(self, found: FoundSave) -> bool:
        """Whether this lineage has not seen this generation finish before. Raises OSError.

        What is only left of an older save under a fixed name is no news either.
        """
        if self.is_known(found):
            return False
        return not read_ledger(self._path).holds_old_news(found, run_id=self._run_id)

    def is_of_another_run(self, found: FoundSave) -> bool:
        """Whether the ledger knows this generation, and only as another run's. Raises OSError."""
        entries = read_ledger(self._path).entries
        runs = {e.run_id for e in entries if (e.root, e.fingerprint) == found.identity}
        return bool(runs) and self._run_id not in runs

    def disowned(self) -> frozenset[tuple[str, str]]:
        """Identities of the saves that a restore has to set aside, wherever they stand.

        Raises OSError.
        """
        entries = (e for e in read_ledger(self._path).entries if e.run_id == self._run_id)
        return frozenset((e.root, e.fingerprint) for e in entries if e.ignored)

    def has_carried(self, told: Mapping[str, object]) -> bool:
        """Whether the file of an older save that lay beside another is still that one."""
        mark = self._mark_of(str(told["path"]))
        number = (told["fence"], told["n"])
        entries = read_ledger(self._path).entries
        return any(mark in e.aliases and (e.fence, e.n) == number for e in entries)

    def last_not_durable(self, snapshot: Snapshot) -> FoundSave | None:
        """The save that was seen last to finish, where it lies there and the store has not got it:
        it never got a name, or was dropped. Raises OSError."""
        own = [e for e in read_ledger(self._path).entries if e.run_id == self._run_id]
        durable = {(e.root, e.fingerprint) for e in own if e.n is not None}
        seen = [(e.root, e.fingerprint) for e in own if e.n is None and e.fingerprint]
        ignored = {(e.root, e.fingerprint) for e in own if e.ignored}
        last = seen[-1] if seen else None
        if last is None or last in durable | ignored:
            return None
        return next((save for save in snapshot.saves if save.identity == last), None)

    def loose_beside(self, found: FoundSave, snapshot: Snapshot) -> list[FileEntry]:
        """Files of older saves under a fixed name that no durable save holds: they go with it."""
        entries = read_ledger(self._path).entries
        held = {mark for e in entries if e.n is not None for mark in e.aliases}
        own = {entry.path for entry in found.all_files}
        return [
            save.files[0]
            for save in snapshot.saves
            if save.reused_path
            and len(save.files) == 1
            and save.files[0].path not in own
            and (save.step is not None and found.step is not None and save.step < found.step)
            and alias_mark(save.files[0]) not in held
            and not are_foreign(save.files, self.foreign)
        ]

    def carried_beside(self, found: FoundSave, snapshot: Snapshot) -> list[dict[str, object]]:
        """Durable saves of this run whose file lies beside it under a fixed name."""
        entries = read_ledger(self._path).entries
        durable = [e for e in entries if e.run_id == self._run_id and e.n is not None]
        return carried(found, snapshot=snapshot, durable=durable, foreign=self.foreign)

    # --- adding ---

    def note(self, found: FoundSave, *, fence: int | None = None, n: int | None = None) -> None:
        """Write in the ledger that this lineage saw the save finish; with its number, that it is
        durable. Raises OSError."""
        entry = entry_for(found, run_id=self._run_id, fence=fence, n=n, time=time.time())
        append_ledger(self._path, [entry])
        self._known.add(found.identity)

    def note_laid(self, files: Iterable[FileEntry]) -> None:
        """A restore has just ended, and no trainer was told to go since. Raises OSError."""
        self.laid = write_laid(self._path, files)

    def note_durable(self, save: LocalSave) -> None:
        """Write in the ledger that the store has the save that lies here."""
        pin, record = save.pin, save.record
        entry = LedgerEntry(
            run_id=self._run_id,
            fence=record.fence,
            n=record.n,
            root=pin.root_key,
            fingerprint=pin.fingerprint,
            step=record.facts.step,
            time=time.time(),
            aliases=tuple(alias_mark(file.source) for file in pin.files[:_MARKED]),
        )
        with contextlib.suppress(OSError):  # Then nothing is removed because of it.
            append_ledger(self._path, [entry])

    def disown(self, save: LocalSave) -> None:
        """Its trainer had not loaded what it was given: the next restore sets it aside."""
        pin = save.pin
        entry = LedgerEntry(
            run_id=self._run_id,
            fence=None,
            n=None,
            root=pin.root_key,
            fingerprint=pin.fingerprint,
            step=pin.step,
            time=time.time(),
            ignored=True,
        )
        with contextlib.suppress(OSError):  # Then it stays, as the older save that it is.
            append_ledger(self._path, [entry])

    def note_carried(self, told: Mapping[str, object]) -> None:
        """A restore has brought it back: it is known again, and no news. Raises OSError."""
        mark, fence, n, step = (
            self._mark_of(str(told["path"])),
            *(told[key] if isinstance(told[key], int) else None for key in ("fence", "n", "step")),
        )
        entry = LedgerEntry(
            run_id=self._run_id,
            fence=fence,
            n=n,
            root=str(told["path"]),
            fingerprint="",
            step=step,
            time=time.time(),
            aliases=(mark,) if mark is not None else (),
        )
        append_ledger(self._path, [entry])

    def _mark_of(self, path: str) -> str | None:
        try:
            return alias_mark(entry_of(path, os.stat(self._path / path, follow_symlinks=False)))
        except OSError:
            return None
