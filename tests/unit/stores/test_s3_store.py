"""What only S3 does, against a real server."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kit.s3 import S3Server
from kit.s3_objects import flip_byte, list_keys
from kit.stored import MIB
from rtj_sidecar.stores.open import open_store
from rtj_sidecar.stores.s3 import S3Store
from rtj_sidecar.stores.s3_body import part_size_of


def write(path: Path, size: int, *, seed: bytes = b"x") -> bytes:
    body = (hashlib.sha256(seed).digest() * (size // 32 + 1))[:size]
    path.write_bytes(body)
    return body


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
