"""A save as this project would ship it, and put back into a directory by the real restore."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from rtj_sidecar.checkpoints.layouts import layouts_for
from rtj_sidecar.checkpoints.layouts.stated import to_rebuild
from rtj_sidecar.checkpoints.quiescence import Observations, Writers, observe
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.restore import apply_restore, incoming_dir, survey
from rtj_sidecar.checkpoints.restore_plan import Chosen, plan_restore
from rtj_sidecar.checkpoints.scan import take_snapshot
from rtj_sidecar.checkpoints.types import (
    Expectations,
    FoundSave,
    Snapshot,
    Verdict,
    WantedFile,
)
from rtj_sidecar.checkpoints.validate import Patience, judge_all


@dataclass(frozen=True)
class Shipped:
    """One save with its bytes in `files`, a directory of its own (relative path -> below it)."""

    chosen: Chosen
    files: Path


def look(
    root: Path, *, world_size: int | None = None
) -> tuple[Snapshot, dict[tuple[str, str], Verdict], Reader]:
    """What lies there, with a verdict on each save of that many ranks; no writer is left."""
    reader, layouts = Reader(root), layouts_for()
    snapshot = take_snapshot(reader=reader, layouts=layouts)
    judged = judge_all(
        snapshot=snapshot,
        reader=reader,
        layouts=layouts,
        observations=observe(before=Observations(), snapshot=snapshot, now=0.0),
        patience=Patience(now=0.0),
        writers=Writers(gone=True),
        expect=Expectations(world_size=world_size),
    )
    return snapshot, {found.identity: verdict for found, verdict in judged}, reader


def ship(root: Path, found: FoundSave, snapshot: Snapshot, *, into: Path) -> Shipped:
    """Copies the save with the companions of this moment; `into` must not exist."""
    for entry in (*found.all_files, *snapshot.companions):
        place = into / entry.path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / entry.path, place)
    pointers = {p.path: p for p in snapshot.pointers if p.names == found.root_key}
    pointers |= {p.path: p for p in to_rebuild(found.facts, root_key=found.root_key)}
    chosen = Chosen(
        root_key=found.root_key,
        step=found.step,
        epoch=found.epoch,
        files=tuple(_wanted(into, entry.path) for entry in found.all_files),
        companions=tuple(_wanted(into, entry.path) for entry in snapshot.companions),
        pointers=tuple(pointers.values()),
    )
    return Shipped(chosen, into)


def put_back(shipped: Shipped, root: Path) -> None:
    """The real restore: what is valid stays, the rest is taken from the shipped bytes."""
    root.mkdir(parents=True, exist_ok=True)
    snapshot, verdicts, reader = look(root)
    local = survey(reader=reader, snapshot=snapshot, chosen=shipped.chosen, restore_id="test")
    plan = plan_restore(snapshot=snapshot, verdicts=verdicts, chosen=shipped.chosen, local=local)
    for file in plan.fetch:
        place = incoming_dir(root, "test") / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(shipped.files / file.path, place)
    apply_restore(root=root, plan=plan, restore_id="test", attempt=1)


def _wanted(root: Path, path: str) -> WantedFile:
    content = (root / path).read_bytes()
    return WantedFile(path, len(content), hashlib.sha256(content).hexdigest())
