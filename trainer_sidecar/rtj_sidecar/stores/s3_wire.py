"""How the bytes of large objects move: one copy between the socket and the memory they are used in.

botocore goes on building, signing, explaining and parsing every request; only the sending of those
with a large body, either way, is done here, by its `before-send` event. A part leaves by
sendfile(2) where the connection is plain, an answer's body arrives by recv_into. Where an
environment's proxy is to be used, the request is left to botocore. Must never try again by itself
(the caller decides that) and never send a byte that the caller did not hash.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import SplitResult, urlsplit

from botocore import exceptions as boto
from botocore.awsrequest import AWSResponse
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

from rtj_sidecar.stores.base import SourceChanged
from rtj_sidecar.stores.local import BLOCK
from rtj_sidecar.stores.s3_body import Body

OPERATIONS = ("GetObject", "PutObject", "UploadPart")
# So long a server may take to say that it wants the body, before it is sent unasked (RFC 9110).
_CONTINUE_S = 1.0
_CONTINUE = b"HTTP/1.1 100"
# In one call, so that a broken connection is noticed in between.
_SENDFILE = 8 << 20


class Wire:
    """Connections kept open, for a client's large requests. `verify` as botocore's."""

    def __init__(
        self, *, connect_timeout_s: float, timeout_s: float, verify: str | bool = True
    ) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self._verify = verify
        self._context: ssl.SSLContext | None = None
        self._idle: dict[tuple[str, str], list[http.client.HTTPConnection]] = {}
        self._lock = threading.Lock()

    def attach(self, client: Any) -> None:
        """Send what `client` asks for, from now on."""
        for operation in OPERATIONS:
            client.meta.events.register(f"before-send.s3.{operation}", self.send)

    def send(self, request: Any, **_: Any) -> AWSResponse | None:
        """The answer, its body unread if it is to be streamed; None: botocore shall send it.

        Raises what botocore's own session raises, and SourceChanged.
        """
        body = request.body or None
        if body is not None and not isinstance(body, Body):
            return None
        if get_environ_proxies(request.url):
            return None
        where = urlsplit(request.url)
        connection = self._connection(where, request.url)
        try:
            answer = _exchange(connection, request, where, body)
        except SourceChanged:
            connection.close()
            raise
        except TimeoutError as error:
            connection.close()
            raise boto.ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise boto.ConnectionClosedError(
                error=error, request=request, endpoint_url=request.url
            ) from error
        except BaseException:
            connection.close()
            raise
        reply = Reply(answer, request.url, connection, self)
        result = AWSResponse(request.url, answer.status, answer.headers, reply)
        if not request.stream_output:
            _ = result.content
        return result

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, {}
        for connection in (each for group in idle.values() for each in group):
            connection.close()

    def keep(self, connection: http.client.HTTPConnection, url: str) -> None:
        """For the next request to the same place."""
        where = urlsplit(url)
        with self._lock:
            self._idle.setdefault((where.scheme, where.netloc), []).append(connection)

    def _connection(self, where: SplitResult, url: str) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                idle = self._idle.get((where.scheme, where.netloc))
                connection = idle.pop() if idle else None
            if connection is None:
                return self._connect(where, url)
            # Readable without having been asked: the server has closed it.
            if connection.sock is not None and not _ready(connection.sock, select.POLLIN, 0):
                return connection
            connection.close()

    def _connect(self, where: SplitResult, url: str) -> http.client.HTTPConnection:
        host, port = where.hostname or "", where.port
        connection: http.client.HTTPConnection
        if where.scheme == "https":
            connection = http.client.HTTPSConnection(
                host, port, timeout=self._connect_timeout_s, context=self._tls()
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._connect_timeout_s)
        try:
            connection.connect()
        except TimeoutError as error:
            raise boto.ConnectTimeoutError(endpoint_url=url, error=error) from error
        except ssl.SSLError as error:
            raise boto.SSLError(endpoint_url=url, error=error) from error
        except OSError as error:
            raise boto.EndpointConnectionError(endpoint_url=url, error=error) from error
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.sock.settimeout(self._timeout_s)
        return connection

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context(cafile=get_cert_path(self._verify))
        return self._context


class Reply:
    """An answer's body, as botocore's AWSResponse and StreamingBody read one."""

    def __init__(
        self,
        answer: http.client.HTTPResponse,
        url: str,
        connection: http.client.HTTPConnection,
        wire: Wire,
    ) -> None:
        self._answer, self._url, self._wire = answer, url, wire
        self._connection: http.client.HTTPConnection | None = connection
        self._settle()

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Fill the buffer; fewer bytes only at the end, or where the connection ended."""
        with self._explained():
            count = self._answer.readinto(buffer)
        self._settle()
        return count

    def read(self, amount: int | None = None) -> bytes:
        with self._explained():
            data = self._answer.read(amount)
        self._settle()
        return data

    def stream(self, amount: int = BLOCK) -> Iterator[bytes]:
        while data := self.read(amount):
            yield data

    def close(self) -> None:
        """What was not read is lost, and the connection with it."""
        self._answer.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _settle(self) -> None:
        """Give the connection back as soon as the last byte was read."""
        if self._connection is None or not self._answer.isclosed():
            return
        connection, self._connection = self._connection, None
        # A length not reached: the other side has closed.
        if self._answer.will_close or self._answer.length:
            connection.close()
        else:
            self._wire.keep(connection, self._url)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise boto.ReadTimeoutError(endpoint_url=self._url, error=error) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise boto.ResponseStreamingError(error=error) from error


def _exchange(
    connection: http.client.HTTPConnection, request: Any, where: SplitResult, body: Body | None
) -> http.client.HTTPResponse:
    headers = {name.lower(): value for name, value in request.headers.items()}
    plain = not isinstance(connection.sock, ssl.SSLSocket)
    # Whether the server wants the body is only looked at where the socket can be peeked into.
    asks = headers.pop("expect", None) is not None and plain and body is not None
    target = f"{where.path or '/'}?{where.query}" if where.query else where.path or "/"
    connection.putrequest(
        request.method, target, skip_host="host" in headers, skip_accept_encoding=True
    )
    for name, value in headers.items():
        connection.putheader(name, value)
    if asks:
        connection.putheader("expect", "100-continue")
    connection.endheaders()
    if body is not None and not (asks and _refused(connection.sock)):
        try:
            _send_body(connection.sock, body, plain=plain)
        except (BrokenPipeError, ConnectionResetError):
            # It may have answered before it closed; where it has not, this raises.
            return connection.getresponse()
    elif body is not None:
        answer = connection.getresponse()
        answer.will_close = True  # it may still wait for the body
        return answer
    return connection.getresponse()


def _refused(connected: socket.socket) -> bool:
    """Whether the server answered in place of asking for the body."""
    if not _ready(connected, select.POLLIN, _CONTINUE_S):
        return False
    seen = connected.recv(len(_CONTINUE), socket.MSG_PEEK)
    return not seen or not _CONTINUE.startswith(seen)


def _send_body(connected: socket.socket, body: Body, *, plain: bool) -> None:
    if not plain:
        while data := body.read(BLOCK):
            connected.sendall(data)
        return
    granted = 0
    while left := len(body) - body.tell():
        granted = granted or body.granted(min(left, _SENDFILE))
        try:
            sent = os.sendfile(connected.fileno(), body.descriptor, body.offset, granted)
        except BlockingIOError:
            if not _ready(connected, select.POLLOUT, connected.gettimeout() or 0):
                raise TimeoutError("the server takes no more bytes") from None
            continue
        if not sent:
            raise SourceChanged(body.path, f"ends at {body.offset}")
        granted -= sent
        body.seek(sent, os.SEEK_CUR)


def _ready(connected: socket.socket, event: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(connected, event)
    return bool(poll.poll(timeout_s * 1000))
