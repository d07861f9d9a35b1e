"""Says a directive to its sidecar at once, for the kubelet may take a second to bring it.

The annotation stays the truth and is always written first; this only brings the same words sooner.
A sidecar believes them because they are signed with a key whose public half stands in its own
annotation, which only those who may change pods can write. The private half never leaves this
process, so one who may read pods, or reach their port, can order nothing. After a restart the
first directive comes by annotation alone. Must never be needed for anything, nor fail a pass.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable

import aiohttp
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError
from rtj_api import contract
from rtj_api.wire import Directive

from rtj_operator.shell.api import Raw
from rtj_operator.shell.pod_views import status_port_of

log = logging.getLogger(__name__)

TIMEOUT = aiohttp.ClientTimeout(total=3, sock_connect=1)
MAX_AT_ONCE = 64


class Pusher:
    """Made inside a running loop. `clock` gives Unix seconds."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._key = Ed25519PrivateKey.generate()
        self._public = base64.b64encode(self._key.public_key().public_bytes_raw()).decode()
        self._session = aiohttp.ClientSession(
            timeout=TIMEOUT, connector=aiohttp.TCPConnector(limit=MAX_AT_ONCE)
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def stamped(self, directive: Directive) -> str:
        """The annotation's text: what is asked for, when, and whose signature counts from now."""
        stamp = {"push_key": self._public, "sent_at": self._clock()}
        return directive.model_copy(update=stamp).dump_json()

    def has_old_key(self, pod: Raw) -> bool:
        """Its annotation is of an operator before this one. What one beside this one has written
        counts as new: else both would write it for ever."""
        notes = pod["metadata"].get("annotations") or {}
        try:
            said = Directive.model_validate_json(notes.get(contract.ANNOTATION_DIRECTIVE) or "")
        except ValidationError:
            return False
        return said.push_key != self._public and (said.sent_at or 0.0) < self._began

    def push(self, text: str, *, pod: Raw) -> None:
        """Post what was just written to this pod; whether it arrives, its report tells."""
        host, port = (pod.get("status") or {}).get("podIP"), status_port_of(pod)
        if not host or not port:
            return
        url = contract.sidecar_url(host, port=port) + contract.PATH_DIRECTIVE
        task = asyncio.create_task(self._post(url, text.encode()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _post(self, url: str, body: bytes) -> None:
        signature = base64.b64encode(self._key.sign(contract.SIGNED_PREFIX + body)).decode()
        headers = {contract.HEADER_SIGNATURE: signature, "Content-Type": "application/json"}
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False):
                pass  # whatever it says, its next report tells
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.debug("not pushed", extra={"url": url, "why": f"{type(error).__name__}: {error}"})

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()
