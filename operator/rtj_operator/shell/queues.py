"""What queues and gang schedulers leave on pods, and what Kueue says of a gang that waits.

A Workload is read only while pods wait, and seldom: its condition alone says which quota is short.
Must never fail a pass: where Kueue may not be read, or is not there, there are fewer words.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from rtj_operator.core import gangs
from rtj_operator.core.observed import PodView, QueueView
from rtj_operator.core.queueing import waits_in_queue
from rtj_operator.shell.api import ApiError, Cluster, Raw

READ_SECONDS = 5.0
MAX_MESSAGE = 400


def with_queue(view: PodView, raw: Raw) -> PodView:
    """The same pod with its gates, its group and what Kueue did to it."""
    meta, spec = raw["metadata"], raw.get("spec") or {}
    labels = meta.get("labels") or {}
    stops: dict[str, Any] = next(
        (
            c
            for c in (raw.get("status") or {}).get("conditions") or []
            if c["type"] == gangs.QUEUE_STOPS and c["status"] == "True"
        ),
        {},
    )
    return replace(
        view,
        gates=tuple(gate["name"] for gate in spec.get("schedulingGates") or []),
        group=labels.get(gangs.QUEUE_GROUP_LABEL),
        is_queued=labels.get(gangs.QUEUE_MANAGED_LABEL) == "true",
        is_kept_by_queue=gangs.QUEUE_FINALIZER in (meta.get("finalizers") or []),
        ended_by_queue=stops.get("message") or stops.get("reason"),
        scheduler=spec.get("schedulerName"),
    )


class Queues:
    """`clock` gives Unix seconds."""

    def __init__(self, cluster: Cluster, *, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, QueueView | None]] = {}

    async def view(self, pods: Iterable[PodView], *, namespace: str) -> QueueView | None:
        """Of the group that the waiting pods are in; None: none waits, or nothing is known."""
        waiting = [p for p in pods if p.group and waits_in_queue(p) and p.deleting_since is None]
        if not waiting:
            self._known = {k: v for k, v in self._known.items() if self._is_recent(v[0])}
            return None
        key = (namespace, waiting[0].group or "")
        read_at, view = self._known.get(key, (None, None))
        if read_at is not None and self._is_recent(read_at):
            return view
        with contextlib.suppress(ApiError):  # then what was read before still holds
            raw = await self._cluster.get_workload(namespace=namespace, name=key[1])
            view = None if raw is None else workload_view(raw)
        self._known[key] = (self._clock(), view)
        return view

    def _is_recent(self, read_at: float) -> bool:
        return 0 <= self._clock() - read_at < READ_SECONDS


def workload_view(raw: Raw) -> QueueView:
    """Why it is not admitted: the newest word on quota, else of a check that is awaited."""
    status = raw.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    if (raw.get("spec") or {}).get("active") is False:
        return QueueView(message="the Workload is deactivated: set spec.active to true in it")
    quota = conditions.get("QuotaReserved") or {}
    if quota.get("status") == "True":
        checks = [
            f"{check.get('name')}: {check.get('message') or check.get('state')}"
            for check in status.get("admissionChecks") or []
            if check.get("state") != "Ready"
        ]
        return QueueView(message="; ".join(checks)[:MAX_MESSAGE] or None)
    text = " ".join(str(quota.get("message") or "").split())
    return QueueView(message=text[:MAX_MESSAGE] or None)
