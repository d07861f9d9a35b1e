"""The transport of large bodies, against a server that does exactly what each test says.

The server speaks just enough HTTP for one object; what it does wrong is decided per request, so no
test depends on the time that anything takes.
"""

from __future__ import annotations

import hashlib
import http.server
import re
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import rtj_sidecar.stores.s3_download as s3_download
from rtj_api.reasons import Reason
from rtj_sidecar.stores.base import Cancelled, ContentMismatch, SourceChanged, StoreProblem
from rtj_sidecar.stores.local import crc64, crc64_text
from rtj_sidecar.stores.s3 import S3Store

MIB = 1 << 20
OBJECT = hashlib.sha256(b"object").digest() * (5 * MIB // 32) + b"the end"
SIZE, SHA256 = len(OBJECT), hashlib.sha256(OBJECT).hexdigest()
CRC = crc64_text(crc64(OBJECT))
WRONG = OBJECT[: 3 * MIB] + b"!" + OBJECT[3 * MIB + 1 :]


@dataclass(frozen=True)
class Does:
    """What one GET gets."""

    body: bytes = OBJECT
    ranges: bool = True
    cut_after: int | None = None
    moved_by: int = 0
    chunked: bool = False
    status: int | None = None


@dataclass
class Script:
    """`get(number of the GET, its range)`; `put(number)`: a status in place of taking the body."""

    get: Callable[[int, str | None], Does] = lambda *_: Does()
    put: Callable[[int], int | None] = lambda _: None
    gets: list[str | None] = field(default_factory=list)
    puts: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    connections: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script

    def log_message(self, *_: object) -> None:
        return None

    def handle_expect_100(self) -> bool:
        return True  # decided in do_PUT

    def do_GET(self) -> None:
        if "uploads" in self.path:
            return self._reply(200, b"<ListMultipartUploadsResult/>")
        asked = self.headers.get("Range")
        with self.script.lock:
            self.script.gets.append(asked)
            self.script.connections.add(self.client_address[1])
            does = self.script.get(len(self.script.gets), asked)
        if does.status is not None:
            return self._reply(does.status, b"<Error><Code>SlowDown</Code></Error>")
        body, status, headers = does.body, 200, {}
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked or "")
        if found and does.ranges:
            start = int(found[1]) + does.moved_by
            end = min(int(found[2] or len(body) - 1), len(body) - 1) + 1
            status = 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
            body = body[start:end]
        self.send_response_only(status)
        self.send_header("ETag", '"x"')
        if does.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if does.cut_after is not None and does.cut_after < len(body):
            self.wfile.write(body[: does.cut_after])
            self.close_connection = True
        elif does.chunked:
            for at in range(0, len(body), MIB):
                piece = body[at : at + MIB]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.write(body)

    def do_PUT(self) -> None:
        with self.script.lock:
            instead = self.script.put(len(self.script.puts) + 1)
            self.script.connections.add(self.client_address[1])
            if instead is not None:
                self.script.puts.append((dict(self.headers.items()), b""))
        if instead is not None:
            self.close_connection = True
            return self._reply(instead, b"<Error><Code>SlowDown</Code></Error>")
        if "Expect" in self.headers:
            self.send_response_only(100)
            self.end_headers()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.script.lock:
            self.script.puts.append((dict(self.headers.items()), body))
        self._reply(200, b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name = b"InitiateMultipartUploadResult"
        if "uploadId" in self.path:
            name = b"CompleteMultipartUploadResult"
        self._reply(200, b"<%s><UploadId>u</UploadId><ETag>x</ETag></%s>" % (name, name))

    def do_DELETE(self) -> None:
        self._reply(204, b"")

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response_only(status)
        self.send_header("ETag", '"x"')
        if verified := self.headers.get("x-amz-checksum-crc64nvme"):
            self.send_header("x-amz-checksum-crc64nvme", verified)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        return None  # a client that goes away in the middle is part of the tests


Serve = Callable[..., S3Store]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setattr(s3_download, "RANGE", MIB)
    servers: list[tuple[Server, threading.Thread]] = []
    stores: list[S3Store] = []

    def start(script: Script, *, tls: ssl.SSLContext | None = None, **more: Any) -> S3Store:
        handler = type("Scripted", (Handler,), {"script": script})
        server = Server(("127.0.0.1", 0), handler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        scheme = "http" if tls is None else "https"
        settings = {"part_size": 5 * MIB, "patience_s": 5, "transfer_patience_s": 20} | more
        endpoint = f"{scheme}://127.0.0.1:{server.server_port}"
        stores.append(S3Store(bucket="b", endpoint=endpoint, **settings))
        return stores[-1]

    yield start
    for store in stores:
        store.close()
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def download(store: S3Store, back: Path, *, crc: bool = True, **more: Any) -> list[int]:
    moved: list[int] = []
    proof = CRC if crc else None
    store.download(
        "f", back, size=SIZE, sha256=SHA256, crc64nvme=proof, progress=moved.append, **more
    )
    return moved


@pytest.mark.parametrize("crc", [True, False], ids=["crc64nvme", "sha256"])
def test_ranges_come_in_one_request_each_over_connections_that_stay(
    serve: Serve, tmp_path: Path, crc: bool
) -> None:
    script = Script()
    moved = download(serve(script, threads=2), tmp_path / "back", crc=crc)
    assert (tmp_path / "back").read_bytes() == OBJECT
    assert sum(moved) == SIZE
    bounds = [(at, min(at + MIB, SIZE) - 1) for at in range(0, SIZE, MIB)]
    assert sorted(map(str, script.gets)) == sorted(f"bytes={a}-{b}" for a, b in bounds)
    assert len(script.connections) <= 2


@pytest.mark.parametrize("crc", [True, False], ids=["crc64nvme", "sha256"])
def test_a_range_cut_in_the_middle_goes_on_where_it_was(
    serve: Serve, tmp_path: Path, crc: bool
) -> None:
    cut = f"bytes={MIB}-{2 * MIB - 1}"
    script = Script(get=lambda n, asked: Does(cut_after=1000 if asked == cut else None))
    moved = download(serve(script), tmp_path / "back", crc=crc)
    assert (tmp_path / "back").read_bytes() == OBJECT
    assert sum(moved) == SIZE
    assert f"bytes={MIB + 1000}-{2 * MIB - 1}" in script.gets


def test_answers_that_bring_nothing_are_an_error_in_the_end(serve: Serve, tmp_path: Path) -> None:
    store = serve(Script(get=lambda *_: Does(cut_after=0)), transfer_patience_s=0.3)
    with pytest.raises(StoreProblem, match="end at byte") as raised:
        download(store, tmp_path / "back")
    assert (raised.value.reason, raised.value.transient) == (Reason.STORE_UNREACHABLE, True)
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("crc", [True, False], ids=["crc64nvme", "sha256"])
def test_a_server_that_ignores_range(serve: Serve, tmp_path: Path, crc: bool) -> None:
    script = Script(get=lambda *_: Does(ranges=False))
    moved = download(serve(script), tmp_path / "back", crc=crc)
    assert (tmp_path / "back").read_bytes() == OBJECT
    assert sum(moved) == SIZE


def test_a_server_that_ignores_range_and_cuts(serve: Serve, tmp_path: Path) -> None:
    whole = f"bytes=0-{SIZE - 1}"
    again = f"bytes={2 * MIB + 5}-{SIZE - 1}"
    script = Script(
        get=lambda n, asked: Does(ranges=False, cut_after=2 * MIB + 5 if asked == whole else None)
    )
    download(serve(script), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == OBJECT
    assert again in script.gets


def test_an_answer_that_is_another_range_is_never_taken(serve: Serve, tmp_path: Path) -> None:
    store = serve(Script(get=lambda *_: Does(moved_by=1)))
    with pytest.raises(StoreProblem, match="Range") as raised:
        download(store, tmp_path / "back")
    assert raised.value.reason == Reason.STORE_UNSUPPORTED
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("crc", [True, False], ids=["crc64nvme", "sha256"])
def test_wrong_bytes_twice_condemn_the_object(serve: Serve, tmp_path: Path, crc: bool) -> None:
    store = serve(Script(get=lambda *_: Does(body=WRONG)))
    with pytest.raises(ContentMismatch) as raised:
        download(store, tmp_path / "back", crc=crc)
    assert raised.value.got == f"SHA-256 {hashlib.sha256(WRONG).hexdigest()}"
    assert not (tmp_path / "back").exists()


def test_wrong_bytes_once_are_fetched_again(serve: Serve, tmp_path: Path) -> None:
    ranges = SIZE // MIB + 1
    script = Script(get=lambda n, _: Does(body=WRONG if n <= ranges else OBJECT))
    moved = download(serve(script), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == OBJECT
    assert sum(moved) == SIZE


def test_a_checksum_that_is_itself_wrong_condemns_nothing(serve: Serve, tmp_path: Path) -> None:
    store = serve(Script())
    store.download("f", tmp_path / "back", size=SIZE, sha256=SHA256, crc64nvme=crc64_text(1))
    assert (tmp_path / "back").read_bytes() == OBJECT


def test_an_object_of_another_size(serve: Serve, tmp_path: Path) -> None:
    store = serve(Script(get=lambda *_: Does(body=OBJECT[:-1])))
    with pytest.raises(ContentMismatch, match=f"{SIZE} bytes"):
        download(store, tmp_path / "back")


def test_an_answer_of_unknown_length(serve: Serve) -> None:
    store = serve(Script(get=lambda *_: Does(chunked=True)))
    assert store.sha256("f") == SHA256


def test_a_cancelled_restore_leaves_nothing(serve: Serve, tmp_path: Path) -> None:
    cancel = threading.Event()
    store = serve(Script())
    with pytest.raises(Cancelled):
        store.download(
            "f",
            tmp_path / "back",
            size=SIZE,
            sha256=SHA256,
            progress=lambda _: cancel.set(),
            cancel=cancel,
        )
    assert not (tmp_path / "back").exists()


def test_parts_are_what_the_file_holds(serve: Serve, tmp_path: Path) -> None:
    script = Script()
    (tmp_path / "f").write_bytes(OBJECT)
    sent = serve(script).upload_file("f", tmp_path / "f")
    assert (sent.size, sent.sha256, sent.crc64nvme) == (SIZE, SHA256, CRC)
    assert sorted(body for _, body in script.puts) == sorted([OBJECT[: 5 * MIB], OBJECT[5 * MIB :]])
    for headers, body in script.puts:
        named = {name.lower(): value for name, value in headers.items()}
        assert named["x-amz-checksum-crc64nvme"] == crc64_text(crc64(body))
        assert named["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"


def test_a_busy_server_is_not_sent_the_body(serve: Serve, tmp_path: Path) -> None:
    script = Script(put=lambda number: 503 if number <= 2 else None)
    (tmp_path / "f").write_bytes(OBJECT)
    sent = serve(script).upload_file("f", tmp_path / "f")
    assert sent.sha256 == SHA256
    assert [body for _, body in script.puts if not body] == [b"", b""]
    assert sorted(body for _, body in script.puts if body) == sorted(
        [OBJECT[: 5 * MIB], OBJECT[5 * MIB :]]
    )


def test_a_file_cut_short_while_a_part_is_sent(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(OBJECT)

    def shorten(_: int) -> None:
        with file.open("r+b") as opened:
            opened.truncate(10)

    with pytest.raises(SourceChanged):
        serve(Script(put=shorten)).upload_file("f", file)


def test_a_proxy_of_the_environment_is_used(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script()
    proxy = str(serve(script)._place.endpoint)
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    store = S3Store(bucket="b", endpoint="http://store.example", patience_s=5, part_size=5 * MIB)
    (tmp_path / "f").write_bytes(OBJECT)
    assert store.upload_file("f", tmp_path / "f").sha256 == SHA256
    download(store, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == OBJECT
    store.close()


def test_over_tls_with_a_ca_of_ones_own(serve: Serve, tmp_path: Path) -> None:
    certificate, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    command += f" -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout {key}"
    subprocess.run([*command.split(), "-out", certificate], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    script = Script(put=lambda number: 503 if number == 1 else None)
    store = serve(script, tls=tls, ca_file=str(certificate))
    (tmp_path / "f").write_bytes(OBJECT)
    assert store.upload_file("f", tmp_path / "f").sha256 == SHA256
    download(store, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == OBJECT
    stranger = serve(Script(), tls=tls, patience_s=0.1, transfer_patience_s=0.1)
    with pytest.raises(StoreProblem, match="caBundle"):
        download(stranger, tmp_path / "back")
