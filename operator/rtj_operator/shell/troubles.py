"""What nodes say against pods that have a node and do not get to run: their newest warning.

The kubelet tells of a volume it cannot mount, or a Secret it cannot find, only in events. Read for
such pods alone, and seldom. Must never fail a pass: without events there are fewer words.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from rtj_operator.core.observed import PodView
from rtj_operator.shell.api import ApiError, Cluster, Raw

PATIENCE_SECONDS = 20.0  # most pods run by then
READ_SECONDS = 30.0


class Troubles:
    """`clock` gives Unix seconds."""

    def __init__(self, cluster: Cluster, *, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._known: dict[str, tuple[float, str | None]] = {}  # by pod UID: read at, text

    async def told(self, pods: Iterable[PodView], *, namespace: str) -> tuple[PodView, ...]:
        """The same pods, those that are stuck with what is said against them."""
        found = list(pods)
        stuck = [pod for pod in found if self._is_stuck(pod)]
        if not stuck:
            return tuple(found)
        texts = dict(
            zip(
                (pod.uid for pod in stuck),
                await asyncio.gather(*(self._text(pod, namespace=namespace) for pod in stuck)),
                strict=True,
            )
        )
        return tuple(replace(pod, trouble=texts.get(pod.uid)) for pod in found)

    def _is_stuck(self, pod: PodView) -> bool:
        if pod.node is None or pod.phase != "Pending" or pod.deleting_since is not None:
            self._known.pop(pod.uid, None)
            return False
        if pod.sidecar is not None and (pod.sidecar.running or pod.sidecar.restarts):
            return False
        since = pod.scheduled_since if pod.scheduled_since is not None else pod.created_at
        return self._clock() - since > PATIENCE_SECONDS

    async def _text(self, pod: PodView, *, namespace: str) -> str | None:
        now = self._clock()
        read_at, text = self._known.get(pod.uid, (None, None))
        if read_at is not None and now - read_at < READ_SECONDS:
            return text
        with contextlib.suppress(ApiError):  # then what was read before still holds
            text = newest(await self._cluster.list_pod_warnings(namespace=namespace, uid=pod.uid))
        self._known[pod.uid] = (now, text)
        return text


def newest(events: Iterable[Mapping[str, object]] | list[Raw]) -> str | None:
    """`reason: message` of the last warning (core/v1 Events)."""

    def when(event: Mapping[str, object]) -> str:
        series = event.get("series")
        last = series.get("lastObservedTime") if isinstance(series, Mapping) else None
        return str(last or event.get("lastTimestamp") or event.get("eventTime") or "")

    last = max(events, key=when, default=None)
    if last is None:
        return None
    text = " ".join(str(last.get("message") or "").split())
    return f"{last.get('reason')}: {text}"[:400]
