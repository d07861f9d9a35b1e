"""Looking at the checkpoint directory: what it holds now, and what is remembered between two looks.

A save is quiet, has vanished, or is overwritten in place only by comparison with the looks before.
Must never change a file, and never judge by more than what it saw.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rtj_sidecar.checkpoints.deeper import NOT_DEEPER, Deeper, Depth
from rtj_sidecar.checkpoints.layouts.base import Layout
from rtj_sidecar.checkpoints.pin_choice import InodeHistory, next_history
from rtj_sidecar.checkpoints.quiescence import Observations, Writers, observe
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.scan import EMPTY, take_snapshot
from rtj_sidecar.checkpoints.types import Expectations, FoundSave, Snapshot, Status, Verdict
from rtj_sidecar.checkpoints.validate import Patience, judge_all
from rtj_sidecar.checkpoints.vanished import vanished

SETTLE_SECONDS = 1.0
HURRY_SECONDS = 0.1
"""How long a file that proves itself must rest, once saves were seen to vanish unpinned."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look: every save with its verdict, oldest first."""

    judged: tuple[tuple[FoundSave, Verdict], ...]
    snapshot: Snapshot
    vanished: tuple[FoundSave, ...] = ()
    """Finished saves that the trainer took away before they were pinned."""
    spells: Mapping[str, float] = field(default_factory=dict)
    """By root key: since when (Unix seconds) a save is, or was until this look, found unfinished by
    one look after the other."""


class Sight:
    """Holds the memory between two looks."""

    def __init__(
        self, reader: Reader, layouts: Sequence[Layout], *, depth: Depth = NOT_DEEPER
    ) -> None:
        self._deeper = Deeper(reader, depth)
        self._reader = reader
        self._layouts = layouts
        self._observations = Observations()
        self._spells: dict[str, float] = {}
        self.snapshot: Snapshot = EMPTY
        self.history = InodeHistory()
        self.largest = 0  # bytes of the largest save that was ever seen here
        self.in_hurry = False  # saves vanish faster than they settle

    def recall(self, recorded: Iterable[tuple[str, tuple[str, str], Mapping[str, object]]]) -> None:
        """(layout, identity, facts) of what an earlier sidecar looked into, oldest first."""
        self._deeper.recall(recorded)

    def look(
        self,
        *,
        writers: Writers,
        expect: Expectations,
        is_known: Callable[[FoundSave], bool],
        is_earlier: Callable[[FoundSave], bool] = lambda _: False,
        settle: float = SETTLE_SECONDS,
        laid: Collection[str] = (),
    ) -> Look:
        """What the directory holds now. Raises OSError where it cannot be read."""
        snapshot = take_snapshot(
            reader=self._reader, layouts=self._layouts, previous=self.snapshot, laid=laid
        )
        now = time.monotonic()
        lost = vanished(before=self.snapshot.saves, now=snapshot, is_known=is_known)
        self.in_hurry = self.in_hurry or bool(lost)
        self.snapshot = snapshot
        self._observations = observe(before=self._observations, snapshot=snapshot, now=now)
        self._remember_inodes(snapshot, now=now, settle=settle, writers=writers)
        judged = judge_all(
            snapshot=snapshot,
            reader=self._reader,
            layouts=self._layouts,
            observations=self._observations,
            patience=Patience(
                now=now,
                settle_seconds=settle,
                hurry_seconds=HURRY_SECONDS
                if self.in_hurry and writers.open_paths is not None
                else None,
            ),
            writers=writers,
            expect=expect,
            is_earlier=is_earlier,
        )
        self.largest = max([self.largest, *(save.size for save in snapshot.saves)])
        before, looked = self._spells, self._deeper.look(judged)
        self._spells = {
            save.root_key: before.get(save.root_key, time.time())
            for save, verdict in looked
            if verdict.status is Status.WRITING
        }
        return Look(looked, snapshot, lost, {**before, **self._spells})

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
            elif (last := self.history.last.get(entry.path)) is not None:
                inode, size, mtime = last
                files.append(replace(entry, inode=inode, size=size, mtime_ns=mtime))
        self.history = next_history(
            before=self.history, snapshot=replace(snapshot, files=tuple(files))
        )
