"""The checkpoint directory of this pod: its pins, and what belongs to them.

The registry that the operations on the directory share: `sight` looks, `ledger` knows what the run
has seen, `pinning` pins, `arrivals` takes in what is fetched or restored, `room` makes room.
Blocking and not thread-safe: the agent calls it from one thread only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rtj_api.contract import HIDDEN_DIR

from rtj_sidecar.checkpoints.deeper import NOT_DEEPER, Depth
from rtj_sidecar.checkpoints.layouts import layouts_for
from rtj_sidecar.checkpoints.pins import (
    PinnedFile,
    drop_pin,
    files_dir,
    list_pins,
    pin_entries,
    sweep_pins,
)
from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.scan import take_snapshot
from rtj_sidecar.checkpoints.types import Expectations, FoundSave, PartFiles, Snapshot
from rtj_sidecar.directory_problem import problem_of
from rtj_sidecar.local_ledger import LocalLedger
from rtj_sidecar.localsave import LocalSave, pin_id, read_record, write_record
from rtj_sidecar.runs.records import FileRecord, ShipRecord
from rtj_sidecar.sight import SETTLE_SECONDS, Look, Sight


class Directory:
    """The pins of `path`, those of this run only."""

    def __init__(
        self,
        path: Path,
        *,
        run_id: str,
        layout: str,
        include: tuple[str, ...],
        expect: Expectations,
        depth: Depth = NOT_DEEPER,
    ) -> None:
        self.path = path
        self.run_id = run_id
        self.reader = Reader(path)
        self.layouts = layouts_for(layout=layout, include=include)
        self.expect = expect
        self.here_before: frozenset[tuple[str, str]] = frozenset()  # before the go, and nobody's
        self.place: str | None = None  # "<rank>/<world size>" of the attempt
        self.sight = Sight(self.reader, self.layouts, depth=depth)
        self.ledger = LocalLedger(path, run_id=run_id)
        self._saves: dict[str, LocalSave] = {}
        self._by_path: dict[str, Mapping[str, PinnedFile]] = {}  # by pin, once it was asked for

    def look(self, *, writers: Writers, settle: float = SETTLE_SECONDS) -> Look:
        """What the directory holds now. Raises DirectoryProblem where it cannot be read."""
        try:
            return self.sight.look(
                writers=writers,
                expect=self.expect,
                is_known=self.ledger.is_known,
                is_earlier=self._is_earlier,
                settle=settle,
                # Who writes the whole directory rewrites whatever its save consists of.
                laid=frozenset() if self.expect.whole else self.ledger.laid,
            )
        except OSError as error:
            raise problem_of(error, self.path, "read") from error

    def _is_earlier(self, found: FoundSave) -> bool:
        """Whether it was judged when it finished, by the world of its own attempt, or was there
        before any: a smaller world's save is whole in a larger one."""
        return self.ledger.is_known(found) or found.identity in self.here_before

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

    def load(self, *, is_new: bool = False) -> None:
        """Pins that an earlier sidecar left. Half-made and changed ones are removed; those of other
        runs stay: one of them may be running, where a directory is shared.

        `is_new`: no trainer was started in this pod yet, so what a directory holds that no sidecar
        of this run has ever looked at is somebody else's. Raises DirectoryProblem where the ledger
        cannot be read: unknown is not empty.
        """

        def before_us() -> Snapshot:
            return take_snapshot(reader=self.reader, layouts=self.layouts)

        try:
            self.ledger.load(snapshot_if_new=before_us if is_new else None)
        except OSError as error:
            raise problem_of(error, self.path, "read") from error
        sweep_pins(reader=self.reader)
        for pin in list_pins(self.path):
            record = read_record(self.path, pin.id)
            if record is not None and record.run_id != self.run_id:
                continue
            if record is None or pin_entries(self.path, pin) is None:
                drop_pin(reader=self.reader, pin_id=pin.id)
            else:
                self._saves[pin.id] = LocalSave(pin, record)
        self.sight.recall(
            (s.pin.layout, (s.pin.root_key, s.pin.fingerprint), s.record.facts.facts)
            for s in self.saves
        )

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
        told = (s.record for s in self.named(name) if s.record.wanted is not None)
        return next((r.wanted for r in told if r.wanted_for in (None, self.place)), None)

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
        expect = replace(self.expect, earlier=ship.adopted)
        return layout.union_gate(parts=[part], expect=expect).passed is not False

    def next_ordinal(self) -> int:
        return max((s.record.ordinal for s in self._saves.values()), default=0) + 1

    def hold(self, save: LocalSave) -> LocalSave:
        """What lies on the disk as a pin, with its record, counts from now on."""
        self._saves[save.pin.id] = save
        self._by_path.pop(save.pin.id, None)
        return save

    def update(self, save: LocalSave, **changes: object) -> LocalSave:
        """Change what is remembered of a pin. Raises DirectoryProblem."""
        # `save` may have been looked at before a long upload: what was learnt since stays.
        known = self._saves.get(save.pin.id)
        if known is None:
            return save  # dropped meanwhile: nothing is remembered of it
        record = known.record.model_copy(update=changes)
        if record != known.record:
            try:
                write_record(self.path, known.pin.id, record)
            except OSError as error:
                raise problem_of(error, self.path, "write to") from error
            self.hold(LocalSave(known.pin, record))
        return self._saves[known.pin.id]

    def drop(self, save: LocalSave) -> None:
        """Raises DirectoryProblem; then the pin stays."""
        try:
            drop_pin(reader=self.reader, pin_id=save.pin.id)
        except OSError as error:
            raise problem_of(error, self.path, "remove a pin below") from error
        self._saves.pop(save.pin.id, None)
        self._by_path.pop(save.pin.id, None)

    def pinned(self, name: str, path: str) -> tuple[Path, int] | None:
        """Where the pinned bytes of one file of that save lie, and how many: without a walk over
        the others, of which there may be a hundred thousand."""
        for save in self._saves.copy().values():
            if save.record.name != name:
                continue
            pin = save.pin
            files = self._by_path.get(pin.id)
            if files is None:
                files = self._by_path[pin.id] = {file.path: file for file in pin.files}
            if (file := files.get(path)) is not None:
                return files_dir(self.path, pin.id) / path, file.stamp.size
        return None

    def is_intact(self, save: LocalSave) -> bool:
        """Whether the pinned bytes are still those that were pinned."""
        return pin_entries(self.path, save.pin) is not None

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
