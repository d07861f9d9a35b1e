"""Verdicts added to a save after its ship or manifest was written; never taken back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtj_api.reasons import Reason

from rtj_sidecar.runs import keys
from rtj_sidecar.runs.context import Context
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import MarkKind, MarkRecord


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
    """Add a mark; where one of that kind and reason is there already, that one is returned."""
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
    k = 0
    while True:
        if k not in there and context.create(keys.mark_key(save, k), record):
            return record
        seen = context.read(keys.mark_key(save, k), MarkRecord)
        if seen is not None and (seen[0].kind, seen[0].reason) == (record.kind, record.reason):
            return seen[0]
        k += 1
