"""What libraries say of a request may hold its credential: it reaches no message and no log."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import requests
from azure.core import exceptions as azure
from google.api_core import exceptions as google
from hdfs import HdfsError
from kit.leaks import leaks
from kit.s3 import S3Server
from kit.stored import problem
from rtj_api.log_lines import JsonLines
from rtj_api.reasons import Reason
from rtj_sidecar.background import Background
from rtj_sidecar.stores.answers import Absent
from rtj_sidecar.stores.base import ObjectMissing
from rtj_sidecar.stores.objects import ObjectStore
from rtj_sidecar.stores.open import open_store
from rtj_sidecar.stores.secrets import keep_requests_out_of_logs

SECRET = "MARK/0123456789abcdef+token=="
TEXT = f"GET /webhdfs/v1/x?delegation={SECRET}&sv=1&sig={SECRET} was refused: Bearer {SECRET}"


class OddError(Exception):
    """No table knows it."""


def chained(kind: type[Exception], *arguments: object) -> Exception:
    made = kind(*arguments)
    made.__cause__ = OddError(TEXT)
    return made


MADE: dict[str, Callable[[], Exception]] = {
    "unknown": lambda: OddError(TEXT),
    "runtime": lambda: RuntimeError(TEXT),
    "value": lambda: ValueError(TEXT),
    "key": lambda: KeyError(TEXT),
    "file": lambda: OSError(5, TEXT),
    "connection": lambda: requests.ConnectionError(TEXT),
    "url": lambda: requests.exceptions.InvalidURL(TEXT),
    "azure": lambda: azure.AzureError(TEXT, error=OddError(TEXT)),
    "azure's answer": lambda: azure.HttpResponseError(TEXT),
    "google's answer": lambda: google.Forbidden(TEXT),
    "hdfs's answer": lambda: HdfsError(TEXT),
    "hdfs's token": lambda: HdfsError(f"InvalidToken {TEXT}", exception="InvalidToken"),
}


@pytest.fixture
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "account")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", f"sv=1&sig={SECRET}")
    monkeypatch.setenv("HADOOP_DELEGATION_TOKEN", SECRET)
    made = open_store(f"{request.param}://place/x", patience_s=0.0, transfer_patience_s=0.0)
    assert isinstance(made, ObjectStore)
    return made


def fails(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Exception]
) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise make()

    for name in ("get", "put", "page", "read"):
        monkeypatch.setattr(store._service, name, refuse)


def logged(error: Exception) -> str:
    """As the sidecar writes an exception."""
    told = (type(error), error, error.__traceback__)
    record = logging.LogRecord("rtj", logging.ERROR, "", 0, "of a store", (), told)
    return JsonLines(component="sidecar").format(record)


@pytest.mark.parametrize("store", ["gs", "az", "hdfs"], indirect=True)
@pytest.mark.parametrize("kind", MADE)
def test_an_error_of_a_library_is_told_without_its_text(
    store: ObjectStore, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(store, monkeypatch, MADE[kind])
    calls: tuple[Callable[[], object], ...] = (
        lambda: store.get("a"),
        lambda: store.put("a", b"x"),
        lambda: list(store.list("a")),
        lambda: store.read("a", start=0, end=1),
    )
    for call in calls:
        found = problem(call)
        assert leaks([("message", found.message.encode())], {"s": SECRET}) == []
        if kind == "unknown":
            assert found.reason is Reason.INTERNAL_ERROR
            assert f"OddError at {Path(__file__).name}:" in found.message
        written = logged(found)
        assert "Traceback" in json.loads(written)["exception"]
        assert leaks([("log", written.encode())], {"s": SECRET}) == []


@pytest.mark.parametrize("store", ["gs", "az", "hdfs"], indirect=True)
def test_what_is_behind_an_answer_stays_out_of_the_log(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(store, monkeypatch, lambda: chained(Absent, "a"))
    with pytest.raises(ObjectMissing) as raised:
        store.read("a", start=0, end=1)
    assert leaks([("log", logged(raised.value).encode())], {"s": SECRET}) == []
    with pytest.raises(ObjectMissing) as raised:  # what the search would have found
        raise ObjectMissing("a") from chained(Absent, "a")
    assert leaks([("log", logged(raised.value).encode())], {"s": SECRET})


@pytest.mark.parametrize("store", ["gs", "az", "hdfs"], indirect=True)
async def test_what_runs_behind_a_directive_reports_no_text(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The report says what the exception says, and the log its traceback."""
    fails(store, monkeypatch, MADE["unknown"])
    told: asyncio.Queue[str] = asyncio.Queue()
    reporter = SimpleNamespace(degrade=lambda *said: told.put_nowait(repr(said)), heal=id)
    site = SimpleNamespace(config=SimpleNamespace(rank=0))
    behind = Background(SimpleNamespace(reporter=reporter, site=site, attempt=1))  # type: ignore[arg-type]
    caplog.handler.setFormatter(JsonLines(component="sidecar"))

    async def work() -> None:
        await asyncio.to_thread(store.get, "a")

    task = behind.start(work)
    said = await asyncio.wait_for(told.get(), 30)
    behind.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "OddError" in said
    assert "Traceback" in caplog.text
    assert leaks([("report", said.encode()), ("log", caplog.text.encode())], {"s": SECRET}) == []


@pytest.mark.parametrize("name", ["AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID"])
def test_a_line_break_in_a_key_of_s3(s3: S3Server, tmp_path: Path, name: str) -> None:
    """http.client repeats the header that it refuses."""
    keys = {"AWS_ACCESS_KEY_ID": s3.access_key, "AWS_SECRET_ACCESS_KEY": s3.secret_key}
    for each, value in (keys | {name: f"{SECRET}\nx"}).items():
        (tmp_path / each).write_text(value)
    store = open_store(
        s3.url(), endpoint=s3.endpoint, region="us-east-1", credentials_dir=tmp_path, patience_s=0.0
    )
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100)
    for call in (lambda: store.get("a"), lambda: store.upload_file("a", file)):
        found = problem(call)
        assert (found.reason, found.transient) == (Reason.CREDENTIALS_REFUSED, False)
        assert "line break" in found.message
        assert leaks([("log", logged(found).encode())], {"s": SECRET}) == []


def test_a_warning_of_urllib3_with_a_query_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    keep_requests_out_of_logs()
    logger = logging.getLogger("urllib3.connectionpool")
    logger.warning("Retrying after connection broken: /webhdfs/v1/x?delegation=%s", SECRET)
    logger.warning("Connection pool is full")
    assert SECRET not in caplog.text
    assert "pool is full" in caplog.text
