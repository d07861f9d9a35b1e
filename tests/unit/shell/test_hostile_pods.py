"""What a pod that is made to harm can do to the operator that listens to it: be unheard.

The pods' part is played by real HTTP servers on loopback.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from rtj_api import contract
from rtj_api.wire import Directive, Phase, Report
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.pod_views import status_port_of
from rtj_operator.shell.push import Pusher
from rtj_operator.shell.reports import MAX_REPORT_BYTES, Endpoint, Reports, parse_report

KEY = JobKey("team", "gpt")
WHOLE = Report(job_uid="job-1", pod_uid="pod-1", rank=0, boot_id="b", sequence=1, sent_at=0.0)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    """The port of a server that answers everything by `handler`."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    await runner.cleanup()


@pytest.fixture
async def reports() -> AsyncIterator[Reports]:
    made = Reports(wake=lambda key, *, after, urgent: None)
    yield made
    await made.close()


def at(port: int) -> Endpoint:
    return Endpoint(KEY, "job-1", "pod-1", "127.0.0.1", port)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.005)


async def test_the_operator_is_sent_nowhere_else_by_a_pod_that_it_asks(reports: Reports) -> None:
    """It can reach what tenants cannot: the metadata service of its node, other pods, itself."""
    asked: list[str] = []
    inner: list[str] = []

    async def secret_place(request: web.Request) -> web.Response:
        inner.append(request.path)
        return web.Response(text=WHOLE.dump_json(), content_type="application/json")

    async with serving(secret_place) as secret:

        async def redirects(request: web.Request) -> web.Response:
            asked.append(request.path)
            raise web.HTTPFound(f"http://127.0.0.1:{secret}/latest/meta-data")

        async with serving(redirects) as port:
            reports.follow(KEY, [at(port)])
            await until(lambda: len(asked) >= 3)
    assert inner == []
    assert reports.views(KEY)["pod-1"].report is None


async def test_a_directive_is_sent_nowhere_else_by_the_pod_that_it_is_for() -> None:
    asked: list[str] = []
    inner: list[str] = []

    async def secret_place(request: web.Request) -> web.Response:
        inner.append(request.path)
        return web.Response()

    async with serving(secret_place) as secret:

        async def redirects(request: web.Request) -> web.Response:
            asked.append(request.path)
            raise web.HTTPTemporaryRedirect(f"http://127.0.0.1:{secret}/admin")

        async with serving(redirects) as port:
            pusher = Pusher(clock=lambda: 5.0)
            wanted = Directive(
                job_uid="j", pod_uid="p", rank=0, attempt=1, seq=1, phase=Phase.GO, world_size=1
            )
            pod = {"status": {"podIP": "127.0.0.1"}, "spec": _spec(f'{{"statusPort": {port}}}')}
            for _ in range(3):
                pusher.push(pusher.stamped(wanted), pod=pod)
            await until(lambda: len(asked) >= 3 and not pusher._tasks)
            await pusher.close()
    assert inner == []


async def test_few_bytes_never_stand_for_many(reports: Reports) -> None:
    """A compressed gigabyte is a megabyte on the wire: nothing is unpacked, not even a report."""
    packed, wishes = gzip.compress(WHOLE.dump_json().encode()), []

    async def packs(request: web.Request) -> web.Response:
        wishes.append(request.headers.get("Accept-Encoding"))
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    async with serving(packs) as port:
        reports.follow(KEY, [at(port)])
        await until(lambda: len(wishes) >= 3)
    assert set(wishes) == {"identity"}
    assert reports.views(KEY)["pod-1"].report is None


async def test_a_report_without_an_end_is_cut_off(reports: Reports) -> None:
    sent: list[int] = []

    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        sent.append(0)
        while sent[-1] < 64 * MAX_REPORT_BYTES:
            await answer.write(b"[" * 65536)
            sent[-1] += 65536
        return answer

    async with serving(endless) as port:
        reports.follow(KEY, [at(port)])
        await until(lambda: len(sent) >= 2)
    assert sent[0] < 64 * MAX_REPORT_BYTES
    assert reports.views(KEY)["pod-1"].report is None


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 2_000_000,
        b'{"degraded":' + b'[{"a":' * 300_000,
        b"\xff\xfe{}",
        b'{"jobUID":"job-1","podUID":"\\ud800","rank":0}',
        b"",
        b"null",
        b'{"jobUID":"job-1","podUID":"pod-1","rank":' + b"9" * 100_000 + b"}",
        WHOLE.dump_json().replace('"sequence":1', '"sequence":1e400').encode(),
    ],
    ids=["deep", "deep object", "no text", "surrogate", "nothing", "null", "long", "infinite"],
)
def test_what_is_no_report_is_told_as_such(body: bytes) -> None:
    with pytest.raises(ValueError):
        parse_report(body, endpoint=at(1))


def test_a_twin_of_the_bodies_above_that_is_a_report() -> None:
    assert parse_report(WHOLE.dump_json().encode(), endpoint=at(1)) == WHOLE


def _spec(config: str) -> dict[str, object]:
    env = [{"name": contract.ENV_CONFIG, "value": config}]
    return {"initContainers": [{"name": contract.CONTAINER_SIDECAR, "env": env}]}


@pytest.mark.parametrize(
    ("config", "port"),
    [
        ('{"statusPort": 9871}', 9871),
        ('{"statusPort": 65535}', 65535),
        ('{"statusPort": 65536}', None),
        ('{"statusPort": 0}', None),
        ('{"statusPort": -1}', None),
        ('{"statusPort": true}', None),
        ('{"statusPort": "9871"}', None),
        ("[" * 100_000, None),
    ],
)
def test_only_a_port_is_taken_for_one(config: str, port: int | None) -> None:
    assert status_port_of({"spec": _spec(config)}) == port
