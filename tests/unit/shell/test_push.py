"""The operator's half of a pushed directive: what it sends is what a sidecar believes."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from rtj_api import contract
from rtj_api.wire import Directive, Phase
from rtj_operator.shell.pod_views import pod_view
from rtj_operator.shell.push import Pusher
from rtj_sidecar.directives import signed

WANTED = Directive(job_uid="j", pod_uid="p", rank=0, attempt=3, seq=3, phase=Phase.GO, world_size=2)


def raw_pod(*, host: str, port: int, text: str) -> dict:
    config = f'{{"statusPort": {port}}}'
    env = [{"name": contract.ENV_CONFIG, "value": config}]
    return {
        "metadata": {
            "name": "gpt-0-1-0a1b",
            "uid": "p",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {contract.LABEL_JOB: "gpt", contract.LABEL_RANK: "0"},
            "annotations": {contract.ANNOTATION_DIRECTIVE: text},
        },
        "spec": {
            "containers": [],
            "initContainers": [{"name": contract.CONTAINER_SIDECAR, "env": env}],
        },
        "status": {"podIP": host},
    }


async def test_a_sidecar_believes_what_is_pushed() -> None:
    arrived: asyncio.Queue[tuple[bytes, str]] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        await arrived.put((await request.read(), request.headers[contract.HEADER_SIGNATURE]))
        return web.Response(status=204)

    app = web.Application()
    app.add_routes([web.post(contract.PATH_DIRECTIVE, take)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    pusher, other = Pusher(clock=lambda: 5.0), Pusher(clock=lambda: 5.0)
    try:
        text = pusher.stamped(WANTED)
        pod = raw_pod(host="127.0.0.1", port=port, text=text)
        pusher.push(text, pod=pod)
        body, signature = await asyncio.wait_for(arrived.get(), 60)
        annotated = Directive.model_validate_json(text)
        assert annotated.sent_at == 5.0
        assert signed(body, signature=signature, by=annotated).bare() == WANTED
        another = Directive.model_validate_json(other.stamped(WANTED))
        with pytest.raises(PermissionError):  # an operator that came after has another key
            signed(body, signature=signature, by=another)
        # … and finds the pod as it should be: key and time are no part of what is asked for.
        view = pod_view(pod)
        assert view is not None
        assert view.directive == WANTED
    finally:
        await pusher.close()
        await other.close()
        await runner.cleanup()


async def test_a_pod_that_cannot_be_reached_disturbs_nobody() -> None:
    pusher = Pusher(clock=lambda: 5.0)
    text = pusher.stamped(WANTED)
    pusher.push(text, pod=raw_pod(host="127.0.0.1", port=1, text=text))
    pusher.push(text, pod={"status": {}, "spec": {}})
    await pusher.close()


async def test_whose_key_is_old() -> None:
    """One of an operator before this one; not its own, nor that of one that runs beside it."""
    before, now = Pusher(clock=lambda: 5.0), Pusher(clock=lambda: 9.0)
    beside = Pusher(clock=lambda: 10.0)
    try:
        told = [one.stamped(WANTED) for one in (before, now, beside)]
        pods = [raw_pod(host="127.0.0.1", port=1, text=text) for text in (*told, "", "{")]
        assert [now.has_old_key(pod) for pod in pods] == [True, False, False, False, False]
    finally:
        for one in (before, now, beside):
            await one.close()
