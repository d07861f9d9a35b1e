"""kopf's part: watch, and say which job to look at. Nothing else.

Only low-level handlers, which write nothing to any object: no annotation, no finalizer. kopf
swallows what they raise and never retries, so all they do is to add to the queue, which does.
Must never work inside a handler, and must never use kopf's indexes, timers or daemons.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import aiohttp
import kopf
from rtj_api import contract

from rtj_operator.core.observed import JobKey


class Hints(Protocol):
    """Who wants to hear of changes. None of these calls waits."""

    def job_changed(self, key: JobKey, *, resource_version: str | None) -> None: ...

    def pod_changed(self, key: JobKey, *, uid: str, resource_version: str | None) -> None: ...

    def node_changed(self, name: str, node: Any) -> None:
        """`node`: its object; None: it is gone."""
        ...

    def login(self) -> tuple[str, aiohttp.ClientSession]:
        """Server and session of the watches."""
        ...


def registry_of(hints: Hints, *, with_nodes: bool = True) -> kopf.OperatorRegistry:
    """All handlers, in a registry of their own."""
    registry = kopf.OperatorRegistry()
    job = (contract.GROUP, contract.VERSION, contract.PLURAL)

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        server, session = hints.login()
        return kopf.AiohttpSession(server=server, aiohttp_session=session)

    @kopf.on.event(*job, registry=registry)
    async def job_event(event: Any, namespace: Any, name: str, **_: Any) -> None:
        hints.job_changed(JobKey(namespace, name), resource_version=version_of(event))

    @kopf.on.event("", "v1", "pods", labels={contract.LABEL_JOB: kopf.PRESENT}, registry=registry)
    async def pod_event(event: Any, namespace: Any, labels: Any, uid: str, **_: Any) -> None:
        key = JobKey(namespace, labels[contract.LABEL_JOB])
        hints.pod_changed(key, uid=uid, resource_version=version_of(event))

    if with_nodes:

        @kopf.on.event("", "v1", "nodes", registry=registry)
        async def node_event(event: Any, name: str, **_: Any) -> None:
            hints.node_changed(name, None if event["type"] == "DELETED" else event["object"])

    return registry


class NoEssence(kopf.DiffBaseStorage):
    """kopf compares each event's object with the one handled before, and keeps that in an
    annotation, for handlers that we have none of. Without it an event costs half."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


class NoProgress(kopf.ProgressStorage):
    """Low-level handlers have no progress to keep."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence


def version_of(event: Any) -> str | None:
    """Of the object that the event shows; None when it is gone."""
    if event["type"] == "DELETED":
        return None
    version: str | None = event["object"]["metadata"].get("resourceVersion")
    return version


class ForEver:
    """Seconds between tries, without end. What ends ends the process, and a permission that is
    missing, or an API server that is away, is mended by no restart."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((1.0, 1.0, 2.0, 3.0), itertools.repeat(5.0))


def settings_of() -> kopf.OperatorSettings:
    """Why each value: see docs/operator.md, known edges of kopf."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True  # the CRD is installed before the operator
    settings.posting.enabled = False
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 70
    settings.watching.label_selectors["pods"] = contract.LABEL_JOB
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = ForEver()
    settings.queueing.worker_limit = None
    settings.persistence.diffbase_storage = NoEssence()
    settings.persistence.progress_storage = NoProgress()
    settings.process.ultimate_exiting_timeout = 10
    return settings


async def watch(
    hints: Hints,
    *,
    namespaces: tuple[str, ...],
    stop: Any,
    ready: Any,
    with_nodes: bool = True,
    settings: Callable[[], kopf.OperatorSettings] = settings_of,
) -> None:
    """Watch until `stop` is set. Raises when a watch ends for good: then the process must too."""
    await kopf.operator(
        registry=registry_of(hints, with_nodes=with_nodes),
        settings=settings(),
        standalone=True,
        # kopf would look the user's name up, and a container's uid has none.
        identity="rtj-operator",  # type: ignore[arg-type]
        clusterwide=not namespaces,
        namespaces=namespaces,
        stop_flag=stop,
        ready_flag=ready,
    )
