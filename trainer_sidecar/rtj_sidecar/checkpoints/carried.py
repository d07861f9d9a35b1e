"""Older saves under a fixed name that lie beside a new one: `best.pt` of an earlier step. Pure.

A new pod gets the newest save; a script that ends by loading its best would find none. So each save
remembers which older, durable ones lay beside it, and a restore brings those files back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rtj_sidecar.checkpoints.foreign import are_foreign
from rtj_sidecar.checkpoints.ledger import LedgerEntry, alias_mark
from rtj_sidecar.checkpoints.types import FoundSave, Snapshot

MOST = 4


def carried(
    found: FoundSave,
    *,
    snapshot: Snapshot,
    durable: Sequence[LedgerEntry],
    foreign: Collection[str],
) -> list[dict[str, object]]:
    """`{"path", "fence", "n", "step"}` of the files to bring back with `found`, as plain JSON.

    `durable`: this run's ledger entries that bear a number. One that is not durable yet is carried
    by the save after this one.
    """
    own = {entry.path for entry in found.all_files}
    holding = {mark: entry for entry in durable for mark in entry.aliases}
    told: list[dict[str, object]] = []
    for save in snapshot.saves:
        if not save.reused_path or len(save.files) != 1 or save.files[0].path in own:
            continue
        entry = holding.get(alias_mark(save.files[0]))
        if entry is not None and not are_foreign(save.files, foreign):
            at = {"fence": entry.fence, "n": entry.n, "step": entry.step}
            told.append({"path": save.files[0].path, **at})
    return told[:MOST]
