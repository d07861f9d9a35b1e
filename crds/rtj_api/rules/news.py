"""What of a sidecar's report is news, and what only goes on and on.

Both sides must agree on it: the operator decides at once on news and looks at the rest now and
then; so a sidecar may hold the rest back, for as long as the operator asks. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtj_api.wire import Report

QUIET = frozenset({"sequence", "sent_at", "transfers", "mirror"})
QUIET_WITHIN: Mapping[str, frozenset[str]] = {
    "progress": frozenset(
        {"step", "epoch", "loss", "updated_at", "source", "step_seconds", "pace_seconds"}
    ),
    "checkpoint": frozenset(
        {
            "uploaded_bytes",
            "restored_bytes",
            "pending_bytes",
            "interval_seconds",
            "stall_seconds",
            "stalls",
            "save_bytes",
            "writing_seconds",
            "upload_bytes",
            "upload_seconds",
        }
    ),
    "trainer": frozenset({"tail"}),
}


def is_same(before: Report | None, after: Report) -> bool:
    """The same words of the same process of a sidecar."""
    return (
        before is not None and before.boot_id == after.boot_id and before.sequence == after.sequence
    )


def is_news(before: Report | None, after: Report) -> bool:
    """Whether something changed that a decision may depend on."""
    if before is None:
        return True
    if is_same(before, after):
        return False
    return any(
        not _says_the_same(getattr(before, name), getattr(after, name), but=QUIET_WITHIN.get(name))
        for name in Report.model_fields
        if name not in QUIET
    )


def _says_the_same(before: Any, after: Any, *, but: frozenset[str] | None) -> bool:
    if before == after:
        return True
    if but is None:
        return False
    names = type(after).model_fields
    return all(getattr(before, n) == getattr(after, n) for n in names if n not in but)
