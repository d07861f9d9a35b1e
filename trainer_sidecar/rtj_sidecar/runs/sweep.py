"""What saves left that will never be committed: unfinished uploads, and bytes without a manifest.

Only of saves that this run's own records name, and only by the holder of the highest fence. Must
never touch a save that may still be completed.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.fence import FenceLost, lost_to
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import MarkKind
from rtj_sidecar.runs.retain import GRACE_S, unreadable


@dataclass(frozen=True, slots=True)
class Swept:
    """`uploads` that were ended; names of the dropped saves whose bytes went."""

    uploads: int
    saves: tuple[str, ...]


def sweep(context: Context, history: History, *, fence: int) -> Swept | FenceLost:
    """Free what nobody will ever read; nothing while a commit record cannot be read. `history`:
    just read. Raises StoreProblem."""
    if lost := lost_to(context, fence):
        return lost
    if unreadable(history):
        return Swept(0, ())
    skip = len(context.full(""))
    ended = context.store.end_uploads(
        context.full(keys.CHECKPOINTS),
        is_over=lambda key: _is_over(history, keys.save_of(key[skip:]), fence=fence),
    )
    gone: list[str] = []
    for save, ship in sorted(history.ships.items()):
        if not _is_dropped(history, save, now=context.now()):
            continue
        if lost := lost_to(context, fence):
            return lost
        data = context.keys(keys.data_key(ship.name, ""))
        parts = context.keys(f"{keys.PARTS}f{save.fence}/{save.n}/")
        # The ship last: by it a later sweep finds what this one did not get to. The mark stays.
        for key in [*sorted(data), *parts, keys.ship_key(save)]:
            context.store.delete(context.full(key))
        gone.append(ship.name)
    return Swept(ended, tuple(gone))


def _is_over(history: History, save: SaveId | None, *, fence: int) -> bool:
    """Whether an upload of a file of that save can no longer be of use."""
    if save is None or save not in history.named:
        return False
    if save in history.manifests:
        # A rank that was not expected may still be sending its share of a new one.
        return save.fence < fence
    return history.condemned(save) is not None or history.deleted(save)


def _is_dropped(history: History, save: SaveId, *, now: float) -> bool:
    if history.pinned(save):
        return False
    marks = history.marks.get(save, ())
    return any(m.kind == MarkKind.DROPPED and now - m.marked_at >= GRACE_S for m in marks)
