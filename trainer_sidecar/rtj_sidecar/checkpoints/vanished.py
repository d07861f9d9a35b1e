"""Which finished saves the trainer took away before they could be pinned. Pure.

Only files that prove by themselves that they were whole are counted: of anything else nobody can
say that it was ever finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rtj_sidecar.checkpoints.layouts.grouping import name_of
from rtj_sidecar.checkpoints.ledger import alias_mark
from rtj_sidecar.checkpoints.types import FoundSave, Snapshot

_SELF_PROVING = (".pt", ".pth", ".ckpt", ".safetensors")


def proves_itself(save: FoundSave) -> bool:
    """One file of a container with its own checks: it need not wait for any other file."""
    return len(save.files) == 1 and name_of(save.files[0].path).endswith(_SELF_PROVING)


def _was_whole(save: FoundSave) -> bool:
    # A zip is read from its end: what is in it can be told only once it is there.
    return proves_itself(save) and save.full_state is True and _position(save) != (None, None)


def vanished(
    *, before: Iterable[FoundSave], now: Snapshot, is_known: Callable[[FoundSave], bool]
) -> tuple[FoundSave, ...]:
    """Whole saves of the look before that are gone now, and were never seen to finish
    (`is_known`). One that is there under another name, or saved again at the same position, is not
    gone."""
    marks = {alias_mark(entry) for entry in now.files}
    positions = {_position(save) for save in now.saves}
    return tuple(
        save
        for save in before
        if _was_whole(save)
        and not is_known(save)
        and _position(save) not in positions
        and alias_mark(save.files[0]) not in marks
    )


def _position(save: FoundSave) -> tuple[int | None, int | None]:
    return (save.step, save.epoch)
