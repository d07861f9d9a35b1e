"""Which pods have which files of a save, by their own word.

A hint that makes a fetch fast: what they give is proved as it comes. Must never wait long for a pod
that does not answer, nor send every rank to the same one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import ClientError, ClientSession, ClientTimeout
from pydantic import ValidationError
from rtj_api import contract

from rtj_sidecar.messages import PeerSave
from rtj_sidecar.runs.peers import Peers

AT_ONCE = 16
ANSWER = ClientTimeout(total=10, connect=3)


async def find_peers(
    http: ClientSession, name: str, urls: Sequence[str], *, rank: int = 0
) -> Peers:
    """`urls` of other pods. Each rank begins at another one, so that all of them serve."""
    turned = [*urls[rank % len(urls) :], *urls[: rank % len(urls)]] if urls else []
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(url: str) -> PeerSave | None:
        async with turns:
            try:
                where = f"{url}{contract.PATH_SAVES}/{name}"
                async with http.get(where, timeout=ANSWER, allow_redirects=False) as answer:
                    if answer.status != 200:
                        return None
                    return PeerSave.model_validate_json(await answer.read())
            except (ClientError, TimeoutError, OSError, ValidationError):
                return None

    told = await asyncio.gather(*(ask(url) for url in turned))
    holds: dict[str, list[str]] = {}
    for url, save in zip(turned, told, strict=True):
        for file in save.files if save is not None else ():
            holds.setdefault(file.path, []).append(url)
    return Peers(turned, holds=holds, headers=http.headers)
