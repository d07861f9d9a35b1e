"""Older saves that are kept move to a slower, cheaper class of the store, by server-side copy.

A mark says so before the first object moves and another when all have: whoever comes back after a
crash goes on, and an object that has its class is not moved again. What is archived is proved
readable by its own header before anybody chooses it (`verify`), so nothing rests on the marks.
Only the holder of the highest fence archives. Must never touch an object of another save.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

from rtj_api.reasons import Reason

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.fence import FenceLost, lost_to
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.keeping import Keep, to_archive
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.marks import mark
from rtj_sidecar.runs.records import MarkKind, MarkRecord
from rtj_sidecar.stores.base import ObjectMissing, Reclasses, check_cancel


@dataclass(frozen=True, slots=True)
class Archived:
    name: str


@dataclass(frozen=True, slots=True)
class NoArchive:
    """The store has no such class; the message says what to change."""

    message: str


def archive_next(
    context: Context,
    history: History,
    *,
    fence: int,
    keep: Keep,
    in_use: Collection[str],
    cancel: threading.Event | None = None,
) -> Archived | NoArchive | FenceLost | None:
    """The oldest save that is due; None where none is. One at a time, for it may last.

    Raises StoreProblem, Cancelled: then the next call goes on with it.
    """
    due = to_archive(history, keep=keep, in_use=in_use, now=context.now())
    if not due:
        return None
    save, class_ = due[0], keep.archive_class
    store = context.store
    if not hasattr(store, "reclass"):
        return NoArchive(
            f"{store.url} has no storage classes: remove checkpoint.retention.archiveAfterSeconds"
        )
    if lost := lost_to(context, fence):
        return lost
    name = history.manifests[save].name
    _say(context, save, fence, Reason.CHECKPOINT_ARCHIVING, f"{name} moves to {class_}", class_)
    for own in dict.fromkeys(file.key for file in history.manifests[save].files):
        check_cancel(cancel)
        if keys.save_of(own) != save:
            continue
        key = context.full(own)
        head = store.head(key)
        if head is None or head.storage_class == class_:
            continue  # gone: whoever wants to resume from it finds that out, and says so
        if lost := lost_to(context, fence):
            return lost
        if _is_deleted(context, save):
            return None
        try:
            cast(Reclasses, store).reclass(key, storage_class=class_)
        except ObjectMissing:
            continue
        after = store.head(key)
        if after is not None and after.storage_class != class_:
            return NoArchive(
                f"{store.url} keeps {own} as {after.storage_class or 'STANDARD'} although it "
                f"was told {class_}: name a class that it has in "
                "checkpoint.retention.archiveClass, or remove archiveAfterSeconds"
            )
    _say(context, save, fence, Reason.CHECKPOINT_ARCHIVED, f"{name} lies in {class_}", class_)
    return Archived(name)


def _is_deleted(context: Context, save: SaveId) -> bool:
    """Read now: a copy of what retention removes would bring its object back."""
    found = (context.read(key, MarkRecord) for key in context.keys(keys.marks_of(save)))
    return any(each is not None and each[0].kind == MarkKind.DELETED for each in found)


def _say(
    context: Context, save: SaveId, fence: int, reason: Reason, message: str, class_: str
) -> None:
    mark(
        context,
        save,
        kind=MarkKind.ARCHIVED,
        reason=reason,
        message=message,
        evidence={"storageClass": class_},
        fence=fence,
    )
