"""Kubernetes Events about jobs: posted after the write that they tell of, repeated as a series.

An event is for a person who looks now; nothing depends on it, so a failure to post one is logged
and forgotten, and never delays a pass. Must never post what was not recorded.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from rtj_api import contract
from rtj_api.status import format_time

from rtj_operator.core.plan import Note
from rtj_operator.shell.api import ApiError, Cluster, Raw

log = logging.getLogger(__name__)

MAX_NOTE = 1024  # characters: the API server's limit
SERIES_SECONDS = 360.0  # a repetition after a longer silence is a new event
MAX_REMEMBERED = 2000
MAX_WAITING = 1000


@dataclass(slots=True)
class _Posted:
    namespace: str
    name: str
    count: int
    at: float


@dataclass(frozen=True, slots=True)
class _Order:
    job: Raw
    note: Note
    at: float


class Recorder:
    """`post` never waits; `run` does the work. `clock` gives Unix seconds."""

    def __init__(self, cluster: Cluster, *, instance: str, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._instance = instance[:128]
        self._clock = clock
        self._posted: OrderedDict[str, _Posted] = OrderedDict()
        self._orders: asyncio.Queue[_Order] = asyncio.Queue(maxsize=MAX_WAITING)

    def post(self, job: Raw, note: Note) -> None:
        try:
            self._orders.put_nowait(_Order(job, note, self._clock()))
        except asyncio.QueueFull:
            log.warning("event dropped: too many are waiting", extra={"note": note.message})

    async def run(self) -> None:
        while True:
            order = await self._orders.get()
            try:
                await self._write(order)
            except ApiError as error:
                log.warning(
                    "event not posted", extra={"reason": order.note.reason, "why": str(error)}
                )
            finally:
                self._orders.task_done()

    async def drained(self) -> None:
        """All that was ordered has been posted, or given up."""
        await self._orders.join()

    async def _write(self, order: _Order) -> None:
        meta, note = order.job["metadata"], order.note
        text = f"{meta['uid']}\0{note.type}\0{note.reason}\0{note.message}"
        identity = hashlib.sha256(text.encode()).hexdigest()[:16]
        known = self._posted.get(identity)
        if known is not None and order.at - known.at < SERIES_SECONDS:
            known.count, known.at = known.count + 1, order.at
            series = {"count": known.count, "lastObservedTime": _micro_time(order.at)}
            try:
                await self._cluster.patch_event(
                    namespace=known.namespace, name=known.name, patch={"series": series}
                )
                return
            except ApiError as error:
                if not error.is_not_found:
                    raise  # it lives an hour on the server: post it anew when it is gone
        event = self._event(order, identity=identity)
        await self._cluster.create_event(event)
        posted = _Posted(meta["namespace"], event["metadata"]["name"], 1, order.at)
        self._posted[identity] = posted
        self._posted.move_to_end(identity)
        while len(self._posted) > MAX_REMEMBERED:
            self._posted.popitem(last=False)

    def _event(self, order: _Order, *, identity: str) -> Raw:
        meta, note = order.job["metadata"], order.note
        unique = f"{identity[:8]}{int(order.at * 1e6):x}"
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "namespace": meta["namespace"],
                "name": f"{meta['name']}.{unique}",
            },
            "eventTime": _micro_time(order.at),
            "reportingController": contract.MANAGER,
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "reason": str(note.reason),
            "note": note.message[:MAX_NOTE],
            "type": note.type,
            "regarding": {
                "apiVersion": contract.API_VERSION,
                "kind": contract.KIND,
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
                "resourceVersion": meta.get("resourceVersion"),
            },
        }


def _micro_time(at: float) -> str:
    """metav1.MicroTime has exactly six digits."""
    text = format_time(at)
    return text if "." in text else text.replace("Z", ".000000Z")
