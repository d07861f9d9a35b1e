"""A store that is busy, cuts connections, answers nonsense or loses replies: nothing gets lost.

A proxy before the real server does what a schedule says; the schedule counts requests, so no test
waits for a clock longer than the driver itself does.
"""

from __future__ import annotations

import hashlib
import http.client
import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kit.s3 import S3Server, s3_server
from kit.s3_objects import list_keys
from rtj_api.reasons import Reason
from rtj_sidecar.stores.base import Conflict, IfAbsent, StoreProblem, Written
from rtj_sidecar.stores.s3 import S3Store

MIB = 1 << 20


@dataclass
class Fault:
    """`before`: answers instead of the server (status, body), or "cut"; `lose`: drops the reply.

    Each is asked with (method, path, number of the request among those of its method).
    """

    before: Callable[[str, str, int], tuple[int, bytes] | str | None] = lambda *_: None
    lose: Callable[[str, str, int], bool] = lambda *_: False
    cut_body_at: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def number(self, method: str) -> int:
        with self.lock:
            self.counts[method] = self.counts.get(method, 0) + 1
            return self.counts[method]


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream: int
    fault: Fault

    def log_message(self, *_: object) -> None:
        return None

    def handle_expect_100(self) -> bool:
        self.send_response_only(http.HTTPStatus.CONTINUE)
        self.end_headers()
        return True

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        number = self.fault.number(self.command)
        instead = self.fault.before(self.command, self.path, number)
        if instead == "cut":
            self.close_connection = True
            return
        if isinstance(instead, tuple):
            self._reply(instead[0], {}, instead[1])
            return
        # The signature covers the Host that the client saw, so it is passed on as it is.
        server = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=30)
        headers = {k: v for k, v in self.headers.items() if k.lower() != "expect"}
        server.request(self.command, self.path, body, headers)
        try:
            answer = server.getresponse()
        except OSError:
            self.close_connection = True
            return
        payload = answer.read()
        server.close()
        if self.fault.lose(self.command, self.path, number):
            self.close_connection = True
            return
        self._reply(answer.status, dict(answer.getheaders()), payload)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

    def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        length = headers.pop("Content-Length", str(len(body)))
        headers.pop("Transfer-Encoding", None)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        cut = self.fault.cut_body_at
        if cut is not None and len(body) > cut:
            self.wfile.write(body[:cut])
            self.close_connection = True
        elif self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def behind(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[Fault], S3Store]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    servers: list[tuple[http.server.ThreadingHTTPServer, threading.Thread]] = []

    def start(fault: Fault) -> S3Store:
        handler = type("Handler", (Proxy,), {"upstream": s3.port, "fault": fault})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        return S3Store(
            bucket=s3.bucket,
            prefix=tmp_path.name,
            endpoint=f"http://127.0.0.1:{server.server_port}",
            part_size=5 * MIB,
            patience_s=20,
            transfer_patience_s=30,
        )

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


BUSY = b"<Error><Code>SlowDown</Code><Message>slow down</Message></Error>"
Behind = Callable[[Fault], S3Store]


@pytest.mark.parametrize(
    "instead",
    [(503, BUSY), (500, b""), (503, b"<html>Bad gateway</html>"), "cut"],
    ids=["slow-down", "empty-500", "html-503", "cut"],
)
def test_a_large_file_goes_up_and_down_through_faults(
    behind: Behind, tmp_path: Path, instead: tuple[int, bytes] | str
) -> None:
    # Of each method every other request fails, the first three in any case.
    store = behind(Fault(before=lambda m, p, n: instead if n <= 3 or n % 2 else None))
    source, back = tmp_path / "source", tmp_path / "back"
    body = hashlib.sha256(b"x").digest() * (12 * MIB // 32)
    source.write_bytes(body)
    sent = store.upload_file("f", source)
    store.download("f", back, size=len(body), sha256=sent.sha256)
    assert back.read_bytes() == body


def test_a_body_that_breaks_off_is_gone_on_with(behind: Behind, tmp_path: Path) -> None:
    fault = Fault()
    store = behind(fault)
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(hashlib.sha256(b"y").digest() * (3 * MIB // 32))
    sent = store.upload_file("f", source)
    fault.cut_body_at = MIB + 7
    moved: list[int] = []
    store.download("f", back, size=3 * MIB, sha256=sent.sha256, progress=moved.append)
    assert back.read_bytes() == source.read_bytes()
    assert sum(moved) == 3 * MIB
    assert fault.counts["GET"] > 2


def test_a_lost_reply_to_our_own_create_is_success(behind: Behind) -> None:
    store = behind(Fault(lose=lambda m, p, n: m == "PUT" and n == 1))
    assert isinstance(store.put("fence", b"nonce a", condition=IfAbsent()), Written)
    assert store.put("fence", b"nonce b", condition=IfAbsent()) == Conflict()


def test_a_conditional_conflict_is_tried_again(behind: Behind) -> None:
    conflict = b"<Error><Code>ConditionalRequestConflict</Code><Message>x</Message></Error>"
    store = behind(Fault(before=lambda m, p, n: (409, conflict) if n <= 2 else None))
    assert isinstance(store.put("fence", b"a", condition=IfAbsent()), Written)


def test_a_lost_reply_to_the_completion_is_recognised(
    behind: Behind, tmp_path: Path, s3: S3Server
) -> None:
    store = behind(Fault(lose=lambda m, p, n: m == "POST" and "uploadId=" in p and n == 2))
    source = tmp_path / "source"
    source.write_bytes(b"z" * (11 * MIB))
    sent = store.upload_file("f", source)
    head = store.head("f")
    assert head is not None
    assert (head.size, head.crc64nvme) == (sent.size, sent.crc64nvme)
    assert list_keys(s3, prefix=f"{tmp_path.name}/") == [f"{tmp_path.name}/f"]


def test_a_store_that_stays_busy_is_said_to_be_and_nothing_is_visible(
    behind: Behind, tmp_path: Path, s3: S3Server
) -> None:
    store = behind(Fault(before=lambda *_: (503, BUSY)))
    store._patience_s = 0.3  # the wait is the driver's own
    with pytest.raises(StoreProblem, match="SlowDown") as raised:
        store.put("f", b"1")
    assert (raised.value.reason, raised.value.transient) == (Reason.STORE_UNREACHABLE, True)
    assert list_keys(s3, prefix=f"{tmp_path.name}/") == []


def test_an_answer_that_is_no_s3(behind: Behind) -> None:
    store = behind(Fault(before=lambda *_: (200, b"hello, this is a proxy")))
    store._patience_s = 0.3
    with pytest.raises(StoreProblem) as raised:
        list(store.list(""))
    assert raised.value.reason == Reason.STORE_UNREACHABLE
