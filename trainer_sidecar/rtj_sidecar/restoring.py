"""Restoring one chosen save on this pod: plan, fetch what is missing, apply, remember.

May be run again after a crash at any point: the plan depends only on what is there. Blocking; runs
only while no trainer does. Must never fall back to another save than the one it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rtj_sidecar.arrivals import follow_touch, learn_hash
from rtj_sidecar.checkpoints.layouts.stated import to_rebuild
from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.checkpoints.restore import (
    Owner,
    RestoreError,
    apply_restore,
    incoming_dir,
    survey,
)
from rtj_sidecar.checkpoints.restore_plan import (
    Chosen,
    RestorePlan,
    plan_restore,
    plan_set_aside,
)
from rtj_sidecar.checkpoints.types import Pointer, PointerKind, Verdict, WantedFile
from rtj_sidecar.directory import Directory
from rtj_sidecar.directory_problem import DirectoryProblem
from rtj_sidecar.runs.records import FileRecord, SaveFacts
from rtj_sidecar.sight import Look

Fetch = Callable[[Sequence[FileRecord], Path], int]
"""Fetch these files of the chosen save into a directory; the bytes that moved. Raises
RestoreError."""


@dataclass(frozen=True, slots=True)
class Restored:
    """`path`: where the trainer finds the save, None for scratch. Bytes: fetched, and in all."""

    path: str | None
    bytes_fetched: int
    bytes_total: int
    quarantined: tuple[str, ...]
    kept: tuple[str, ...] = ()
    """Of these, what is a person's own and was moved to where nothing is deleted."""


@dataclass(frozen=True, slots=True)
class Target:
    """A save as it has to stand in the directory."""

    name: str
    facts: SaveFacts
    files: tuple[FileRecord, ...]
    durable: bool
    carried: tuple[FileRecord, ...] = ()
    """Files of older saves under a fixed name (`best.pt`) that lay beside it."""

    def chosen(self) -> Chosen:
        told = self.facts.facts
        beside = set(told.get("companions") or ())
        wanted = [
            WantedFile(path=f.path, size=f.size, sha256=f.sha256, mode=f.mode) for f in self.files
        ]
        seen = [
            Pointer(p["path"], PointerKind(p["kind"]), p["value"], self.facts.root_key)
            for p in told.get("pointers") or ()
        ]
        stated = to_rebuild(told, root_key=self.facts.root_key)
        pointers = {pointer.path: pointer for pointer in (*seen, *stated)}
        return Chosen(
            root_key=self.facts.root_key,
            step=self.facts.step,
            epoch=self.facts.epoch,
            files=tuple(file for file in wanted if file.path not in beside),
            companions=(
                *(file for file in wanted if file.path in beside),
                *(
                    WantedFile(path=f.path, size=f.size, sha256=f.sha256, mode=f.mode)
                    for f in self.carried
                ),
            ),
            pointers=tuple(pointers.values()),
        )


def target_from_pins(directory: Directory, name: str) -> Target | None:
    """The save as this pod alone knows it: no store and no peer is asked. None: not whole here."""
    if not directory.has_whole(name):
        return None
    pins = directory.named(name)
    lead = next((save for save in pins if not save.record.mirror), pins[0])
    files = directory.wanted(name)
    if files is None:
        if not all(directory.is_intact(save) for save in pins):
            return None
        files = [
            FileRecord(path=path, key="", size=size, sha256=digest, crc64nvme="", mode=mode)
            for path, (size, digest, mode) in directory.hashes(name).items()
        ]
    return Target(name, lead.record.facts, tuple(files), lead.record.durable)


def restore(
    directory: Directory, target: Target, *, attempt: int, owner: Owner | None, fetch: Fetch
) -> Restored:
    """Make the directory hold exactly that save as its newest. Raises RestoreError."""
    chosen = target.chosen()
    restore_id = target.name  # where vetting has put what it fetched
    try:
        look = directory.look(writers=Writers(gone=True))
        fetched = 0
        for _ in range(2):
            local = survey(
                reader=directory.reader,
                snapshot=look.snapshot,
                chosen=chosen,
                restore_id=restore_id,
            )
            plan = plan_restore(
                snapshot=look.snapshot,
                verdicts=_verdicts(look),
                chosen=chosen,
                local=local,
                disowned=directory.ledger.disowned(),
                foreign=directory.ledger.foreign,
            )
            if not plan.fetch:
                break
            incoming = incoming_dir(directory.path, restore_id)
            incoming.mkdir(parents=True, exist_ok=True)
            wanted = {file.path for file in plan.fetch}
            known = (*target.files, *target.carried)
            fetched += fetch([file for file in known if file.path in wanted], incoming)
        else:
            missing = ", ".join(file.path for file in plan.fetch[:3])
            raise RestoreError(f"{target.name}: {missing} did not arrive whole")
        moved = apply_restore(
            root=directory.path, plan=plan, restore_id=restore_id, attempt=attempt, owner=owner
        )
        follow_touch(directory, plan.touch)
    except (OSError, UnsafePathError, DirectoryProblem) as error:
        raise RestoreError(f"{target.name}: {error}") from error
    for file in proved(chosen, plan):
        learn_hash(directory, directory.path / file.path, file.sha256)
    total = sum(file.size for file in chosen.files)
    path = str(directory.path / chosen.root_key) if chosen.root_key != "." else str(directory.path)
    return Restored(path, fetched, total, moved, _kept(plan, moved))


def proved(chosen: Chosen, plan: RestorePlan) -> list[WantedFile]:
    """The files of the save whose bytes in the directory are known to be those that are wanted."""
    proved = {*plan.valid, *(file.path for file in plan.place)}
    return [file for file in (*chosen.files, *chosen.companions) if file.path in proved]


def set_all_aside(directory: Directory, *, attempt: int) -> Restored:
    """A start from nothing: whatever save is in the directory goes to quarantine, with every
    pointer that names one. Raises RestoreError."""
    try:
        look = directory.look(writers=Writers(gone=True))
        plan = plan_set_aside(look.snapshot, foreign=directory.ledger.foreign)
        moved = apply_restore(
            root=directory.path, plan=plan, restore_id=f"{attempt}-scratch", attempt=attempt
        )
    except (OSError, UnsafePathError, DirectoryProblem) as error:
        raise RestoreError(f"quarantine before a start from nothing: {error}") from error
    return Restored(None, 0, 0, moved, _kept(plan, moved))


def _kept(plan: RestorePlan, moved: Sequence[str]) -> tuple[str, ...]:
    return tuple(path for path in moved if path in plan.keep)


def _verdicts(look: Look) -> dict[tuple[str, str], Verdict]:
    return {save.identity: verdict for save, verdict in look.judged}
