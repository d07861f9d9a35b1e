"""Verdicts added to a save after its ship or manifest was written.

None is ever removed: what a person takes back (`good`, `unpinned`) is one more mark, and the order
of their numbers tells which word is the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtj_api.reasons import Reason

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import MarkKind, MarkRecord

_OPPOSITE = {
    MarkKind.PINNED: (MarkKind.UNPINNED,),
    MarkKind.UNPINNED: (MarkKind.PINNED,),
    MarkKind.GOOD: (MarkKind.INVALID, MarkKind.POISON, MarkKind.SUSPECT),
    MarkKind.INVALID: (MarkKind.GOOD,),
    MarkKind.POISON: (MarkKind.GOOD,),
    MarkKind.SUSPECT: (MarkKind.GOOD,),
}


def mark(
    context: Context,
    save: SaveId,
    *,
    kind: MarkKind,
    reason: Reason | str,
    message: str,
    evidence: Mapping[str, Any] | None = None,
    fence: int | None = None,
) -> MarkRecord:
    """Add a mark; where one of that kind and reason is there already, and nobody has taken it back
    since, that one is returned."""
    record = MarkRecord(
        kind=kind,
        reason=str(reason),
        message=message,
        evidence=dict(evidence or {}),
        by_fence=fence,
        by_job_uid=context.job_uid,
        marked_at=context.now(),
    )
    there = sorted(
        k
        for key in context.keys(keys.marks_of(save))
        if (found := keys.parse_mark(key)) is not None
        for k in [found[1]]
    )
    opposite = _OPPOSITE.get(kind, ())
    same: MarkRecord | None = None
    k = 0
    while True:
        if k not in there:
            # After all that is there: so it is known that nobody has said it, or taken it back.
            if same is not None and k > max(there, default=-1):
                return same
            if context.create(keys.mark_key(save, k), record):
                return record
        seen = context.read(keys.mark_key(save, k), MarkRecord)
        if seen is not None and (seen[0].kind, seen[0].reason) == (record.kind, record.reason):
            same = seen[0]
            if not opposite:
                return same
        elif seen is not None and seen[0].kind in opposite:
            same = None
        k += 1
