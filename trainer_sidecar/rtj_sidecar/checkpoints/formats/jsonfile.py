"""JSON files, read whole within a cap."""

from __future__ import annotations

import json
from typing import Any

from rtj_sidecar.checkpoints.formats.base import CapError, Caps, FileCheck, MalformedError, Window
from rtj_sidecar.checkpoints.types import Reason


def load(window: Window, *, caps: Caps) -> Any:
    """The parsed content. Raises MalformedError (Truncated where the file is empty)."""
    if window.size > caps.json_bytes:
        raise CapError(f"its {window.size} bytes of JSON are above the cap")
    raw = window.read(0, window.size)
    if not raw.strip(b" \t\r\n\0"):
        raise MalformedError("it is empty or only zeros", reason=Reason.TRUNCATED)
    limit_values(raw, caps=caps)
    try:
        return json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"it is no JSON: {error}") from error


def limit_values(raw: bytes, *, caps: Caps) -> None:
    """CapError where the text may hold more values than the cap: `[],` makes 60 bytes out of 3."""
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > caps.json_values:
        raise CapError("its JSON holds more values than the cap")


def check(window: Window, *, caps: Caps) -> FileCheck:
    """Passed where it parses: a cut-off JSON text does not."""
    load(window, caps=caps)
    return FileCheck("json", True, "parses")
