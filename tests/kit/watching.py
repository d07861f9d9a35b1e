"""Objects of a real API server, as a list and then a watch show them; for what tests play.

Must never miss the end of an object: one that is gone when the watch begins anew is told too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
from rtj_operator.shell.cluster import KubeCluster

AGAIN_SECONDS = 0.05  # until a watch that ended is begun anew

Raw = dict[str, Any]
Told = Callable[[Raw], Awaitable[None]]


async def follow(
    cluster: KubeCluster, path: str, *, saw: Told, gone: Told, selector: str = ""
) -> None:
    """Tell of every version of every object below `path`, until cancelled."""
    host, session = cluster.watch_session(on_watch=lambda *_: None)
    newest: dict[str, Raw] = {}
    async with session:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                await _once(session, host + path, newest, saw=saw, gone=gone, selector=selector)
            await asyncio.sleep(AGAIN_SECONDS)


async def _once(
    session: aiohttp.ClientSession,
    url: str,
    newest: dict[str, Raw],
    *,
    saw: Told,
    gone: Told,
    selector: str,
) -> None:
    """List, then watch until the API server ends it."""
    query = {"labelSelector": selector} if selector else {}
    async with session.get(url, params=query, raise_for_status=True) as answer:
        listed = await answer.json()
    kind = listed["kind"].removesuffix("List")
    there = {raw["metadata"]["uid"] for raw in listed["items"]}
    for uid in newest.keys() - there:
        await gone(newest.pop(uid))
    for raw in listed["items"]:
        newest[raw["metadata"]["uid"]] = raw
        await saw({"kind": kind, **raw})
    query |= {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
    limit = aiohttp.ClientTimeout(sock_connect=5)
    async with session.get(url, params=query, timeout=limit, raise_for_status=True) as stream:
        async for line in _lines(stream.content):
            event = json.loads(line)
            raw = event["object"]
            match event["type"]:
                case "ADDED" | "MODIFIED":
                    newest[raw["metadata"]["uid"]] = raw
                    await saw(raw)
                case "DELETED":
                    newest.pop(raw["metadata"]["uid"], None)
                    await gone(raw)
                case _:
                    return  # too old a version: list again


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in stream.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
