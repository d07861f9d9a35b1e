"""Storage classes on a real S3 server: moved inside it, by parts where large, checksums kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.s3 import S3Server, s3_server
from rtj_api.reasons import Reason
from rtj_sidecar.stores import s3_classes, s3_copy
from rtj_sidecar.stores.base import Head, ObjectMissing, StoreProblem
from rtj_sidecar.stores.s3 import S3Store

MIB = 1 << 20


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def store(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    opened = S3Store(bucket=s3.bucket, prefix="classes", endpoint=s3.endpoint, patience_s=5)
    yield opened
    opened.close()


@pytest.mark.parametrize("size", [0, 1000, 12 * MIB])
def test_an_object_changes_its_class_and_nothing_else(
    store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(s3_copy, "PART", 5 * MIB)
    path = tmp_path / "file"
    path.write_bytes(bytes(range(250)) * (size // 250) + b"x" * (size % 250))
    sent = store.upload_file("a/file", path)
    store.reclass("a/file", storage_class="GLACIER")
    head = store.head("a/file")
    assert head is not None
    assert (head.size, head.crc64nvme, head.storage_class) == (size, sent.crc64nvme, "GLACIER")
    assert head.is_archived
    back = tmp_path / "back"
    store.download("a/file", back, size=size, sha256=sent.sha256, crc64nvme=sent.crc64nvme)
    assert back.read_bytes() == path.read_bytes()
    store.reclass("a/file", storage_class="STANDARD")
    head = store.head("a/file")
    assert head is not None
    assert not head.is_archived


def test_a_range_is_read_and_what_is_absent_is_told(store: S3Store) -> None:
    store.put("b", b"0123456789")
    assert store.read("b", start=2, end=5) == b"234"
    assert store.read("b", start=8, end=10) == b"89"
    assert store.read("b", start=3, end=3) == b""
    with pytest.raises(ObjectMissing):
        store.read("absent", start=0, end=1)
    with pytest.raises(ObjectMissing):
        store.reclass("absent", storage_class="GLACIER")


def test_a_server_that_cannot_restore_says_so(store: S3Store) -> None:
    store.put("c", b"1")
    with pytest.raises(StoreProblem):
        store.ask_back("c", days=1)


@pytest.mark.parametrize(
    ("answer", "class_", "archived"),
    [
        ({}, None, False),
        ({"StorageClass": "STANDARD_IA"}, "STANDARD_IA", False),
        ({"StorageClass": "GLACIER_IR"}, "GLACIER_IR", False),
        ({"StorageClass": "GLACIER"}, "GLACIER", True),
        ({"StorageClass": "GLACIER", "Restore": 'ongoing-request="true"'}, "GLACIER", True),
        (
            {
                "StorageClass": "DEEP_ARCHIVE",
                "Restore": 'ongoing-request="false", expiry-date="Fri, 21 Dec 2012 00:00:00 GMT"',
            },
            "DEEP_ARCHIVE",
            False,
        ),
        (
            {"StorageClass": "INTELLIGENT_TIERING", "ArchiveStatus": "ARCHIVE_ACCESS"},
            "ARCHIVE_ACCESS",
            True,
        ),
    ],
)
def test_what_headers_say_of_an_archive(
    answer: dict[str, str], class_: str | None, archived: bool
) -> None:
    head = Head(
        size=1,
        etag="e",
        storage_class=s3_classes.class_of(answer),
        restored=s3_classes.restored(answer),
    )
    assert (head.storage_class, head.is_archived) == (class_, archived)


def test_an_archived_object_is_no_matter_of_credentials() -> None:
    from botocore.exceptions import ClientError
    from rtj_sidecar.stores.s3_errors import Place, explain

    error = ClientError(
        {
            "Error": {"Code": "InvalidObjectState", "Message": "m"},
            "ResponseMetadata": {"HTTPStatusCode": 403},
        },
        "GetObject",
    )
    place = Place(bucket="b", endpoint=None, region=None)
    told = explain(error, operation="get_object", key="k", place=place)
    assert isinstance(told, StoreProblem)
    assert told.reason == Reason.CHECKPOINT_ARCHIVED
    assert "rtj checkpoints restore" in told.message
