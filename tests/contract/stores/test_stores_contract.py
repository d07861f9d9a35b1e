"""Every driver keeps the promises of `stores.base.Store`, each against a real server."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kit.clouds import SERVERS, Cloud
from kit.long import long
from kit.s3 import S3Server, s3_server
from kit.stored import MIB
from rtj_sidecar.stores import s3_copy
from rtj_sidecar.stores.base import (
    Cancelled,
    Conflict,
    ContentMismatch,
    IfAbsent,
    IfMatch,
    ObjectMissing,
    SourceChanged,
    Store,
    StoreProblem,
    Written,
    copier,
)
from rtj_sidecar.stores.local import hash_file
from rtj_sidecar.stores.open import open_store
from rtj_sidecar.stores.s3 import S3Store

CLOUDS = ["az", "gs", long("hdfs")]
DRIVERS = ["file", "s3", *CLOUDS]


@pytest.fixture(scope="module", params=DRIVERS)
def server(request: pytest.FixtureRequest) -> Iterator[S3Server | Cloud | None]:
    if request.param == "file":
        yield None
    elif request.param == "s3":
        with s3_server() as s3:
            yield s3
    else:
        with SERVERS[request.param]() as cloud:
            yield cloud


@pytest.fixture
def store(
    server: S3Server | Cloud | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    if server is None:
        opened: Store = open_store((tmp_path / "a store").as_uri())
    elif isinstance(server, S3Server):
        for name, value in server.environment().items():
            if name != "AWS_ENDPOINT_URL_S3":
                monkeypatch.setenv(name, value)
        # Small parts, so that a test's file has several.
        opened = S3Store(
            bucket=server.bucket,
            prefix=f"t{tmp_path.name}",
            endpoint=server.endpoint,
            part_size=5 * MIB,
            patience_s=5,
            transfer_patience_s=5,
        )
    else:
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        opened = open_store(
            f"{server.url}/t{tmp_path.name}",
            endpoint=server.endpoint,
            credentials_dir=server.credentials_dir(tmp_path / "secret"),
            patience_s=5,
            transfer_patience_s=20,
        )
    yield opened
    opened.close()


def write(path: Path, size: int, *, seed: bytes = b"x") -> bytes:
    body = (hashlib.sha256(seed).digest() * (size // 32 + 1))[:size]
    path.write_bytes(body)
    return body


def test_small_objects_and_conditions(store: Store) -> None:
    assert store.get("a/b") is None
    assert store.head("a/b") is None
    first = store.put("a/b", b"1", condition=IfAbsent())
    assert isinstance(first, Written)
    assert store.put("a/b", b"2", condition=IfAbsent()) == Conflict()
    seen = store.get("a/b")
    assert seen is not None
    assert (seen.data, seen.etag) == (b"1", first.etag)
    second = store.put("a/b", b"22", condition=IfMatch(seen.etag))
    assert isinstance(second, Written)
    assert store.put("a/b", b"3", condition=IfMatch(seen.etag)) == Conflict()
    assert store.put("absent", b"3", condition=IfMatch(seen.etag)) == Conflict()
    head = store.head("a/b")
    assert head is not None
    assert (head.size, head.etag) == (2, second.etag)
    assert isinstance(store.put("a/b", b"4"), Written)
    store.delete("a/b")
    store.delete("a/b")
    assert store.get("a/b") is None


def test_a_lost_reply_is_recognised_by_its_bytes(store: Store) -> None:
    store.put("own", b"nonce 1", condition=IfAbsent())
    assert isinstance(store.put("own", b"nonce 1", condition=IfAbsent()), Written)
    seen = store.get("own")
    assert seen is not None
    store.put("own", b"nonce 2", condition=IfMatch(seen.etag))
    assert isinstance(store.put("own", b"nonce 2", condition=IfMatch(seen.etag)), Written)


def test_of_eight_creators_one_wins(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(
            pool.map(lambda i: store.put("race", b"%d" % i, condition=IfAbsent()), range(8))
        )
    winners = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, Written)]
    seen = store.get("race")
    assert seen is not None
    assert [b"%d" % i for i in winners] == [seen.data]


def test_of_eight_replacers_one_wins(store: Store) -> None:
    first = store.put("swap", b"first")
    assert isinstance(first, Written)
    etag = first.etag
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(
            pool.map(lambda i: store.put("swap", b"%d" % i, condition=IfMatch(etag)), range(8))
        )
    assert sum(isinstance(outcome, Written) for outcome in outcomes) == 1


def test_list_is_by_prefix_and_over_all_pages(store: Store) -> None:
    keys = [f"list/{i}" for i in range(7)] + ["list/deep/er", "listed", "other"]
    for key in keys:
        store.put(key, b"abc")
    assert [found.key for found in store.list("list/")] == sorted(keys[:8])
    assert [found.size for found in store.list("list/deep")] == [3]
    assert list(store.list("nothing/here/")) == []


@pytest.mark.parametrize("size", [0, 1, 4 * MIB + 1, 17 * MIB + 3])
def test_a_file_goes_up_and_comes_down(store: Store, tmp_path: Path, size: int) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    body = write(source, size)
    moved: list[int] = []
    sent = store.upload_file("dir/my file.pt", source, progress=moved.append)
    assert (sent.size, sent.sha256) == (size, hashlib.sha256(body).hexdigest())
    assert sum(moved) == size
    assert hash_file(source) == (size, sent.sha256, sent.crc64nvme)
    head = store.head("dir/my file.pt")
    assert head is not None
    assert (head.size, head.etag) == (size, sent.etag)
    if isinstance(store, S3Store):
        assert head.crc64nvme == sent.crc64nvme
    moved.clear()
    store.download("dir/my file.pt", back, size=size, sha256=sent.sha256, progress=moved.append)
    assert back.read_bytes() == body
    assert sum(moved) == size
    assert store.sha256("dir/my file.pt") == sent.sha256


@pytest.mark.parametrize("size", [100, 40 * MIB])
def test_what_came_back_is_proved(store: Store, tmp_path: Path, size: int) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    write(source, size)
    sent = store.upload_file("f", source)
    body = bytearray(source.read_bytes())
    body[size // 2] ^= 1
    source.write_bytes(body)
    store.upload_file("f", source)
    with pytest.raises(ContentMismatch) as raised:
        store.download("f", back, size=size, sha256=sent.sha256)
    assert raised.value.key == "f"
    assert not back.exists()
    with pytest.raises(ContentMismatch):
        store.download("f", back, size=size + 1, sha256=sent.sha256)
    with pytest.raises(ObjectMissing):
        store.download("absent", back, size=size, sha256=sent.sha256)
    with pytest.raises(ObjectMissing):
        store.sha256("absent")
    assert not back.exists()


@pytest.mark.parametrize("size", [0, 1000, 12 * MIB])
def test_an_object_is_copied_inside_the_store(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    by = copier(store)
    if by is None:
        pytest.skip("this store copies nothing: its files are sent")
    monkeypatch.setattr(s3_copy, "PART", 5 * MIB)
    path = tmp_path / "source"
    body = write(path, size)
    sent = store.upload_file("a/one", path)
    seen = by.copy("a/one", "b/two", etag=sent.etag)
    assert seen == store.head("b/two")
    store.delete("a/one")
    back = tmp_path / "back"
    store.download("b/two", back, size=size, sha256=sent.sha256, crc64nvme=sent.crc64nvme)
    assert back.read_bytes() == body
    assert seen.crc64nvme in (None, sent.crc64nvme)
    with pytest.raises(ObjectMissing):
        by.copy("a/one", "b/three", etag=sent.etag)
    store.put("a/one", b"another")
    with pytest.raises(ObjectMissing):
        by.copy("a/one", "b/three", etag=sent.etag)
    assert store.head("b/three") is None


def test_a_cancelled_upload_leaves_nothing(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(source, 30 * MIB)
    cancel = threading.Event()
    with pytest.raises(Cancelled):
        store.upload_file("f", source, progress=lambda _: cancel.set(), cancel=cancel)
    assert store.head("f") is None
    assert list(store.list("")) == []


def test_a_file_written_meanwhile_is_refused(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(source, 30 * MIB)
    torn: list[int] = []

    def tear(_: int) -> None:
        if not torn:
            torn.append(1)
            with source.open("r+b") as file:
                file.seek(29 * MIB)
                file.write(b"other bytes")
                os.fsync(file.fileno())

    with pytest.raises(SourceChanged):
        store.upload_file("f", source, progress=tear)
    assert store.head("f") is None


def test_a_file_cut_short_meanwhile_is_refused(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(source, 30 * MIB)
    with pytest.raises(SourceChanged):
        store.upload_file("f", source, progress=lambda _: os.truncate(source, 10))
    assert store.head("f") is None


def test_local_errors_are_not_the_stores(store: Store, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store.upload_file("f", tmp_path / "absent")


@pytest.mark.parametrize("key", ["../x", "/x", "a//b", "a/./b", "", "a\0b"])
def test_no_key_leaves_the_store(store: Store, key: str) -> None:
    for call in (
        lambda: store.put(key, b""),
        lambda: store.get(key),
        lambda: store.head(key),
        lambda: store.delete(key),
    ):
        with pytest.raises((ValueError, StoreProblem)):
            call()


def test_probe(store: Store) -> None:
    found = store.probe("run/")
    assert (found.conditional_create, found.conditional_replace) == (True, True)
    assert found.checksum == ("crc64nvme" if isinstance(store, S3Store) else "none")
    assert list(store.list("")) == []
