"""Servers that know other checksums, ignore conditions or change bytes: found out by trying."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.s3 import S3Server
from kit.s3_objects import list_keys, read_object
from kit.s3_quirks import Gateway, Quirk, gateway
from kit.stored import MIB, problem
from rtj_api.reasons import Reason
from rtj_sidecar.stores.base import Conflict, IfAbsent, StoreProblem, Written
from rtj_sidecar.stores.s3 import S3Store

Made = Callable[..., tuple[S3Store, Gateway]]


@pytest.fixture
def behind(credentials: S3Server, tmp_path: Path) -> Iterator[Made]:
    with contextlib.ExitStack() as stack:

        def start(*quirks: Quirk, flips: int = 0) -> tuple[S3Store, Gateway]:
            before = stack.enter_context(gateway(credentials, *quirks, flips=flips))
            store = S3Store(
                bucket=credentials.bucket,
                prefix=tmp_path.name,
                endpoint=before.endpoint,
                part_size=5 * MIB,
                patience_s=5,
                transfer_patience_s=5,
            )
            stack.callback(store.close)
            return store, before

        yield start


WAYS = [
    ((), "crc64nvme"),
    ((Quirk.NO_HEAD_CHECKSUM,), "crc64nvme"),
    ((Quirk.ONLY_CRC32C,), "crc32c"),
    ((Quirk.ONLY_SHA256,), "sha256"),
    ((Quirk.IGNORES_CHECKSUMS,), "md5"),
    ((Quirk.IGNORES_CHECKSUMS, Quirk.IGNORES_MD5), "etag"),
    ((Quirk.IGNORES_CHECKSUMS, Quirk.IGNORES_MD5, Quirk.OPAQUE_ETAGS), "read back"),
    ((Quirk.EQUAL_PARTS,), "crc64nvme"),
    ((Quirk.STORES_TRAILERS,), "crc64nvme"),
]


IDS = ["+".join(quirk.name for quirk in quirks) or "none" for quirks, _ in WAYS]


@pytest.mark.parametrize(("quirks", "way"), WAYS, ids=IDS)
def test_a_way_is_found_and_bytes_are_whole(
    behind: Made, credentials: S3Server, tmp_path: Path, quirks: tuple[Quirk, ...], way: str
) -> None:
    store, _ = behind(*quirks)
    first = store.put("fence", b"1", condition=IfAbsent())
    assert isinstance(first, Written)
    assert store.put("fence", b"2", condition=IfAbsent()) == Conflict()
    assert store._checksums.name == way
    for size in (1 * MIB, 11 * MIB + 5):
        source, back = tmp_path / "source", tmp_path / "back"
        source.write_bytes((hashlib.sha256(b"x").digest() * (size // 32 + 1))[:size])
        sent = store.upload_file("f", source)
        store.download("f", back, size=size, sha256=sent.sha256)
        assert back.read_bytes() == source.read_bytes()
        head = store.head("f")
        assert head is not None
        assert head.etag == sent.etag
    assert list_keys(credentials, prefix=f"{tmp_path.name}/") == [
        f"{tmp_path.name}/f",
        f"{tmp_path.name}/fence",
    ]


@pytest.mark.parametrize("quirks", [quirks for quirks, _ in WAYS[3:7]], ids=IDS[3:7])
def test_bytes_that_arrive_damaged_are_never_taken(
    behind: Made, tmp_path: Path, quirks: tuple[Quirk, ...]
) -> None:
    size = 6 * MIB
    store, before = behind(*quirks, Quirk.FLIPS_A_BIT)
    store.put("fence", b"1")
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes((hashlib.sha256(b"x").digest() * (size // 32 + 1))[:size])
    before.flips = 1
    with contextlib.suppress(StoreProblem):  # tried again by whoever uploads
        store.upload_file("f", source)
    sent = store.upload_file("f", source)
    assert before.flips == 0
    store.download("f", back, size=size, sha256=sent.sha256)
    assert back.read_bytes() == source.read_bytes()


def test_the_gateway_does_store_trailers(credentials: S3Server) -> None:
    """Without this the test above says nothing of them."""
    framed = b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"
    with gateway(credentials, Quirk.STORES_TRAILERS) as before:
        request = urllib.request.Request(
            f"{before.endpoint}/{credentials.bucket}/t",
            data=framed,
            method="PUT",
            headers={"Content-Encoding": "aws-chunked", "X-Amz-Trailer": "x-amz-checksum-crc32"},
        )
        urllib.request.urlopen(request, timeout=30).close()
    assert read_object(credentials, key="t") == framed


@pytest.mark.parametrize(
    ("quirk", "create"),
    [
        (None, True),
        (Quirk.SAYS_304, True),
        (Quirk.IGNORES_CONDITIONS, False),
        (Quirk.IGNORES_UNDER_RACE, False),
        (Quirk.REFUSES_CONDITIONS, False),
    ],
)
def test_conditions_are_believed_only_when_seen(
    behind: Made, quirk: Quirk | None, create: bool
) -> None:
    store, _ = behind(*([quirk] if quirk else []))
    found = store.probe("run/.probe/")
    assert found.conditional_create is create
    assert found.conditional_replace is create
    assert list(store.list("")) == []


def test_a_store_that_changes_every_object_is_refused(behind: Made) -> None:
    store, _ = behind(Quirk.IGNORES_CHECKSUMS, Quirk.IGNORES_MD5, Quirk.FLIPS_A_BIT, flips=1000)
    found = problem(lambda: store.put("a", b"123"))
    assert (found.reason, found.transient) == (Reason.STORE_UNSUPPORTED, False)
    assert "other bytes" in found.message


@pytest.mark.parametrize(
    ("quirk", "reason", "says"),
    [
        (Quirk.SKEWED, Reason.STORE_UNREACHABLE, "s ahead of the store's"),
        (Quirk.WANTS_EXPIRED, Reason.CREDENTIALS_REFUSED, "expired"),
        (Quirk.ELSEWHERE, Reason.INVALID_SPEC, "checkpoint.store.region"),
    ],
)
def test_the_message_names_the_remedy(
    behind: Made, quirk: Quirk, reason: Reason, says: str
) -> None:
    store, _ = behind(quirk)
    store._patience_s = 0.2  # the wait is the driver's own
    found = problem(lambda: store.put("a", b"1"))
    assert found.reason == reason
    assert says in found.message


def test_no_secret_of_s3_is_written_anywhere(
    credentials: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All that the driver and boto3 log at DEBUG, and what exceptions say."""
    told: list[str] = []
    wrong, token = "a-wrong-secret-key", "a-session-token"
    source = tmp_path / "source"
    source.write_bytes(b"z" * (6 * MIB))
    with caplog.at_level(logging.DEBUG), gateway(credentials) as before:
        for secret, session in ((credentials.secret_key, ""), (wrong, ""), (wrong, token)):
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
            monkeypatch.setenv("AWS_SESSION_TOKEN", session)
            for endpoint in (credentials.endpoint, before.endpoint, "http://127.0.0.1:9"):
                store = S3Store(
                    bucket=credentials.bucket,
                    prefix=tmp_path.name,
                    endpoint=endpoint,
                    part_size=5 * MIB,
                    patience_s=0.5,
                    transfer_patience_s=0.5,
                )
                try:
                    store.put("a", b"1", condition=IfAbsent())
                    sent = store.upload_file("f", source)
                    store.download("f", tmp_path / "back", size=sent.size, sha256=sent.sha256)
                except StoreProblem as error:
                    told.append("".join(traceback.format_exception(error)))
                    told.append(f"{error!r} {vars(error)}")
    written = caplog.text + "".join(told) + "".join(str(r.__dict__) for r in caplog.records)
    assert told, "some of it failed, so messages were read too"
    for value in (credentials.secret_key, wrong, token):
        assert value not in written
