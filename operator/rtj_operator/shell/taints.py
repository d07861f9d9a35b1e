"""Since when a node has each of its taints, by our clock.

A cloud's notice gives a time that counts from when it was given, which may be long before it is
read: an operator that was away has to know how much of it is left. The object says it where the one
who set the taint says so (`timeAdded`), else by the API server's note of who wrote the taints last.
Both come from another clock. So a time is believed only between the last look at which the taint
was not there and the first at which it was; and of a node that is looked at for the first time, not
one so far back that it should be gone. Must never do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rtj_api.status import parse_time

from rtj_operator.core.leaving import NOTICES

Raw = Mapping[str, Any]


def taints_of(raw: Raw) -> tuple[str, ...]:
    """Each as "key:effect"."""
    return tuple(_name(taint) for taint in (raw.get("spec") or {}).get("taints") or [])


def _name(taint: Raw) -> str:
    return f"{taint['key']}:{taint.get('effect', '')}"


def stamped(raw: Raw) -> dict[str, float]:
    """By taint: when it was set as the object says, by whichever clock; absent where it does not
    say. The API server notes the last write of the whole list: no taint of it is younger."""
    written = [
        entry["time"]
        for entry in (raw.get("metadata") or {}).get("managedFields") or []
        if entry.get("time") and "f:taints" in (entry.get("fieldsV1") or {}).get("f:spec", {})
    ]
    found = {}
    for taint in (raw.get("spec") or {}).get("taints") or []:
        text = taint.get("timeAdded") or max(written, default=None)
        if text is not None:
            found[_name(taint)] = float(parse_time(text))
    return found


@dataclass(frozen=True, slots=True)
class _Seen:
    at: float
    since: Mapping[str, float]


class TaintTimes:
    """What was seen of each node. Times are Unix seconds by our clock."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Seen] = {}

    def saw(self, name: str, raw: Raw, *, now: float) -> None:
        before, told = self._nodes.get(name), stamped(raw)
        since = {}
        for taint in taints_of(raw):
            if before is not None and taint in before.since:
                since[taint] = before.since[taint]
                continue
            stamp = told.get(taint, now)
            longest = NOTICES.get(taint.partition(":")[0])
            if before is not None:
                stamp = max(stamp, before.at)
            elif longest is not None and stamp <= now - longest:
                stamp = now
            since[taint] = min(stamp, now)
        self._nodes[name] = _Seen(now, since)

    def since(self, name: str) -> Mapping[str, float]:
        seen = self._nodes.get(name)
        return seen.since if seen is not None else {}

    def forget(self, name: str) -> None:
        """It is gone; another of its name has had no notice."""
        self._nodes.pop(name, None)
