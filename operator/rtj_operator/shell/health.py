"""Whether the operator works: a server for the kubelet's probes and for Prometheus.

kopf's own endpoint says only that its web server lives. A watch that went silent, a queue that no
worker empties or a pass that hangs are what stops an operator in practice, so these are asked.
Must never say "well" because something could not be measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from rtj_operator.shell.queue import KeyQueue

# kopf reconnects an idle watch after 70 s and any after 300 s; twice that is dead.
WATCH_SILENT_SECONDS = 660.0
LEASE_SILENT_SECONDS = 60.0
OLDEST_SECONDS = 120.0
PASS_SECONDS = 180.0  # a request of a pass ends after 30 s


@dataclass(slots=True)
class Pulse:
    """Signs of life of the watches, by resource. `clock` is monotonic seconds."""

    resources: tuple[str, ...]
    clock: Callable[[], float] = time.monotonic
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    standby: Callable[[], float] | None = None
    """Seconds since the Lease was last read, as long as another replica works."""
    lease_trouble: Callable[[], str | None] = lambda: None
    """Why nobody may ever lead, while it stands by."""
    blocked: str | None = None
    """Why the work has not begun, where that is another's to mend; no restart would help."""
    _seen: dict[str, float] = field(default_factory=dict)
    _refused: dict[str, tuple[float, str]] = field(default_factory=dict)
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def begin(self) -> None:
        """From now on this replica works."""
        self.standby, self._started = None, self.clock()

    def beat(self, resource: str) -> None:
        if resource in self.resources:
            self._seen[resource] = self.clock()
            self._refused.pop(resource, None)

    def refused(self, resource: str, said: str) -> None:
        """The API server answers, but does not let us watch that."""
        if resource in self.resources:
            self._refused[resource] = self.clock(), said

    def refusals(self) -> list[str]:
        return [said for _, said in self._refused.values()]

    def ages(self) -> Mapping[str, float]:
        """Seconds since the last sign, by resource; since the start where there was none yet."""
        now = self.clock()
        last = self._seen | {name: at for name, (at, _) in self._refused.items()}
        return {name: now - last.get(name, self._started) for name in self.resources}

    @property
    def has_all(self) -> bool:
        return all(name in self._seen for name in self.resources)


def defects(*, pulse: Pulse, queue: KeyQueue) -> list[str]:  # type: ignore[type-arg]
    """What is wrong and a restart may help, in words; empty when all is well."""
    if pulse.blocked is not None:
        return []
    if pulse.standby is not None:
        silent = pulse.standby()
        told = f"standing by, and the Lease could not be read for {silent:.0f} s"
        return [told] if silent > LEASE_SILENT_SECONDS else []
    found = [
        f"the watch of {name} is silent for {age:.0f} s"
        for name, age in pulse.ages().items()
        if age > WATCH_SILENT_SECONDS
    ]
    if queue.oldest_seconds() > OLDEST_SECONDS:
        found.append(f"a change waits for {queue.oldest_seconds():.0f} s")
    if queue.longest_active_seconds() > PASS_SECONDS:
        found.append(f"a pass runs for {queue.longest_active_seconds():.0f} s")
    return found


def health_app(*, pulse: Pulse, queue: KeyQueue) -> web.Application:  # type: ignore[type-arg]
    async def live(_: web.Request) -> web.Response:
        wrong = defects(pulse=pulse, queue=queue)
        return web.Response(status=503 if wrong else 200, text="\n".join(wrong or ["ok"]) + "\n")

    async def ready(_: web.Request) -> web.Response:
        wrong = defects(pulse=pulse, queue=queue) + pulse.refusals()
        if pulse.blocked is not None:
            wrong.append(pulse.blocked)
        elif pulse.standby is not None:  # a replica that stands by is as ready as it gets
            wrong += [] if (trouble := pulse.lease_trouble()) is None else [trouble]
        else:
            wrong += [] if pulse.ready.is_set() else ["the watches have not started"]
            wrong += [] if pulse.has_all else ["not every resource has been listed"]
        return web.Response(status=503 if wrong else 200, text="\n".join(wrong or ["ok"]) + "\n")

    app = web.Application()
    app.router.add_get("/healthz", live)
    app.router.add_get("/readyz", ready)
    return app


def metrics_app(registry: CollectorRegistry) -> web.Application:
    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        # Thousands of series take a good part of a second: the loop must not stand still for it.
        body = await asyncio.to_thread(encode, registry)
        return web.Response(body=body, headers={"Content-Type": content_type})

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    return app


async def serve(app: web.Application, *, port: int) -> web.AppRunner:
    """Listen on all addresses. Raises OSError when the port is taken."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
