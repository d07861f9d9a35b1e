"""Old saves go, in two steps an hour apart, and never one that may still be needed.

First a mark says that a save is deleted: from then on nobody chooses it. An hour later, read again,
its data goes, then its part and ship, then its manifest; the mark stays, so its number is never
used again. Only the holder of the highest fence does either. What is kept, and why, is `keeping`'s
to say; all that is invalid or on a branch stays for a person to look at.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rtj_api.reasons import Reason

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.fence import FenceLost, lost_to
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.keeping import Keep, to_mark
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.marks import mark
from rtj_sidecar.runs.records import MarkKind

GRACE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Retained:
    """`held`: why no data was deleted that might have been."""

    marked: tuple[str, ...]
    deleted: tuple[str, ...]
    held: str | None = None


def retain(
    context: Context,
    history: History,
    *,
    fence: int,
    keep: Keep,
    in_use: Collection[str],
    delete: bool = True,
) -> Retained | FenceLost:
    """Mark what is too old, delete what was marked an hour ago. `history`: just read.

    `delete` False: another holds the run, and removes the data itself. While a commit record
    cannot be read, nothing is deleted: who knows what it would say."""
    if lost := lost_to(context, fence):
        return lost
    marked, deleted = [], []
    for save in to_mark(history, keep=keep, in_use=in_use):
        mark(
            context,
            save,
            kind=MarkKind.DELETED,
            reason=Reason.CHECKPOINT_DURABLE,
            message=f"{keep.last} newer valid checkpoints are durable (retention.keepLast), and no "
            "other rule of retention keeps it",
            fence=fence,
        )
        marked.append(history.manifests[save].name)
    if delete and (held := unreadable(history)):
        return Retained(tuple(marked), (), held)
    for save in due(history, in_use=in_use, now=context.now()) if delete else ():
        manifest = history.manifests[save]
        if lost := lost_to(context, fence):
            return lost
        _delete(context, history, save)
        deleted.append(manifest.name)
    return Retained(tuple(marked), tuple(deleted))


def unreadable(history: History) -> str | None:
    """The commit record that cannot be read, with the remedy."""
    for why in history.broken.values():
        return f"no data of any save is deleted while a record cannot be read: {why}"
    return None


def due(history: History, *, in_use: Collection[str], now: float) -> Sequence[SaveId]:
    """Saves whose data may go: marked long enough ago, and neither pinned nor in use since."""
    return [save for save in sorted(history.manifests) if _is_due(history, save, in_use, now)]


def _is_due(history: History, save: SaveId, in_use: Collection[str], now: float) -> bool:
    if history.pinned(save) or history.manifests[save].name in in_use:
        return False
    marks = history.marks.get(save, ())
    return any(each.kind == MarkKind.DELETED and now - each.marked_at >= GRACE_S for each in marks)


def _delete(context: Context, history: History, save: SaveId) -> None:
    data = set(context.keys(keys.data_key(history.manifests[save].name, "")))
    # We write none that names another save's objects, but what one names is never lost.
    needed = {
        file.key
        for other, manifest in history.manifests.items()
        if other != save
        for file in manifest.files
    }
    records = context.keys(f"{keys.PARTS}f{save.fence}/{save.n}/")
    for key in [*sorted(data - needed), *records, keys.ship_key(save), keys.manifest_key(save)]:
        context.store.delete(context.full(key))
