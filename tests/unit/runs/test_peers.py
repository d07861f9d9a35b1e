"""Peers that lie, break off, drip or are gone cost a moment, never a wrong byte."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from rtj_sidecar.runs import peers as peering
from rtj_sidecar.runs.peers import Peers
from rtj_sidecar.runs.records import FileRecord

DATA = bytes(range(256)) * 4096  # 1 MiB
NAME = "f1-n1-s10"

Answer = Callable[[BaseHTTPRequestHandler], None]


def file(path: str = "a.pt") -> FileRecord:
    digest = hashlib.sha256(DATA).hexdigest()
    return FileRecord(path=path, key="k", size=len(DATA), sha256=digest, crc64nvme="")


def head(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(DATA)))
    handler.end_headers()


def honest(handler: BaseHTTPRequestHandler) -> None:
    head(handler)
    handler.wfile.write(DATA)


def lies(handler: BaseHTTPRequestHandler) -> None:
    head(handler)
    handler.wfile.write(DATA[:-1] + b"!")


def breaks_off(handler: BaseHTTPRequestHandler) -> None:
    head(handler)
    handler.wfile.write(DATA[: len(DATA) // 2])
    handler.wfile.flush()
    handler.connection.close()


def talks_on(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(64):
        handler.wfile.write(DATA)


def drips(handler: BaseHTTPRequestHandler) -> None:
    head(handler)
    for at in range(0, len(DATA), 1 << 15):
        handler.wfile.write(DATA[at : at + (1 << 15)])
        time.sleep(0.02)


def lacks(handler: BaseHTTPRequestHandler) -> None:
    handler.send_error(404)


@contextmanager
def peer(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            try:
                answer(self)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("answer", [lies, breaks_off, talks_on])
def test_wrong_bytes_are_thrown_away_and_that_peer_is_not_asked_again(
    tmp_path: Path, answer: Answer
) -> None:
    with peer(answer) as (bad, asked), peer(honest) as (good, _):
        peers = Peers([bad, good])
        counted: list[int] = []
        for name in ("one", "two"):
            target = tmp_path / name
            given = peers.give(NAME, file(), target, has_other=True, progress=counted.append)
            assert given
            assert target.read_bytes() == DATA
        assert len(asked) == 1
        assert peers.shunned == {bad}
        assert sum(counted) == 2 * len(DATA), "what was thrown away is not counted"


def test_a_peer_sends_nobody_elsewhere(tmp_path: Path) -> None:
    with peer(honest) as (inner, asked):

        def redirects(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(302)
            handler.send_header("Location", f"{inner}/latest/meta-data")
            handler.end_headers()

        with peer(redirects) as (bad, _):
            assert not Peers([bad]).give(NAME, file(), tmp_path / "x", has_other=True)
    assert asked == []


def test_nobody_gives_it_and_nothing_is_left(tmp_path: Path) -> None:
    with peer(lies) as (bad, _), peer(lacks) as (without, _):
        gone = "http://127.0.0.1:9"
        peers = Peers([gone, bad, without])
        assert not peers.give(NAME, file(), tmp_path / "x", has_other=True)
        assert not (tmp_path / "x").exists()
        assert peers.shunned == {gone, bad}, "one that has no such file may have others"


def test_a_slow_peer_is_left_where_there_is_another_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peering, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(peering, "SLOW_BYTES_PER_SECOND", 1 << 40)
    with peer(drips) as (slow, _):
        peers = Peers([slow])
        assert not peers.give(NAME, file(), tmp_path / "x", has_other=True)
        assert peers.shunned == {slow}


def test_the_only_one_that_has_it_may_be_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peering, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(peering, "SLOW_BYTES_PER_SECOND", 1 << 40)
    with peer(drips) as (slow, _):
        peers = Peers([slow])
        assert peers.give(NAME, file(), tmp_path / "x", has_other=False)
        assert (tmp_path / "x").read_bytes() == DATA


def test_only_those_are_asked_that_are_said_to_have_it(tmp_path: Path) -> None:
    with peer(honest) as (one, asked_one), peer(honest) as (other, asked_other):
        peers = Peers([one, other], holds={"a.pt": [other]})
        assert peers.give(NAME, file(), tmp_path / "x", has_other=True)
        assert not peers.give(NAME, file("b.pt"), tmp_path / "y", has_other=True)
        assert (len(asked_one), len(asked_other)) == (0, 1)
