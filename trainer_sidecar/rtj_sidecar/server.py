"""HTTP of the sidecar: the report, metrics, and what peers need.

Serves bytes only out of pins, which no trainer can change; a path is looked up in the pin's own
list, never joined from a request. Answers those who know the job's UID, and anyone about
metrics and health. Must never answer with a secret or block the loop on a disk.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aiohttp import web
from pydantic import ValidationError
from rtj_api import contract

from rtj_sidecar.messages import PeerSave, Seen, Ships
from rtj_sidecar.report import Reporter

MAX_WAIT = 60.0
# A directive is signed.
OPEN_PATHS = (contract.PATH_METRICS, contract.PATH_HEALTH, contract.PATH_DIRECTIVE)


@dataclass(frozen=True, slots=True)
class PinnedFile:
    source: Path
    size: int


class Peers(Protocol):
    """What the server asks the agent."""

    def is_well(self) -> bool: ...

    def told(self, body: bytes, *, signature: str) -> None:
        """Raises PermissionError where the operator did not say it, ValueError for nonsense."""

    async def ships(self, *, since: int | None, wait: float) -> Ships: ...

    async def heard(self, seen: Seen) -> None:
        """Raises ValueError where it is not of this gang."""

    def pinned_file(self, name: str, path: str) -> PinnedFile | None:
        """`path` in the checkpoint directory. Asked for each file of a save: must not walk them."""

    async def describe(self, name: str) -> PeerSave | None: ...


def _seconds(request: web.Request, name: str = "wait") -> float:
    try:
        return min(MAX_WAIT, max(0.0, float(request.query.get(name, "0"))))
    except ValueError:
        raise web.HTTPBadRequest(text=f"{name}: a number of seconds") from None


def _since(request: web.Request) -> int | None:
    text = request.query.get("since")
    try:
        return None if text in (None, "") else int(text)
    except ValueError:
        raise web.HTTPBadRequest(text="since: a whole number") from None


Metrics = Callable[[str], tuple[bytes, str]]
"""Accept header -> page and content type."""


def make_app(*, reporter: Reporter, peers: Peers, metrics: Metrics) -> web.Application:
    job_uid = reporter.current.job_uid.encode()

    @web.middleware
    async def known(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        said = request.headers.get(contract.HEADER_JOB) or request.query.get(contract.QUERY_JOB, "")
        if request.path in OPEN_PATHS or hmac.compare_digest(
            said.encode(errors="replace"), job_uid
        ):
            return await handler(request)
        raise web.HTTPForbidden(
            text=f"header {contract.HEADER_JOB} or query {contract.QUERY_JOB}: say the UID of the "
            "job, its metadata.uid"
        )

    async def status(request: web.Request) -> web.Response:
        report = await reporter.after(
            _since(request), wait=_seconds(request), quiet=_seconds(request, "quiet")
        )
        return web.json_response(text=report.dump_json())

    async def directive(request: web.Request) -> web.Response:
        signature = request.headers.get(contract.HEADER_SIGNATURE, "")
        try:
            peers.told(await request.read(), signature=signature)
        except PermissionError as error:
            raise web.HTTPForbidden(text=str(error)) from None
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        return web.Response(status=204)

    async def metrics_page(request: web.Request) -> web.Response:
        page, content_type = metrics(request.headers.get("Accept", ""))
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def health(_: web.Request) -> web.Response:
        if not peers.is_well():
            return web.Response(status=503, text="the agent's loop does not run")
        return web.Response(text="ok")

    async def ships(request: web.Request) -> web.Response:
        found = await peers.ships(since=_since(request), wait=_seconds(request))
        return web.json_response(text=found.dump_json())

    async def seen(request: web.Request) -> web.Response:
        try:
            await peers.heard(Seen.model_validate_json(await request.read()))
        except ValidationError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        except ValueError as error:
            raise web.HTTPConflict(text=str(error)) from None
        return web.Response(status=204)

    async def save(request: web.Request) -> web.Response:
        found = await peers.describe(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound(text="no such save is pinned here")
        return web.json_response(text=found.dump_json())

    async def save_file(request: web.Request) -> web.StreamResponse:
        file = peers.pinned_file(request.match_info["name"], request.match_info["path"])
        if file is None or not await asyncio.to_thread(_is_plain, file):
            raise web.HTTPNotFound(text="no such file is pinned here")
        # Ranges, conditional requests and sendfile are FileResponse's.
        return web.FileResponse(file.source, headers={"Content-Type": "application/octet-stream"})

    app = web.Application(client_max_size=64 << 20, middlewares=[known])
    app.add_routes(
        [
            web.get(contract.PATH_STATUS, status),
            web.post(contract.PATH_DIRECTIVE, directive),
            web.get(contract.PATH_METRICS, metrics_page),
            web.get(contract.PATH_HEALTH, health),
            web.get(contract.PATH_SHIPS, ships),
            web.post(contract.PATH_SEEN, seen),
            web.get(contract.PATH_SAVES + "/{name}", save),
            web.get(contract.PATH_SAVES + "/{name}/files/{path:.+}", save_file),
        ]
    )
    return app


def _is_plain(file: PinnedFile) -> bool:
    return file.source.is_file() and not file.source.is_symlink()
