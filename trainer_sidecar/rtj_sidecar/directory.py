"""The checkpoint directory of this pod: what lies in it, what is pinned, what each pin is.

Beside each pin lies `save.json`: which attempt made the save, its name in the run once it has one,
and whether it is durable. So a sidecar that was killed, or a new pod on an old volume, knows as
much as before. Blocking and not thread-safe: the agent calls it from one thread only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import ValidationError
from rtj_api.contract import HIDDEN_DIR
from rtj_api.reasons import Reason
from rtj_api.wire import Wire

from rtj_sidecar.checkpoints.carried import carried
from rtj_sidecar.checkpoints.foreign import (
    are_foreign,
    is_first_look,
    read_foreign,
    write_foreign,
)
from rtj_sidecar.checkpoints.layouts import layouts_for
from rtj_sidecar.checkpoints.ledger import (
    LedgerEntry,
    alias_mark,
    append_ledger,
    entry_for,
    read_ledger,
)
from rtj_sidecar.checkpoints.pin_choice import InodeHistory, PinHow, how_to_pin, next_history
from rtj_sidecar.checkpoints.pins import (
    Pin,
    PinError,
    PinnedFile,
    disk_room,
    drop_pin,
    files_dir,
    list_pins,
    pin_entries,
    pin_save,
    pins_dir,
    sweep_pins,
)
from rtj_sidecar.checkpoints.quarantine import free_quarantine
from rtj_sidecar.checkpoints.quiescence import Observations, Writers, observe
from rtj_sidecar.checkpoints.reader import Reader, stamp_of
from rtj_sidecar.checkpoints.scan import EMPTY, entry_of, take_snapshot, walk
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FileEntry,
    FoundSave,
    PartFiles,
    Snapshot,
    Stamp,
    Verdict,
)
from rtj_sidecar.checkpoints.validate import Patience, judge_all
from rtj_sidecar.checkpoints.vanished import vanished
from rtj_sidecar.runs.records import FileRecord, SaveFacts, ShipRecord
from rtj_sidecar.trainer.supervisor_link import write_whole

SETTLE_SECONDS = 1.0
_MARKED = 16  # files of a durable save by which it is known again under a fixed name
HURRY_SECONDS = 0.1
"""How long a file that proves itself must rest, once saves were seen to vanish unpinned."""


class PinRecord(Wire):
    """`save.json` beside a pin."""

    run_id: str
    attempt: int  # that made it; of a mirror: that fetched it
    ordinal: int  # counts the saves of this directory
    facts: SaveFacts
    seen_at: float
    name: str | None = None
    fence: int | None = None
    n: int | None = None
    durable: bool = False
    part_done: bool = False  # this rank's part of it is in the store
    wanted: list[FileRecord] | None = None  # what this rank has to restore of it, once known
    over: str | None = None  # why it will never be durable: skipped, dropped, ignored
    mirror: bool = False  # fetched, not written by this rank's trainer
    alone: bool = False  # when it was named, nobody else had files of it, and none is missing


@dataclass(frozen=True, slots=True)
class LocalSave:
    pin: Pin
    record: PinRecord

    @property
    def bytes(self) -> int:
        return sum(file.stamp.size for file in self.pin.files)

    @property
    def is_pending(self) -> bool:
        """Finished here, and nobody has yet made it durable or given it up."""
        return not (self.record.durable or self.record.over or self.record.mirror)


@dataclass(frozen=True, slots=True)
class Look:
    """One look: every save with its verdict, oldest first."""

    judged: tuple[tuple[FoundSave, Verdict], ...]
    snapshot: Snapshot
    vanished: tuple[FoundSave, ...] = ()
    """Finished saves that the trainer took away before they were pinned."""


@dataclass(frozen=True, slots=True)
class DirectoryProblem(Exception):
    """The directory does not take what must be written, or cannot be read."""

    reason: Reason
    message: str

    def __str__(self) -> str:
        return self.message


class Directory:
    """Holds the memory between two looks."""

    def __init__(
        self,
        path: Path,
        *,
        run_id: str,
        layout: str,
        include: tuple[str, ...],
        expect: Expectations,
    ) -> None:
        self.path = path
        self.reader = Reader(path)
        self.layouts = layouts_for(layout=layout, include=include)
        self.expect = expect
        self._run_id = run_id
        self._snapshot: Snapshot = EMPTY
        self._observations = Observations()
        self._history = InodeHistory()
        self._saves: dict[str, LocalSave] = {}
        self._largest = 0
        self._known: set[tuple[str, str]] = set()  # generations that the ledger has
        self.in_hurry = False  # saves vanish faster than they settle
        self.foreign: frozenset[str] = frozenset()  # marks of files that were there before us

    # --- looking ---

    def look(self, *, writers: Writers, settle: float = SETTLE_SECONDS) -> Look:
        """What the directory holds now. Raises DirectoryProblem where it cannot be read."""
        try:
            snapshot = take_snapshot(
                reader=self.reader, layouts=self.layouts, previous=self._snapshot
            )
        except OSError as error:
            raise problem_of(error, self.path, "read") from error
        now = time.monotonic()
        lost = vanished(before=self._snapshot.saves, now=snapshot, is_known=self._is_known)
        self.in_hurry = self.in_hurry or bool(lost)
        self._snapshot = snapshot
        self._observations = observe(before=self._observations, snapshot=snapshot, now=now)
        self._remember_inodes(snapshot, now=now, settle=settle, writers=writers)
        judged = judge_all(
            snapshot=snapshot,
            reader=self.reader,
            layouts=self.layouts,
            observations=self._observations,
            patience=Patience(
                now=now,
                settle_seconds=settle,
                hurry_seconds=HURRY_SECONDS
                if self.in_hurry and writers.open_paths is not None
                else None,
            ),
            writers=writers,
            expect=self.expect,
        )
        self._largest = max([self._largest, *(save.size for save in snapshot.saves)])
        return Look(judged, snapshot, lost)

    def _is_known(self, found: FoundSave) -> bool:
        return found.identity in self._known or are_foreign(found.all_files, self.foreign)

    def _remember_inodes(
        self, snapshot: Snapshot, *, now: float, settle: float, writers: Writers
    ) -> None:
        # A file that grows keeps its inode and changes its size: that is no overwriting. So a
        # path enters the history only settled, and keeps its last settled state meanwhile.
        files = []
        for entry in snapshot.files:
            since = self._observations.since[entry.path][1]
            if writers.gone or now - since >= settle:
                files.append(entry)
            elif (last := self._history.last.get(entry.path)) is not None:
                inode, size, mtime = last
                files.append(replace(entry, inode=inode, size=size, mtime_ns=mtime))
        self._history = next_history(
            before=self._history, snapshot=replace(snapshot, files=tuple(files))
        )

    def make(self, *, uid: int, gid: int) -> None:
        """Make the directory where only the volume above it is there, for the trainer's user.

        Raises DirectoryProblem.
        """
        try:
            missing = [path for path in (self.path, *self.path.parents) if not path.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            if os.getuid() != 0 or uid == 0:
                return
            # One that a fetch ahead of the trainer had to make is still empty and root's.
            if set(os.listdir(self.path)) <= {HIDDEN_DIR} and not os.path.ismount(self.path):
                missing = [*missing, self.path] if self.path.stat().st_uid == 0 else missing
            for path in missing:
                os.chown(path, uid, gid)
        except OSError as error:
            raise problem_of(error, self.path, "make") from error

    # --- pins ---

    def load(self, *, is_new: bool = False) -> None:
        """Pins that an earlier sidecar left. Half-made and changed ones are removed; those of other
        runs stay: one of them may be running, where a directory is shared.

        `is_new`: no trainer was started in this pod yet, so what a directory holds that no sidecar
        of this run has ever looked at is somebody else's. Raises DirectoryProblem where the ledger
        cannot be read: unknown is not empty.
        """
        try:
            entries = read_ledger(self.path).entries
            others = bool(entries) and all(e.run_id != self._run_id for e in entries)
            if is_new and (others or is_first_look(self.path)):
                snapshot = take_snapshot(reader=self.reader, layouts=self.layouts)
                self.foreign = write_foreign(self.path, snapshot)
            else:
                self.foreign = read_foreign(self.path) or frozenset()
        except OSError as error:
            raise problem_of(error, self.path, "read") from error
        self._known = {(e.root, e.fingerprint) for e in entries if e.run_id == self._run_id}
        sweep_pins(reader=self.reader)
        for pin in list_pins(self.path):
            record = _read_record(self.path, pin.id)
            if record is not None and record.run_id != self._run_id:
                continue
            if record is None or pin_entries(self.path, pin) is None:
                drop_pin(reader=self.reader, pin_id=pin.id)
            else:
                self._saves[pin.id] = LocalSave(pin, record)

    @property
    def saves(self) -> list[LocalSave]:
        """Pinned saves, oldest first."""
        return sorted(self._saves.values(), key=lambda save: save.record.ordinal)

    def find(self, found: FoundSave) -> LocalSave | None:
        """The pin of this very generation."""
        return self._saves.get(pin_id(found))

    def named(self, name: str) -> list[LocalSave]:
        """Every pin of that save: this rank's own files, and what was fetched beside them."""
        return [save for save in self.saves if save.record.name == name]

    def wanted(self, name: str) -> list[FileRecord] | None:
        """What this rank has to restore of a save, as far as it was told."""
        return next(
            (s.record.wanted for s in self.named(name) if s.record.wanted is not None), None
        )

    def has_whole(self, name: str) -> bool:
        """Whether nothing would have to be fetched to restore it."""
        pins = self.named(name)
        wanted = self.wanted(name)
        if wanted is None:
            # What one rank wrote may be a share of it: its RNG state, its shards.
            own = [save.record for save in pins if not save.record.mirror]
            return any(self.expect.whole or record.alone for record in own)
        have = {(f.path, f.stamp.size) for save in pins for f in save.pin.files}
        return all((file.path, file.size) in have for file in wanted)

    def is_alone(self, save: LocalSave, ship: ShipRecord, *, rank: int) -> bool:
        """Whether that rank's pin is all of the save: by the ship that named it, and by the rules
        of its layout."""
        record, layout = save.record, layouts_for(layout=ship.layout)[0]
        if ship.expected != [rank]:
            return False
        files = {file.path: file.stamp.size for file in save.pin.files}
        part = PartFiles(rank=rank, files=files, facts=record.facts.facts)
        return layout.union_gate(parts=[part], expect=self.expect).passed is not False

    def next_ordinal(self) -> int:
        return max((s.record.ordinal for s in self._saves.values()), default=0) + 1

    def pin(self, found: FoundSave, *, verdict: Verdict, attempt: int) -> LocalSave:
        """Pin a finished save and remember who made it. Raises DirectoryProblem; try again later.

        The companions of this moment and the pointers that name the save go with it.
        """
        companions = (*self._snapshot.companions, *self._loose(found))
        pointers = [p for p in self._snapshot.pointers if p.names == found.root_key]
        extra: dict[str, object] = {
            "carried": self._carried(found),
            "aliases": [entry.path for entry in found.aliases],
            "companions": [entry.path for entry in companions],
            "pointers": [
                {"path": p.path, "kind": p.kind.value, "value": p.value} for p in pointers
            ],
        }
        try:
            try:
                whole = replace(found, aliases=(*found.aliases, *companions))
                pin = self._pin(whole)
            except PinError:
                # A companion may be a log that never rests; the save itself must not wait for it.
                extra["companions"] = []
                pin = self._pin(found)
            facts = facts_of(found, verdict)
            record = PinRecord(
                run_id=self._run_id,
                attempt=attempt,
                ordinal=self.next_ordinal(),
                facts=facts.model_copy(update={"facts": {**facts.facts, **extra}}),
                seen_at=time.time(),
            )
            self._write(pin.id, record)
            self.note(found)
        except OSError as error:
            raise problem_of(error, self.path, "write to") from error
        except PinError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in _DISK:
                raise problem_of(cause, self.path, "write to") from error
            raise DirectoryProblem(Reason.CHECKPOINT_TORN, str(error)) from error
        self._saves[pin.id] = LocalSave(pin, record)
        return self._saves[pin.id]

    def has_carried(self, told: Mapping[str, object]) -> bool:
        """Whether the file of an older save that lay beside another is still that one."""
        mark = self._mark_of(str(told["path"]))
        number = (told["fence"], told["n"])
        entries = read_ledger(self.path).entries
        return any(mark in e.aliases and (e.fence, e.n) == number for e in entries)

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
        append_ledger(self.path, [entry])

    def _mark_of(self, path: str) -> str | None:
        try:
            return alias_mark(entry_of(path, os.stat(self.path / path, follow_symlinks=False)))
        except OSError:
            return None

    def _loose(self, found: FoundSave) -> list[FileEntry]:
        """Files of older saves under a fixed name that no durable save holds: they go with it."""
        entries = read_ledger(self.path).entries
        held = {mark for e in entries if e.n is not None for mark in e.aliases}
        own = {entry.path for entry in found.all_files}
        return [
            save.files[0]
            for save in self._snapshot.saves
            if save.reused_path
            and len(save.files) == 1
            and save.files[0].path not in own
            and (save.step is not None and found.step is not None and save.step < found.step)
            and alias_mark(save.files[0]) not in held
            and not are_foreign(save.files, self.foreign)
        ]

    def _carried(self, found: FoundSave) -> list[dict[str, object]]:
        entries = read_ledger(self.path).entries
        durable = [e for e in entries if e.run_id == self._run_id and e.n is not None]
        return carried(found, snapshot=self._snapshot, durable=durable, foreign=self.foreign)

    def _pin(self, found: FoundSave) -> Pin:
        how = how_to_pin(save=found, history=self._history)
        self.make_room(sum(e.size for e in found.all_files if how.get(e.path) is PinHow.COPY))
        return pin_save(reader=self.reader, save=found, pin_id=pin_id(found), how=how)

    def is_news(self, found: FoundSave) -> bool:
        """Whether this lineage has not seen this generation finish before. Raises OSError.

        What is only left of an older save under a fixed name is no news either.
        """
        if self._is_known(found):
            return False
        return not read_ledger(self.path).holds_old_news(found, run_id=self._run_id)

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
            append_ledger(self.path, [entry])

    def is_of_another_run(self, found: FoundSave) -> bool:
        """Whether the ledger knows this generation, and only as another run's. Raises OSError."""
        entries = read_ledger(self.path).entries
        runs = {e.run_id for e in entries if (e.root, e.fingerprint) == found.identity}
        return bool(runs) and self._run_id not in runs

    def note(self, found: FoundSave, *, fence: int | None = None, n: int | None = None) -> None:
        """Write in the ledger that this lineage saw the save finish; with its number, that it is
        durable. Raises OSError."""
        entry = entry_for(found, run_id=self._run_id, fence=fence, n=n, time=time.time())
        append_ledger(self.path, [entry])
        self._known.add(found.identity)

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
            append_ledger(self.path, [entry])

    def disowned(self) -> frozenset[tuple[str, str]]:
        """Identities of the saves that a restore has to set aside, wherever they stand.

        Raises OSError.
        """
        entries = (e for e in read_ledger(self.path).entries if e.run_id == self._run_id)
        return frozenset((e.root, e.fingerprint) for e in entries if e.ignored)

    def begin_fetch(self, pin: str, *, wanted: int) -> Path:
        """Room for `wanted` bytes, and the place to fetch them into. Raises DirectoryProblem."""
        self.make_room(wanted)
        base = files_dir(self.path, pin)
        try:
            base.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise problem_of(error, self.path, "write to") from error
        return base

    def adopt(self, record: PinRecord, *, pin: str) -> LocalSave:
        """Make what was fetched into that pin's `files_dir` a pin. Raises DirectoryProblem."""
        base = files_dir(self.path, pin)
        try:
            files = tuple(
                PinnedFile(entry.path, PinHow.COPY, entry, entry.stamp) for entry in walk(base)[0]
            )
            facts = record.facts
            whole = Pin(pin, facts.root_key, pin, facts.layout, facts.step, files)
            self._write(pin, record)
            write_whole(base.parent / "pin.json", json.dumps(asdict(whole)))
        except OSError as error:
            raise problem_of(error, self.path, "write to") from error
        self._saves[pin] = LocalSave(whole, record)
        return self._saves[pin]

    def follow_touch(self, paths: Collection[str]) -> None:
        """A restore gave these files a new time; pins that are links to them have it, too.

        Raises OSError.
        """
        for save in self.saves:
            files = tuple(
                replace(file, stamp=touched)
                if file.path in paths and (touched := self._touched(save, file)) is not None
                else file
                for file in save.pin.files
            )
            if files != save.pin.files:
                pin = replace(save.pin, files=files)
                write_whole(pins_dir(self.path) / pin.id / "pin.json", json.dumps(asdict(pin)))
                self._saves[pin.id] = LocalSave(pin, save.record)

    def _touched(self, save: LocalSave, file: PinnedFile) -> Stamp | None:
        try:
            pinned = os.stat(files_dir(self.path, save.pin.id) / file.path, follow_symlinks=False)
            placed = os.stat(self.path / file.path, follow_symlinks=False)
        except OSError:
            return None
        same = (pinned.st_dev, pinned.st_ino) == (placed.st_dev, placed.st_ino)
        was = (pinned.st_ino, pinned.st_size) == (file.stamp.inode, file.stamp.size)
        return stamp_of(pinned) if same and was else None

    def is_intact(self, save: LocalSave) -> bool:
        """Whether the pinned bytes are still those that were pinned."""
        return pin_entries(self.path, save.pin) is not None

    def learn_hash(self, path: Path, sha256: str) -> None:
        """Remember the hash of a file's present state, so that a restore reads nothing."""
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError:
            return
        stamp = Stamp(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )
        self.reader.cache.put(stamp, "sha256", sha256)

    def make_room(self, wanted: int) -> None:
        """Empty quarantine, then drop the oldest durable pins, until `wanted` bytes fit.

        Raises DirectoryProblem.
        """
        while True:
            room = disk_room(self.path, largest_save=self._largest if wanted else 0, wanted=wanted)
            if wanted == 0 or room.fits:
                return
            if free_quarantine(self.path, wanted=room.wanted + room.reserve - room.free) > 0:
                continue
            spare = [save for save in self.saves if save.record.durable or save.record.over]
            if not spare:
                raise DirectoryProblem(
                    Reason.DISK_FULL,
                    f"{self.path} has {room.free:,} bytes free; {wanted:,} are needed beside the "
                    f"{room.reserve:,} that the next save may need. Make the volume larger, or let "
                    "the trainer keep fewer checkpoints",
                )
            self.drop(spare[0])

    def drop_mirrors(self, wanted: int) -> int:
        """Drop what was fetched for others, oldest first; the bytes that came free."""
        return self._drop_some([s for s in self.saves if s.record.mirror], wanted)

    def drop_durable_pins(self, wanted: int) -> int:
        """Drop pins that the store has, or that never will be in it, newest last; the bytes that
        may have come free."""
        spare = [s for s in self.saves if s.record.durable or s.record.over]
        return self._drop_some(spare[:-1], wanted)

    def _drop_some(self, spare: list[LocalSave], wanted: int) -> int:
        freed = 0
        for save in spare:
            if freed >= wanted:
                break
            freed += save.bytes
            self.drop(save)
        return freed

    @property
    def largest_save(self) -> int:
        """Bytes of the largest save that was ever seen here."""
        return self._largest

    @property
    def run_id(self) -> str:
        return self._run_id

    def update(self, save: LocalSave, **changes: object) -> LocalSave:
        """Change what is remembered of a pin. Raises DirectoryProblem."""
        record = save.record.model_copy(update=changes)
        if record != save.record:
            try:
                self._write(save.pin.id, record)
            except OSError as error:
                raise problem_of(error, self.path, "write to") from error
            self._saves[save.pin.id] = LocalSave(save.pin, record)
        return self._saves[save.pin.id]

    def drop(self, save: LocalSave) -> None:
        drop_pin(reader=self.reader, pin_id=save.pin.id)
        self._saves.pop(save.pin.id, None)

    def hashes(self, name: str) -> dict[str, tuple[int, str, int]]:
        """(size, SHA-256, mode) of every pinned file of a save, hashed at most once."""
        found: dict[str, tuple[int, str, int]] = {}
        for save in self.named(name):
            entries = pin_entries(self.path, save.pin) or ()
            reader = Reader(files_dir(self.path, save.pin.id), cache=self.reader.cache)
            for entry in entries:
                found.setdefault(entry.path, (entry.size, reader.sha256(entry), entry.mode))
        return found

    def sources(self, save: LocalSave) -> Mapping[str, Path]:
        """Where the pinned bytes lie, by their path in the checkpoint directory."""
        base = files_dir(self.path, save.pin.id)
        return {file.path: base / file.path for file in save.pin.files}

    def _write(self, pin: str, record: PinRecord) -> None:
        write_whole(pins_dir(self.path) / pin / "save.json", record.dump_json())


def pin_id(found: FoundSave) -> str:
    return f"s-{found.fingerprint}"


def facts_of(found: FoundSave, verdict: Verdict) -> SaveFacts:
    """What is known of a save, as its records tell it."""
    return SaveFacts(
        root_key=found.root_key,
        layout=found.layout,
        step=found.step,
        epoch=found.epoch,
        loss=found.loss,
        full_state=found.full_state,
        status=verdict.status.value,
        gates=[
            {"name": g.name.value, "passed": g.passed, "detail": g.detail, "reason": g.reason.value}
            for g in verdict.gates
        ],
        facts=dict(verdict.facts),
    )


def _read_record(path: Path, pin: str) -> PinRecord | None:
    try:
        text = (pins_dir(path) / pin / "save.json").read_text(encoding="utf-8")
        return PinRecord.model_validate_json(text)
    except (OSError, ValidationError):
        return None


_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}


def problem_of(error: OSError, path: Path, what: str) -> DirectoryProblem:
    """An error of the checkpoint directory, with its remedy. `what` was not possible there."""
    text = f"cannot {what} {path}: {error.strerror or error}"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return DirectoryProblem(
                Reason.DISK_FULL,
                f"{text}. Make the volume larger, or let the trainer keep fewer checkpoints",
            )
        case errno.EROFS:
            return DirectoryProblem(
                Reason.DIRECTORY_READ_ONLY,
                f"{text}. Mount it read-write, or set checkpoint.path to a writable directory",
            )
        case errno.ENOENT:
            return DirectoryProblem(
                Reason.DIRECTORY_MISSING, f"{text}. Check checkpoint.path and its volume"
            )
        case _:
            return DirectoryProblem(
                Reason.PATH_NOT_WRITABLE,
                f"{text}. Give the sidecar's user (uid {os.getuid()}) access, e.g. by fsGroup",
            )
