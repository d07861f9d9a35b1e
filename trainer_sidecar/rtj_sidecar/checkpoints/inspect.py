"""`rtj inspect PATH` for a directory or file on this disk: what is there, valid or not, and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rtj_sidecar.checkpoints.layouts import AUTO, layouts_for
from rtj_sidecar.checkpoints.quiescence import Observations, Writers, observe
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.scan import EMPTY, take_snapshot
from rtj_sidecar.checkpoints.types import Expectations, FoundSave, Snapshot, Verdict
from rtj_sidecar.checkpoints.validate import Patience, judge_all


def inspect_path(
    path: Path,
    *,
    layout: str = AUTO,
    include: Sequence[str] = (),
    world_size: int | None = None,
    settle_seconds: float = 0.0,
) -> list[tuple[FoundSave, Verdict]]:
    """Every save at or below `path`, oldest first, with a verdict.

    `path` may be a checkpoint directory, one save's directory, or one file. Nobody can say here
    whether a trainer runs, so quiescence is judged by a second look after `settle_seconds`.
    Raises FileNotFoundError, and UnknownLayoutError for a layout that does not exist.
    """
    path = path.absolute()
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    layouts = layouts_for(layout=layout, include=include)
    expect = Expectations(world_size=world_size)

    def judged(
        root: Path, only: str | None, *, whole: str | None = None
    ) -> list[tuple[FoundSave, Verdict]]:
        reader = Reader(root)
        snapshot: Snapshot = EMPTY
        observations = Observations()
        for wait in (settle_seconds, 0.0):
            snapshot = take_snapshot(reader=reader, layouts=layouts, only=only, previous=snapshot)
            now = time.monotonic()
            observations = observe(before=observations, snapshot=snapshot, now=now)
            time.sleep(wait)
        if whole is not None and all(save.root_key != whole for save in snapshot.saves):
            return []  # and no file of it was read through
        found = judge_all(
            snapshot=snapshot,
            reader=reader,
            layouts=layouts,
            observations=observations,
            patience=Patience(now=time.monotonic(), settle_seconds=settle_seconds),
            writers=Writers(gone=settle_seconds == 0),
            expect=expect,
        )
        return [pair for pair in found if whole in (None, pair[0].root_key)]

    if path.is_dir():
        # A directory that is one save by its own name (`checkpoint-10`) shows it from above only.
        return judged(path.parent, path.name, whole=path.name) or judged(path, None)
    return judged(path.parent, path.name)
