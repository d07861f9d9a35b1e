"""An upload in parts goes on where a killed process left it, and what nobody goes on with is ended.

The process is really killed, the server is a real one, and the bytes are counted on the wire.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.fault_proxy import Fault, FaultProxy, Mode
from kit.kube import wait_for
from kit.s3 import S3Server, s3_server
from kit.s3_objects import list_keys, read_object
from rtj_sidecar.stores.base import Cancelled, SourceChanged, StoreProblem, Uploaded
from rtj_sidecar.stores.local import crc64, crc64_text
from rtj_sidecar.stores.s3 import S3Store
from rtj_sidecar.stores.s3_unfinished import Proof, StoredPart

MIB = 1 << 20
PART = 5 * MIB
PARTS = 8
SIZE = (PARTS - 1) * PART + 7
KEY = "run/checkpoints/f1-n1-s7/model.pt"
UPLOADER = f"""
import sys
from pathlib import Path
from rtj_sidecar.stores.s3 import S3Store
bucket, endpoint, source = sys.argv[1:]
store = S3Store(bucket=bucket, endpoint=endpoint, part_size={PART}, threads=2)
store.upload_file({KEY!r}, Path(source))
"""


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
    client = s3.client()
    for left in open_uploads(s3):
        client.abort_multipart_upload(Bucket=s3.bucket, Key=left["Key"], UploadId=left["UploadId"])
    for key in list_keys(s3):
        client.delete_object(Bucket=s3.bucket, Key=key)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt"
    block = os.urandom(MIB)
    body = b"".join(number.to_bytes(8, "big") + block[8:] for number in range(SIZE // MIB + 1))
    path.write_bytes(body[:SIZE])
    return path


def opened(s3: S3Server, proxy: FaultProxy, **more: Any) -> S3Store:
    return S3Store(bucket=s3.bucket, endpoint=proxy.endpoint, part_size=PART, threads=2, **more)


def open_uploads(s3: S3Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        s3.client().list_multipart_uploads(Bucket=s3.bucket).get("Uploads", [])
    )
    return found


def sent(proxy: FaultProxy) -> dict[int, int]:
    """Part number -> bytes of it that the server took and acknowledged."""
    result: dict[int, int] = {}
    for seen in list(proxy.seen):
        found = re.search(r"^PUT .*partNumber=(\d+)", seen.request)
        if found and seen.status == 200:
            result[int(found[1])] = result.get(int(found[1]), 0) + seen.sent
    return result


def killed_in_the_middle(s3: S3Server, proxy: FaultProxy, source: Path, *, held: int) -> None:
    """Another process uploads `source` until all parts before `held` are stored, then dies."""
    proxy.switch(Fault(Mode.HOLD, only=rf"partNumber={held}\b"))
    command = [sys.executable, "-c", UPLOADER, s3.bucket, proxy.endpoint, str(source)]
    uploader = subprocess.Popen(command)
    try:
        wait_for(
            lambda: set(range(1, held)) <= set(sent(proxy)) and proxy.held,
            what=f"the parts before {held} are stored and part {held} is on its way",
            within=120,
        )
        assert uploader.poll() is None
    finally:
        uploader.send_signal(signal.SIGKILL)
        uploader.wait()
    proxy.heal(drop=True)
    assert list_keys(s3) == []
    assert len(open_uploads(s3)) == 1


def check(s3: S3Server, source: Path, done: Uploaded) -> None:
    body = source.read_bytes()
    assert (done.size, done.sha256) == (len(body), hashlib.sha256(body).hexdigest())
    assert done.crc64nvme == crc64_text(crc64(body))
    assert read_object(s3, key=KEY) == body
    assert open_uploads(s3) == []


def test_after_a_kill_only_what_is_missing_is_sent(
    s3: S3Server, proxy: FaultProxy, source: Path
) -> None:
    killed_in_the_middle(s3, proxy, source, held=5)
    before = sent(proxy)
    proxy.seen.clear()
    moved: list[int] = []
    done = opened(s3, proxy).upload_file(KEY, source, progress=moved.append)
    check(s3, source, done)
    again = sent(proxy)
    assert set(again) == set(range(1, PARTS + 1)) - set(before), "nothing stored is sent again"
    assert sum(again.values()) == SIZE - sum(before.values())
    assert sum(moved) == SIZE, "what was there counts as done"


def test_a_file_that_is_another_by_now_is_sent_where_it_differs(
    s3: S3Server, proxy: FaultProxy, source: Path
) -> None:
    killed_in_the_middle(s3, proxy, source, held=5)
    with source.open("r+b") as file:
        file.seek(PART + 100)
        file.write(b"other bytes")
    before = sent(proxy)
    proxy.seen.clear()
    check(s3, source, opened(s3, proxy).upload_file(KEY, source))
    assert set(sent(proxy)) == set(range(1, PARTS + 1)) - set(before) | {2}


def test_a_store_that_was_away_too_long_is_gone_on_with(
    s3: S3Server, proxy: FaultProxy, source: Path
) -> None:
    store = opened(s3, proxy, transfer_patience_s=0.5)
    proxy.switch(Fault(Mode.BUSY, only=r"partNumber=6\b"))
    with pytest.raises(StoreProblem) as raised:
        store.upload_file(KEY, source)
    assert raised.value.transient
    before = sent(proxy)
    assert before
    proxy.heal()
    proxy.seen.clear()
    check(s3, source, store.upload_file(KEY, source))
    assert set(sent(proxy)) == set(range(1, PARTS + 1)) - set(before)


def test_a_cancelled_upload_is_gone_on_with(s3: S3Server, proxy: FaultProxy, source: Path) -> None:
    store, cancel = opened(s3, proxy), threading.Event()
    with pytest.raises(Cancelled):
        store.upload_file(KEY, source, progress=lambda _: cancel.set(), cancel=cancel)
    before = sent(proxy)
    proxy.seen.clear()
    check(s3, source, store.upload_file(KEY, source))
    assert sum(sent(proxy).values()) == SIZE - sum(before.values())


def test_what_was_read_of_a_changing_file_is_freed(
    s3: S3Server, proxy: FaultProxy, source: Path
) -> None:
    def tear(_: int) -> None:
        with source.open("r+b") as file:
            file.write(os.urandom(8))

    with pytest.raises(SourceChanged):
        opened(s3, proxy).upload_file(KEY, source, progress=tear)
    assert open_uploads(s3) == []
    assert list_keys(s3) == []


def test_an_upload_begun_otherwise_is_no_trouble(
    s3: S3Server, proxy: FaultProxy, source: Path
) -> None:
    """Other parts' sizes, no checksum: whatever of it cannot be proved is sent."""
    client = s3.client()
    begun = client.create_multipart_upload(Bucket=s3.bucket, Key=KEY)["UploadId"]
    body = source.read_bytes()
    for number, part in ((1, body[:PART]), (2, body[PART : PART + 6 * MIB]), (12, body[:PART])):
        client.upload_part(Bucket=s3.bucket, Key=KEY, UploadId=begun, PartNumber=number, Body=part)
    check(s3, source, opened(s3, proxy).upload_file(KEY, source))
    assert 2 in sent(proxy)


def test_orphans_end_and_nothing_else(s3: S3Server, proxy: FaultProxy) -> None:
    client = s3.client()
    keys = ["run/a", "run/b", "run/bb", "runs/a", "other"]
    for key in keys:
        client.create_multipart_upload(Bucket=s3.bucket, Key=key)
    store = S3Store(bucket=s3.bucket, prefix="run", endpoint=proxy.endpoint)
    asked: list[str] = []

    def is_over(key: str) -> bool:
        asked.append(key)
        return key == "b"

    assert store.end_uploads("", is_over=is_over) == 1
    assert sorted(asked) == ["a", "b", "bb"]
    left = sorted(each["Key"] for each in open_uploads(s3))
    assert left == ["other", "run/a", "run/bb", "runs/a"]


BODY = b"0123456789" * 100
CRC = crc64(BODY)


@pytest.mark.parametrize(
    ("stored", "holds"),
    [
        (StoredPart(1000, '"x"', crc64_text(CRC)), True),
        (StoredPart(1000, f'"{hashlib.md5(BODY).hexdigest()}"'), True),
        (StoredPart(1000, hashlib.md5(BODY).hexdigest()), True),
        (StoredPart(1000, f'"{hashlib.md5(BODY).hexdigest()}"', crc64_text(CRC ^ 1)), False),
        (StoredPart(999, '"x"', crc64_text(CRC)), False),
        (StoredPart(1000, f'"{"0" * 32}"'), False),
        (StoredPart(1000, '"an-opaque-etag"'), False),
        (None, False),
    ],
    ids=["crc", "md5", "bare-md5", "other-crc", "other-size", "other-md5", "opaque", "none"],
)
def test_a_stored_part_is_taken_only_when_proved(stored: StoredPart | None, holds: bool) -> None:
    proof = Proof(stored, size=1000)
    for at in range(0, 1000, 64):
        proof.show(memoryview(BODY[at : at + 64]))
    found: Callable[[int], StoredPart | None] = proof.holds
    assert (found(CRC) is not None) is holds
