"""Hears the sidecars: one long poll per pod, so that a fault is known within milliseconds.

A dead peer must be noticed too: keepalive probes and a limit on unacknowledged bytes end a
connection that nobody answers within seconds, where TCP alone would wait for a quarter of an
hour. A report is advice about one pod, named by its UID; whatever does not say that UID is
dropped. Must never take silence for news, nor an old report for a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import aiohttp
from pydantic import ValidationError
from rtj_api import contract, wire
from rtj_api.rules.news import is_news, is_same

from rtj_operator.core.observed import JobKey, ReportView

log = logging.getLogger(__name__)

WAIT_SECONDS = 25
# A poll that is not even answered with the same report after its wait is over is dead.
POLL_TIMEOUT = aiohttp.ClientTimeout(total=WAIT_SECONDS + 10, sock_connect=3)
BACKOFF_FIRST, BACKOFF_MAX = 0.05, 2.0  # seconds
# A pod that starts is not heard yet, and the gang waits for it: it is asked often, but all such
# pods together not more than so many times a second.
STARTING_SECONDS, STARTING_ASKED_A_SECOND = 30.0, 200.0
MAX_REPORT_BYTES = 4 * 1024 * 1024
# Progress alone calls for no decision: a pass now and then reads it, and each pod of a large gang
# is asked to hold it back, so that all together tell of it not more than so many times a second.
# The times differ by chance, so that some rank's newest step is always known: core.nodes asks.
QUIET_A_SECOND, QUIET_MAX_SECONDS = 200.0, 5.0
QUIET_LOOK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the report of one pod is to be had, and whose it must be."""

    key: JobKey
    job_uid: str
    pod_uid: str
    host: str
    port: int

    @property
    def url(self) -> str:
        return contract.sidecar_url(self.host, port=self.port) + contract.PATH_STATUS


@dataclass(slots=True)
class _Poller:
    endpoint: Endpoint
    view: ReportView
    task: asyncio.Task[None]


class Wake(Protocol):
    def __call__(self, key: JobKey, *, after: float, urgent: bool) -> None:
        """Look at that job after so many seconds; `urgent`: its gang waits for it."""


class Reports:
    """All pollers. Made inside a running loop. `clock` gives Unix seconds."""

    def __init__(self, *, wake: Wake, clock: Callable[[], float] = time.time) -> None:
        self._wake = wake
        self._clock = clock
        self._pollers: dict[str, _Poller] = {}
        self._of_job: dict[JobKey, set[str]] = {}
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=60, socket_factory=_impatient_socket
        )
        # Bytes as they come: a few compressed ones may stand for a gigabyte.
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=POLL_TIMEOUT,
            auto_decompress=False,
            headers={"Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        for poller in self._pollers.values():
            poller.task.cancel()
        await asyncio.gather(
            *(poller.task for poller in self._pollers.values()), return_exceptions=True
        )
        self._pollers.clear()
        self._of_job.clear()
        await self._session.close()

    def follow(self, key: JobKey, endpoints: Iterable[Endpoint]) -> None:
        """Poll exactly these pods of that job from now on."""
        wanted = {endpoint.pod_uid: endpoint for endpoint in endpoints}
        known = self._of_job.get(key, set())
        for uid in list(known):
            if self._pollers[uid].endpoint != wanted.get(uid):
                self._pollers.pop(uid).task.cancel()
                known.discard(uid)
        for uid, endpoint in wanted.items():
            if uid not in known:
                view = ReportView(
                    report=None,
                    received_at=None,
                    connected=False,
                    last_contact=None,
                    polled_since=self._clock(),
                    disconnected_since=self._clock(),
                )
                task = asyncio.create_task(self._poll(endpoint), name=f"report of {uid}")
                self._pollers[uid] = _Poller(endpoint, view, task)
                known.add(uid)
        if known:
            self._of_job[key] = known
        else:
            self._of_job.pop(key, None)

    def views(self, key: JobKey) -> dict[str, ReportView]:
        return {uid: self._pollers[uid].view for uid in self._of_job.get(key, ())}

    @property
    def followed(self) -> int:
        return len(self._pollers)

    @property
    def connected(self) -> int:
        return sum(poller.view.connected for poller in self._pollers.values())

    async def _poll(self, endpoint: Endpoint) -> None:
        delay = BACKOFF_FIRST
        while True:
            try:
                await self._poll_once(endpoint)
                delay = BACKOFF_FIRST
                continue
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                self._lost(endpoint, error)
            await asyncio.sleep(min(delay, self._limit(endpoint)))
            delay = min(delay * 2, BACKOFF_MAX)

    def _limit(self, endpoint: Endpoint) -> float:
        """The longest time until this pod is asked again."""
        if not self._is_starting(self._pollers[endpoint.pod_uid].view):
            return BACKOFF_MAX
        starting = sum(self._is_starting(poller.view) for poller in self._pollers.values())
        return min(max(BACKOFF_FIRST, starting / STARTING_ASKED_A_SECOND), BACKOFF_MAX)

    def _is_starting(self, view: ReportView) -> bool:
        since = view.polled_since
        is_young = since is not None and self._clock() - since < STARTING_SECONDS
        return view.last_contact is None and is_young

    async def _poll_once(self, endpoint: Endpoint) -> None:
        """One request. Raises when the pod cannot be heard, or says that it is another."""
        known = self._pollers[endpoint.pod_uid].view
        query = {}
        if known.connected and known.report is not None:
            query = {"since": str(known.report.sequence), "wait": str(WAIT_SECONDS)}
            gang = len(self._of_job.get(endpoint.key, ()))
            quiet = min(gang / QUIET_A_SECOND, QUIET_MAX_SECONDS)
            if quiet > 1:  # a sidecar holds progress back for a second of itself
                query["quiet"] = f"{quiet * random.uniform(0.7, 1.3):.2f}"
        # A pod that redirects would have this process ask, from its own place in the network,
        # whatever that pod cannot reach itself.
        async with self._session.get(
            endpoint.url,
            params=query,
            headers={contract.HEADER_JOB: endpoint.job_uid},
            allow_redirects=False,
        ) as response:
            if response.status != 200:
                raise ValueError(f"status {response.status}")
            body = await response.content.read(MAX_REPORT_BYTES + 1)
            while not response.content.at_eof():
                body += await response.content.read(MAX_REPORT_BYTES + 1)
                if len(body) > MAX_REPORT_BYTES:
                    raise ValueError(f"a report of more than {MAX_REPORT_BYTES} bytes")
        self._heard(endpoint, parse_report(body, endpoint=endpoint))

    def _heard(self, endpoint: Endpoint, report: wire.Report) -> None:
        poller = self._pollers.get(endpoint.pod_uid)
        if poller is None or poller.endpoint != endpoint:
            return
        before, now = poller.view, self._clock()
        poller.view = replace(
            before,
            report=report,
            received_at=before.received_at if is_same(before.report, report) else now,
            connected=True,
            last_contact=now,
            disconnected_since=None,
        )
        if not before.connected or is_news(before.report, report):
            urgent = is_fault(before.report, report) or (
                stage_of(before.report) != stage_of(report) and self._agree(endpoint.key)
            )
            self._wake(endpoint.key, after=0, urgent=urgent)
        elif before.report is not None and before.report.sequence != report.sequence:
            self._wake(endpoint.key, after=QUIET_LOOK_SECONDS, urgent=False)

    def _agree(self, key: JobKey) -> bool:
        """All sidecars of the job say the same stage: nobody is waited for any more."""
        stages = (stage_of(self._pollers[uid].view.report) for uid in self._of_job.get(key, ()))
        first = next(stages, None)
        return first is not None and all(stage == first for stage in stages)

    def _lost(self, endpoint: Endpoint, error: Exception) -> None:
        poller = self._pollers.get(endpoint.pod_uid)
        if poller is None or poller.endpoint != endpoint or not poller.view.connected:
            return
        log.info(
            "report connection lost",
            extra={
                "job": str(endpoint.key),
                "pod_uid": endpoint.pod_uid,
                "why": f"{type(error).__name__}: {error}",
            },
        )
        poller.view = replace(poller.view, connected=False, disconnected_since=self._clock())
        self._wake(endpoint.key, after=0, urgent=False)


def parse_report(body: bytes, *, endpoint: Endpoint) -> wire.Report:
    """Raises ValueError for what is no report of that pod of that job."""
    try:
        report = wire.Report.model_validate_json(body)
    except ValidationError as error:
        raise ValueError(f"no report: {error.errors()[0]['msg']}") from error
    if report.pod_uid != endpoint.pod_uid or report.job_uid != endpoint.job_uid:
        raise ValueError(
            f"the report of pod {report.pod_uid} of job {report.job_uid}, at the address of pod "
            f"{endpoint.pod_uid} of job {endpoint.job_uid}"
        )
    return report


def is_fault(before: wire.Report | None, after: wire.Report) -> bool:
    """Whether the report tells for the first time that a trainer ended or a sidecar gave up."""
    if after.trainer.state == wire.TrainerState.EXITED:
        known = before and (before.trainer.state, before.trainer.attempt)
        if known != (after.trainer.state, after.trainer.attempt):
            return True
    return after.phase == wire.SidecarPhase.FAILED and stage_of(before) != stage_of(after)


def stage_of(report: wire.Report | None) -> tuple[int, wire.SidecarPhase] | None:
    return None if report is None else (report.attempt, report.phase)


def _impatient_socket(address: Any) -> socket.socket:
    """A socket that gives up on a silent peer after six seconds."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 3),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 6000),  # ms
        ("TCP_NODELAY", 1),
    ):
        with contextlib.suppress(AttributeError, OSError):  # not on every platform
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
