"""Times, numbers and steps as people read them. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise

from rtj_api.reason_texts import TEXTS
from rtj_api.reasons import Reason, ReasonText

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def span(seconds: float | None) -> str:
    """`0.4s`, `12s`, `3m04s`, `2h05m`, `3d04h`; nothing for None."""
    if seconds is None:
        return ""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 9.95:
        return f"{seconds:.1f}s".replace(".0s", "s")
    whole = round(seconds)
    for (size, unit), (below, small) in pairwise(_UNITS):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // below:02d}{small}"
    return f"{whole}s"


def ago(at: float | None, *, now: float) -> str:
    return "" if at is None else f"{span(max(0.0, now - at))} ago"


def clock(at: float | None) -> str:
    """`11-30 16:35:17Z`."""
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC):%m-%d %H:%M:%S}Z"


def number(value: int | float | None) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def plural(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def percent(part: float, whole: float) -> str:
    return "" if whole <= 0 else f"{100 * part / whole:.1f} %"


def spaced(name: str) -> str:
    """`TrainerSignaled` -> `trainer signaled`, `checkpointStall` -> `checkpoint stall`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()


def text_of(reason: str) -> ReasonText | None:
    """What docs/reasons.md says; None for the word of a newer operator."""
    try:
        return TEXTS.get(Reason(reason))
    except ValueError:
        return None


def remedy(reason: str, *, name: str) -> str | None:
    told = text_of(reason)
    if told is None or not told.remedy:
        return None
    return told.remedy.replace("<name>", name)
