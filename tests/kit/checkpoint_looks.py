"""One look at a checkpoint directory as the sidecar takes it, with every writer ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rtj_sidecar.checkpoints.layouts import AUTO, layouts_for
from rtj_sidecar.checkpoints.quiescence import Observations, Writers, observe
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.scan import EMPTY, take_snapshot
from rtj_sidecar.checkpoints.types import Expectations, FoundSave, Snapshot, Verdict
from rtj_sidecar.checkpoints.validate import Patience, judge_all


def snapshot_of(
    root: Path,
    *,
    reader: Reader | None = None,
    layout: str = AUTO,
    include: Sequence[str] = (),
    previous: Snapshot = EMPTY,
) -> Snapshot:
    return take_snapshot(
        reader=reader or Reader(root),
        layouts=layouts_for(layout=layout, include=include),
        previous=previous,
    )


def judged(
    root: Path,
    *,
    reader: Reader | None = None,
    layout: str = AUTO,
    include: Sequence[str] = (),
    expect: Expectations | None = None,
    writers: Writers | None = None,
    quiet_for: float = 0.0,
) -> dict[str, tuple[FoundSave, Verdict]]:
    """Root key -> (save, verdict). `quiet_for`: seconds since which nothing has changed."""
    reader = reader or Reader(root)
    layouts = layouts_for(layout=layout, include=include)
    snapshot = take_snapshot(reader=reader, layouts=layouts)
    found = judge_all(
        snapshot=snapshot,
        reader=reader,
        layouts=layouts,
        observations=observe(before=Observations(), snapshot=snapshot, now=0.0),
        patience=Patience(now=quiet_for, settle_seconds=1.0),
        writers=writers or Writers(gone=True),
        expect=expect or Expectations(),
    )
    return {save.root_key: (save, verdict) for save, verdict in found}
