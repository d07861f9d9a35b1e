"""Both drivers keep the promises of `stores.base.Store`; S3 against a real server."""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kit.s3 import S3Server, flip_byte, list_keys
from kit.stored import MIB
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
)
from rtj_sidecar.stores.local import hash_file
from rtj_sidecar.stores.open import open_store
from rtj_sidecar.stores.s3 import S3Store
from rtj_sidecar.stores.s3_body import part_size_of


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


def test_more_than_a_page(credentials: S3Server) -> None:
    client = credentials.client()
    with ThreadPoolExecutor(16) as pool:
        list(
            pool.map(
                lambda i: client.put_object(
                    Bucket=credentials.bucket, Key=f"many/{i:04}", Body=b""
                ),
                range(1100),
            )
        )
    opened = open_store(credentials.url(), endpoint=credentials.endpoint)
    assert len(list(opened.list("many/"))) == 1100


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


def test_leftover_uploads_of_the_same_key_are_aborted(
    credentials: S3Server, tmp_path: Path
) -> None:
    client, bucket = credentials.client(), credentials.bucket
    for key in ("left/f", "left/f.longer"):
        client.create_multipart_upload(Bucket=bucket, Key=key)
    source = tmp_path / "source"
    write(source, 11 * MIB)
    opened = S3Store(bucket=bucket, endpoint=credentials.endpoint, part_size=5 * MIB, patience_s=5)
    opened.upload_file("left/f", source)
    open_uploads = client.list_multipart_uploads(Bucket=bucket, Prefix="left/").get("Uploads", [])
    assert [upload["Key"] for upload in open_uploads] == ["left/f.longer"]
    assert list_keys(credentials, prefix="left/") == ["left/f"]


def test_a_put_again_object_shows_in_its_head(credentials: S3Server, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(source, 1000)
    opened = open_store(credentials.url("flip"), endpoint=credentials.endpoint)
    sent = opened.upload_file("f", source)
    flip_byte(credentials, key="flip/f")
    head = opened.head("f")
    assert head is not None
    assert head.size == sent.size
    assert head.crc64nvme != sent.crc64nvme
    assert head.etag != sent.etag


@pytest.mark.parametrize(
    ("size", "part"),
    [(1, 64), (640 << 30, 73), (5 << 40, 583)],
)
def test_parts_grow_so_that_ten_thousand_suffice(size: int, part: int) -> None:
    assert part_size_of(size) == part * MIB
    assert size / part_size_of(size) <= 10_000
