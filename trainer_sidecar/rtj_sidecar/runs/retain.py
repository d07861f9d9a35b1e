"""Old saves go, in two steps an hour apart, and never one that may still be needed.

First a mark says that a save is deleted: from then on nobody chooses it. An hour later, read again,
its data goes, then its part and ship, then its manifest; the mark stays, so its number is never
used again. Only the holder of the highest fence does either. Kept always: the newest `keep_last`
valid ones of the lineage, what is in use or pinned, what the newest fences started from, and all
that is invalid or on a branch (for a person to look at).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rtj_api.reasons import Reason

from rtj_sidecar.checkpoints.types import Status
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.fence import FenceLost, lost_to
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.lineage import lineage
from rtj_sidecar.runs.marks import mark
from rtj_sidecar.runs.records import ManifestRecord, MarkKind

GRACE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Retained:
    marked: tuple[str, ...]
    deleted: tuple[str, ...]


def to_mark(history: History, *, keep_last: int, in_use: Collection[str]) -> tuple[SaveId, ...]:
    """The saves that retention no longer keeps, oldest first. Pure.

    Counts only saves that were verified and can be resumed from with their full state.
    """
    in_use = set(in_use)
    parents = {record.parent.name for record in history.fences if record.parent is not None}
    kept, goes = 0, []
    carried: set[str] = set()
    for save in lineage(history).saves:
        manifest = history.manifests.get(save)
        if manifest is None or history.condemned(save):
            continue
        if kept < max(keep_last, 1):
            carried |= carried_by(manifest)
            kept += manifest.full_state is not False and manifest.status == Status.VERIFIED
            continue
        pinned = any(each.kind == MarkKind.PINNED for each in history.marks.get(save, ()))
        if manifest.name in in_use | parents | carried or pinned:
            carried |= carried_by(manifest)
            continue
        goes.append(save)
    return tuple(reversed(goes))


def carried_by(manifest: ManifestRecord) -> set[str]:
    """Names of the older saves of which a restore of this one brings back a file."""
    return {
        keys.save_name(SaveId(told["fence"], told["n"]), told["step"])
        for told in manifest.facts.get("carried") or ()
    }


def retain(
    context: Context,
    history: History,
    *,
    fence: int,
    keep_last: int,
    in_use: Collection[str],
) -> Retained | FenceLost:
    """Mark what is too old, delete what was marked an hour ago. `history`: just read."""
    if lost := lost_to(context, fence):
        return lost
    marked, deleted = [], []
    for save in to_mark(history, keep_last=keep_last, in_use=in_use):
        mark(
            context,
            save,
            kind=MarkKind.DELETED,
            reason=Reason.CHECKPOINT_DURABLE,
            message=f"{keep_last} newer valid checkpoints are durable (retention.keepLast)",
            fence=fence,
        )
        marked.append(history.manifests[save].name)
    for save in sorted(history.manifests):
        if not _due(history, save, now=context.now()):
            continue
        manifest = history.manifests[save]
        if manifest.name in in_use:
            continue
        if lost := lost_to(context, fence):
            return lost
        _delete(context, history, save)
        deleted.append(manifest.name)
    return Retained(tuple(marked), tuple(deleted))


def _due(history: History, save: SaveId, *, now: float) -> bool:
    marks = history.marks.get(save, ())
    if any(each.kind == MarkKind.PINNED for each in marks):
        return False
    return any(each.kind == MarkKind.DELETED and now - each.marked_at >= GRACE_S for each in marks)


def _delete(context: Context, history: History, save: SaveId) -> None:
    named_elsewhere = {
        file.key
        for other, manifest in history.manifests.items()
        if other != save
        for file in manifest.files
    }
    name = history.manifests[save].name
    data = [key for key in context.keys(keys.data_key(name, "")) if key not in named_elsewhere]
    records = context.keys(f"{keys.PARTS}f{save.fence}/{save.n}/")
    for key in [*data, *records, keys.ship_key(save), keys.manifest_key(save)]:
        context.store.delete(context.full(key))
