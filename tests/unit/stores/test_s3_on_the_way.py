"""Bytes that change between the store and us convict nobody; bytes that lie wrong in it do."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kit.fault_proxy import Fault, FaultProxy, Mode
from kit.s3 import S3Server, s3_server
from kit.s3_objects import flip_byte
from rtj_api.reasons import Reason
from rtj_sidecar.stores.base import ContentMismatch, StoreProblem
from rtj_sidecar.stores.s3 import S3Store

BODY = bytes(range(256)) * 4096


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    with FaultProxy(upstream=s3.endpoint) as made:
        yield made


@pytest.fixture
def store(s3: S3Server, proxy: FaultProxy, tmp_path: Path) -> Iterator[S3Store]:
    opened = S3Store(
        bucket=s3.bucket, prefix=f"t{tmp_path.name}", endpoint=proxy.endpoint, patience_s=3
    )
    (tmp_path / "sent").write_bytes(BODY)
    opened.upload_file("file", tmp_path / "sent")
    yield opened
    opened.close()


def download(store: S3Store, to: Path) -> None:
    store.download("file", to, size=len(BODY), sha256=hashlib.sha256(BODY).hexdigest())


def test_changed_once_on_the_way_is_read_again(
    store: S3Store, proxy: FaultProxy, tmp_path: Path
) -> None:
    proxy.switch(Fault(Mode.CORRUPT, only="^GET", times=1))
    download(store, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == BODY
    assert len(proxy.hits(Mode.CORRUPT)) == 1


def test_changing_at_every_read_is_the_ways_fault(
    store: S3Store, proxy: FaultProxy, tmp_path: Path
) -> None:
    proxy.switch(Fault(Mode.CORRUPT, only="^GET"))
    with pytest.raises(StoreProblem) as raised:
        download(store, tmp_path / "got")
    assert raised.value.reason is Reason.STORE_UNREACHABLE
    assert raised.value.transient
    assert "on the way" in raised.value.message
    assert not (tmp_path / "got").exists()


def test_wrong_in_the_store_is_the_objects_fault(
    s3: S3Server, store: S3Store, tmp_path: Path
) -> None:
    flip_byte(s3, key=f"t{tmp_path.name}/file")
    with pytest.raises(ContentMismatch):
        download(store, tmp_path / "got")


def test_a_small_record_changed_on_the_way_is_read_again(store: S3Store, proxy: FaultProxy) -> None:
    store.put("record", b'{"sha256": "0123456789"}')
    proxy.switch(Fault(Mode.CORRUPT, only="^GET", times=2))
    found = store.get("record")
    assert found is not None
    assert found.data == b'{"sha256": "0123456789"}'
    assert len(proxy.hits(Mode.CORRUPT)) == 2


def test_an_upload_that_waits_for_the_store_says_so_meanwhile(
    s3: S3Server, proxy: FaultProxy, tmp_path: Path
) -> None:
    told: list[StoreProblem | None] = []
    heard = threading.Event()

    def hear(problem: StoreProblem | None) -> None:
        told.append(problem)
        heard.set()

    store = S3Store(bucket=s3.bucket, prefix="waits", endpoint=proxy.endpoint, on_wait=hear)
    (tmp_path / "sent").write_bytes(BODY)
    proxy.switch(Fault(Mode.BUSY))
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(store.upload_file, "file", tmp_path / "sent")
        assert heard.wait(60)
        assert told[0] is not None
        assert told[0].reason is Reason.STORE_UNREACHABLE
        assert "503" in told[0].message or "SlowDown" in told[0].message
        assert not under_way.done()
        proxy.heal()
        under_way.result(timeout=60)
    assert told[-1] is None
    store.close()
