"""A proxy between an S3 client and a real S3 server that misbehaves on demand.

It exists so that what a broken network or a failing store does to a run can be shown against a
server that really stores objects. Faults are switched while it runs and may be narrowed to some
requests. SigV4 signs the Host header, so requests pass with the one that the client sent. Must
never change anything in mode PASS, and never let a request through twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import threading
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

CHUNK = 65536
REFUSAL = (
    '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code>'
    "<Message>The fault proxy says so.</Message></Error>"
)


class Mode(StrEnum):
    PASS = "pass"
    BUSY = "busy"  # `status` and `code`, 503 SlowDown; the server never sees the request
    REFUSE = "refuse"  # nothing listens, open connections are cut
    CUT = "cut"  # a GET's answer, or a PUT's body, ends in its middle
    DRIP = "drip"  # bodies pass at `bytes_per_second`
    CORRUPT = "corrupt"  # one byte somewhere in a GET's answer, or a PUT's body, is another one
    LOSE_REPLY = "lose-reply"  # the server has done it, the client never hears
    HOLD = "hold"  # waits for `heal`, which lets it go on or drops it unseen by the server


@dataclass(frozen=True)
class Fault:
    """What goes wrong, with which requests: `only` is searched in "METHOD /path?query"."""

    mode: Mode = Mode.PASS
    only: str = ""
    times: int | None = None  # so many requests, then as in PASS; None: until switched
    bytes_per_second: int = 4096
    status: int = 503
    code: str = "SlowDown"


@dataclass(frozen=True)
class Seen:
    """One request that came in; `status` is the server's, None where it never answered.

    `sent`: bytes of its body that went on to the server, framing included.
    """

    request: str  # "METHOD /path?query"
    fault: Mode
    status: int | None
    sent: int = 0


@dataclass
class FaultProxy:
    """`with FaultProxy(upstream="http://…", address="198.18.…") as proxy: proxy.endpoint`."""

    upstream: str
    address: str = "127.0.0.1"
    port: int = 0
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._fault = Fault()
        self._left: int | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.held: list[str] = []  # requests that wait just now
        self._released = asyncio.Event()
        self._drop = False

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}:{self.port}"

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    def switch(self, fault: Fault) -> None:
        """From now on; requests under way end as they began, unless it is REFUSE."""
        self._do(self._switch(fault))

    def heal(self, *, drop: bool = False) -> None:
        """As in PASS again; `drop`: what was held never reaches the server."""
        self._do(self._switch(Fault(), drop=drop))

    def hits(self, mode: Mode, *, only: str = "") -> list[Seen]:
        """The requests that met that fault."""
        return [s for s in list(self.seen) if s.fault is mode and re.search(only, s.request)]

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)

    async def _switch(self, fault: Fault, *, drop: bool = True) -> None:
        self._fault, self._left = fault, fault.times
        self._drop = drop
        self._released.set()
        self._released = asyncio.Event()
        if fault.mode is Mode.REFUSE:
            await self._close()
        elif self._server is None:
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, self.address, self.port, reuse_address=True, limit=CHUNK
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._open):
            writer.transport.abort()

    async def _end(self) -> None:
        await self._close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client: request after request, each on a connection of its own."""
        self._open.add(writer)
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # One side is gone: so is the exchange.
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    def _next_fault(self, request: str) -> Fault:
        fault = self._fault
        if fault.mode is Mode.PASS or not re.search(fault.only, request) or self._left == 0:
            return Fault()
        if self._left is not None:
            self._left -= 1
        return fault

    async def _is_dropped(self, request: str) -> bool:
        """Wait until the fault is another one; whether the request ends here."""
        self.held.append(request)
        try:
            await self._released.wait()
        finally:
            self.held.remove(request)
        if self._drop:
            self.seen.append(Seen(request, Mode.HOLD, None))
        return self._drop

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the client's connection may be used again."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        line, headers = _parse(head)
        method, target, _ = line.split(" ", 2)
        request = f"{method} {target}"
        fault = self._next_fault(request)
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = _body(reader, headers, none=True)
        if fault.mode is Mode.HOLD and await self._is_dropped(request):
            return False
        if fault.mode is Mode.BUSY:
            async for _ in body:
                pass
            self.seen.append(Seen(request, fault.mode, None))
            refusal = "" if method == "HEAD" else REFUSAL.format(code=fault.code)
            writer.write(
                f"HTTP/1.1 {fault.status} No\r\nContent-Type: application/xml\r\n"
                f"Content-Length: {len(refusal)}\r\n\r\n{refusal}".encode()
            )
            await writer.drain()
            return True
        place = urlsplit(self.upstream)
        up_reader, up_writer = await asyncio.open_connection(place.hostname, place.port)
        try:
            up_writer.write(_without(head, "expect", "connection") + b"Connection: close\r\n\r\n")
            total = int(headers.get("content-length", 0))
            cut_here = fault.mode is Mode.CUT and method in ("PUT", "POST") and total > 1
            stop = total // 2 if cut_here else None
            counted = _Counted(body)
            flips_up = fault.mode is Mode.CORRUPT and method == "PUT" and total > 0
            flip = random.randrange(total) if flips_up else None
            if not await _pass(counted.pieces(), up_writer, fault=fault, stop=stop, flip=flip):
                self.seen.append(Seen(request, fault.mode, None, stop or 0))
                return False
            answer = await up_reader.readuntil(b"\r\n\r\n")
            status_line, told = _parse(answer)
            status = int(status_line.split(" ")[1])
            self.seen.append(Seen(request, fault.mode, status, counted.bytes))
            empty = method == "HEAD" or status in (204, 304)
            reply = _body(up_reader, {} if empty else told, none=empty)
            if fault.mode is Mode.LOSE_REPLY:
                async for _ in reply:
                    pass
                return False
            writer.write(answer)
            size = 0 if empty else int(told.get("content-length", 0))
            content = method == "GET" and status in (200, 206) and size > 1
            middle = size // 2 if content else None
            anywhere = random.randrange(size) if content else None
            return await _pass(
                reply,
                writer,
                fault=fault,
                stop=middle if fault.mode is Mode.CUT else None,
                flip=anywhere if fault.mode is Mode.CORRUPT else None,
            ) and (empty or "content-length" in told or "transfer-encoding" in told)
        finally:
            up_writer.transport.abort()


class _Counted:
    """Counts what a body brings."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self.bytes = 0

    async def pieces(self) -> AsyncIterator[bytes]:
        async for data in self._body:
            self.bytes += len(data)
            yield data


async def _pass(
    body: AsyncIterator[bytes],
    to: asyncio.StreamWriter,
    *,
    fault: Fault,
    stop: int | None = None,
    flip: int | None = None,
) -> bool:
    """Send a body on; False when it was left off after `stop` bytes."""
    sent = 0
    async for data in body:
        if flip is not None and sent <= flip < sent + len(data):
            at = flip - sent
            data = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        if stop is not None and sent + len(data) > stop:
            to.write(data[: stop - sent])
            await to.drain()
            return False
        step = max(1, fault.bytes_per_second // 10) if fault.mode is Mode.DRIP else len(data)
        for begin in range(0, len(data), step or 1):
            to.write(data[begin : begin + step])
            with contextlib.suppress(ConnectionResetError):
                await to.drain()
            if fault.mode is Mode.DRIP:
                await asyncio.sleep(0.1)
        sent += len(data)
    await to.drain()
    return True


async def _body(
    reader: asyncio.StreamReader, headers: dict[str, str], *, none: bool
) -> AsyncIterator[bytes]:
    """The bytes that follow a head, framing of a chunked body included; `none`: none unless the
    head says so."""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            if size == 0:
                while (rest := await reader.readuntil(b"\r\n")) != b"\r\n":
                    line += rest
                yield line + rest
                return
            yield line + await reader.readexactly(size + 2)
    elif "content-length" in headers:
        left = int(headers["content-length"])
        while left > 0:
            data = await reader.read(min(left, CHUNK))
            if not data:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(data)
            yield data
    elif not none:
        while data := await reader.read(CHUNK):
            yield data


def _parse(head: bytes) -> tuple[str, dict[str, str]]:
    line, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (entry.split(":", 1) for entry in rest)
    return line, {name.strip().lower(): value.strip() for name, value in pairs}


def _without(head: bytes, *names: str) -> bytes:
    """The head with some headers left out, not yet ended."""
    line, *rest = head.rstrip(b"\r\n").split(b"\r\n")
    kept = [entry for entry in rest if entry.split(b":")[0].strip().lower().decode() not in names]
    return b"\r\n".join([line, *kept, b""])
