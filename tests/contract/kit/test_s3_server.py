"""The S3 server the tests rely on does what `kit.s3` says of it, and leaves nothing behind."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from awscrt import checksums
from botocore.exceptions import ClientError, ReadTimeoutError
from kit.s3 import S3Server, s3_server
from kit.s3_objects import flip_byte, list_keys, read_object, remove_object

WRONG_CRC = base64.b64encode(bytes(8)).decode()
PART = 5 << 20


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def refusal(call: Callable[[], Any]) -> tuple[int, str]:
    with pytest.raises(ClientError) as raised:
        call()
    answer = raised.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


def crc64nvme(body: bytes) -> str:
    return base64.b64encode(checksums.crc64nvme(body).to_bytes(8, "big")).decode()


def test_create_if_absent(s3: S3Server) -> None:
    client = s3.client()
    client.put_object(Bucket=s3.bucket, Key="new", Body=b"1", IfNoneMatch="*")
    assert refusal(
        lambda: client.put_object(Bucket=s3.bucket, Key="new", Body=b"2", IfNoneMatch="*")
    ) == (412, "PreconditionFailed")
    assert read_object(s3, key="new") == b"1"


def test_of_sixteen_creators_at_once_one_wins(s3: S3Server) -> None:
    def create(who: int) -> str:
        try:
            s3.client().put_object(Bucket=s3.bucket, Key="race", Body=b"%d" % who, IfNoneMatch="*")
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return f"won {who}"

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(create, range(16)))
    winners = [answer for answer in answers if answer.startswith("won")]
    assert len(winners) == 1
    assert answers.count("PreconditionFailed") == 15
    assert winners == [f"won {read_object(s3, key='race').decode()}"]


def test_replace_only_what_was_read(s3: S3Server) -> None:
    client = s3.client()
    first = client.put_object(Bucket=s3.bucket, Key="index", Body=b"1")["ETag"]
    client.put_object(Bucket=s3.bucket, Key="index", Body=b"2", IfMatch=first)

    def put(key: str) -> Callable[[], Any]:
        return lambda: client.put_object(Bucket=s3.bucket, Key=key, Body=b"3", IfMatch=first)

    assert refusal(put("index")) == (412, "PreconditionFailed")
    assert refusal(put("absent"))[0] in {404, 412}
    assert read_object(s3, key="index") == b"2"


def test_delete_only_what_was_read(s3: S3Server) -> None:
    client = s3.client()
    client.put_object(Bucket=s3.bucket, Key="kept", Body=b"1")
    assert refusal(
        lambda: client.delete_object(Bucket=s3.bucket, Key="kept", IfMatch='"stale"')
    ) == (412, "PreconditionFailed")
    assert read_object(s3, key="kept") == b"1"


def test_checksums_are_verified_and_returned(s3: S3Server) -> None:
    client, body = s3.client(), b"weights" * 1000
    client.put_object(Bucket=s3.bucket, Key="sum", Body=body, ChecksumCRC64NVME=crc64nvme(body))
    for read in (client.head_object, client.get_object):
        seen = read(Bucket=s3.bucket, Key="sum", ChecksumMode="ENABLED")
        assert seen["ChecksumCRC64NVME"] == crc64nvme(body)
    assert refusal(
        lambda: client.put_object(
            Bucket=s3.bucket, Key="torn", Body=body, ChecksumCRC64NVME=WRONG_CRC
        )
    ) == (400, "BadDigest")
    assert list_keys(s3, prefix="torn") == []


def test_multipart_is_verified_whole_and_created_if_absent(s3: S3Server) -> None:
    client, key = s3.client(), "big"
    bodies = [bytes([number]) * PART for number in (1, 2)]
    upload = client.create_multipart_upload(
        Bucket=s3.bucket, Key=key, ChecksumAlgorithm="CRC64NVME", ChecksumType="FULL_OBJECT"
    )["UploadId"]
    at: dict[str, Any] = {"Bucket": s3.bucket, "Key": key, "UploadId": upload}
    assert refusal(
        lambda: client.upload_part(**at, PartNumber=1, Body=bodies[0], ChecksumCRC64NVME=WRONG_CRC)
    ) == (400, "BadDigest")
    parts = []
    for number, body in enumerate(bodies, 1):
        answer = client.upload_part(
            **at, PartNumber=number, Body=body, ChecksumCRC64NVME=crc64nvme(body)
        )
        parts.append({"PartNumber": number} | {k: answer[k] for k in ("ETag", "ChecksumCRC64NVME")})
    done = at | {"MultipartUpload": {"Parts": parts}, "ChecksumType": "FULL_OBJECT"}
    assert refusal(
        lambda: client.complete_multipart_upload(**done, ChecksumCRC64NVME=WRONG_CRC)
    ) == (400, "BadDigest")
    whole = crc64nvme(b"".join(bodies))
    client.complete_multipart_upload(**done, ChecksumCRC64NVME=whole, IfNoneMatch="*")
    head = client.head_object(Bucket=s3.bucket, Key=key, ChecksumMode="ENABLED")
    assert (head["ChecksumCRC64NVME"], head["ContentLength"]) == (whole, 2 * PART)

    again = client.create_multipart_upload(Bucket=s3.bucket, Key=key)["UploadId"]
    at = {"Bucket": s3.bucket, "Key": key, "UploadId": again}
    tag = client.upload_part(**at, PartNumber=1, Body=b"x")["ETag"]
    assert refusal(
        lambda: client.complete_multipart_upload(
            **at, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]}, IfNoneMatch="*"
        )
    ) == (412, "PreconditionFailed")


def test_what_a_user_gets_wrong(s3: S3Server) -> None:
    client = s3.client()
    assert refusal(lambda: client.put_object(Bucket="nowhere", Key="a", Body=b"")) == (
        404,
        "NoSuchBucket",
    )
    stranger = S3Server(port=s3.port, data=s3.data, secret_key="wrong").client()
    assert refusal(lambda: stranger.list_objects_v2(Bucket=s3.bucket)) == (
        403,
        "SignatureDoesNotMatch",
    )


def test_flip_byte_changes_one_byte_and_remove_object_removes(s3: S3Server) -> None:
    body = bytes(range(100))
    s3.client().put_object(Bucket=s3.bucket, Key="victim", Body=body)
    at = flip_byte(s3, key="victim")
    seen = read_object(s3, key="victim")
    assert [i for i in range(100) if seen[i] != body[i]] == [at]
    remove_object(s3, key="victim")
    assert list_keys(s3, prefix="victim") == []
    with pytest.raises(KeyError):
        remove_object(s3, key="victim")


def test_objects_outlive_a_stop_and_a_pause_answers_nobody(tmp_path: Path) -> None:
    with s3_server(data=tmp_path, buckets=("one", "two")) as server:
        server.client().put_object(Bucket="two", Key="a", Body=b"1")
        endpoint, pid = server.endpoint, server.pid
        server.stop()
        assert not Path(f"/proc/{pid}").exists()
        server.start()
        assert server.endpoint == endpoint
        assert read_object(server, key="a", bucket="two") == b"1"
        server.pause()
        with pytest.raises(ReadTimeoutError):
            server.client(read_timeout=1, retries={"max_attempts": 0}).list_buckets()
        server.resume()
        assert list_keys(server, bucket="two") == ["a"]
    left = [path.name for path in Path("/tmp").glob("seaweedfs-*.sock")]
    assert [name for name in left for port in server.inner_ports if f"-{port}." in name] == []


def test_command_line_runs_until_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kit.s3", "--port", "0", "--data", str(tmp_path)]
    kit = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [*command, "--bucket", "demo"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": kit},
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["buckets"] == ["demo"]
        assert Path(f"/proc/{ready['pid']}").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert not Path(f"/proc/{ready['pid']}").exists()
    finally:
        process.kill()
        process.wait()
