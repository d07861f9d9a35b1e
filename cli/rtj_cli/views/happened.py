"""Events of a job and of its pods, one row a cause. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from rtj_api import contract
from rtj_api.status import parse_time

from rtj_cli.jobs import Raw, Seen
from rtj_cli.views.words import ago


def rows(events: Iterable[Raw], *, job: Seen, pods: Collection[str]) -> list[dict[str, Any]]:
    """`events`: of events.k8s.io, of the job's namespace. Oldest first."""
    found = [_row(event) for event in events if _is_about(event, job=job, pods=pods)]
    return sorted(found, key=lambda row: row["lastTime"] or 0.0)


def _is_about(event: Raw, *, job: Seen, pods: Collection[str]) -> bool:
    about = event.get("regarding") or {}
    if about.get("kind") == contract.KIND:
        return about.get("name") == job.name and about.get("uid") in (
            None,
            job.raw["metadata"].get("uid"),
        )
    return about.get("kind") == "Pod" and about.get("name") in pods


def _row(event: Raw) -> dict[str, Any]:
    series = event.get("series") or {}
    first = _time(event.get("eventTime")) or _time(event.get("deprecatedFirstTimestamp"))
    last = _time(series.get("lastObservedTime")) or _time(event.get("deprecatedLastTimestamp"))
    about = event.get("regarding") or {}
    return {
        "type": event.get("type") or "Normal",
        "reason": event.get("reason") or "",
        "object": f"{about.get('kind')}/{about.get('name')}",
        "message": event.get("note") or "",
        "count": int(series.get("count") or event.get("deprecatedCount") or 1),
        "firstTime": first or _time(event["metadata"].get("creationTimestamp")),
        "lastTime": last or first or _time(event["metadata"].get("creationTimestamp")),
    }


def columns(*, now: float) -> Mapping[str, Callable[[Mapping[str, Any]], str]]:
    return {
        "last": lambda row: ago(row["lastTime"], now=now),
        "type": lambda row: row["type"],
        "reason": lambda row: row["reason"],
        "times": lambda row: str(row["count"]),
        "object": lambda row: row["object"],
        "why": lambda row: row["message"],
    }


def _time(text: str | None) -> float | None:
    return None if text is None else float(parse_time(text))
