"""Google's service where its answers say little: a 404, a list that is forbidden, a cancel."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from rtj_api.reasons import Reason
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.stores.gcs import Gcs
from rtj_sidecar.stores.gcs_upload import Session
from rtj_sidecar.stores.objects import ObjectStore
from rtj_sidecar.stores.open import open_store


class Server(ThreadingHTTPServer):
    """No object is there; a list gets `status`."""

    status = 200
    lists: list[dict[str, list[str]]]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        at = urlsplit(self.path)
        is_list = at.path.endswith("/o")
        if is_list:
            server.lists.append(parse_qs(at.query))
        body = b"{}"
        self.send_response(server.status if is_list else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    made = Server(("127.0.0.1", 0), Handler)
    made.lists = []
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def store_at(server: Server) -> Any:
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    return open_store("gs://bucket/team/runs", endpoint=endpoint, patience_s=0.2)


def test_what_is_missing_is_asked_below_the_own_prefix_and_for_one_key(server: Server) -> None:
    store = store_at(server)
    assert store.head("a") is None
    assert store.head("b") is None
    (asked,) = server.lists
    assert asked["prefix"] == ["team/runs/"]
    assert asked["maxResults"] == ["1"]


def test_a_bucket_that_may_not_be_listed_is_there(server: Server) -> None:
    server.status = 403
    assert store_at(server).head("a") is None
    assert store_at(server).get("a") is None


@pytest.mark.parametrize(
    ("status", "reason"), [(404, Reason.BUCKET_MISSING), (503, Reason.STORE_UNREACHABLE)]
)
def test_any_other_answer_is_told_as_what_it_means(
    server: Server, status: int, reason: Reason
) -> None:
    server.status = status
    with pytest.raises(StoreProblem) as problem:
        store_at(server).head("a")
    assert problem.value.reason == reason


def test_whatever_explaining_raises_is_trouble_that_may_pass(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explain(*_: object, **__: object) -> Exception:
        raise ZeroDivisionError

    monkeypatch.setattr(Gcs, "explain", explain)
    store = store_at(server)
    assert isinstance(store, ObjectStore)
    with pytest.raises(StoreProblem) as problem:
        store.head("a")
    assert problem.value.transient


class Line:
    """The session's HTTP, and the service it belongs to: what was deleted through either."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def delete(self, place: str, **_: object) -> None:
        self.deleted.append(place)


def test_an_object_that_is_visible_is_never_deleted_by_its_uploader() -> None:
    """Another holder may have committed it while this one was cancelled."""
    line: Any = Line()
    session = Session(line, line, "session", key="k", size=1)
    session._generation = "7"
    session.abort()
    assert line.deleted == []
    unfinished = Session(line, line, "session", key="k", size=1)
    unfinished.abort()
    assert line.deleted == ["session"]
