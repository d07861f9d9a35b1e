"""The fault proxy passes everything unchanged, and does to a real S3 client what it says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from kit.fault_proxy import Fault, FaultProxy, Mode
from kit.kube import wait_for
from kit.s3 import S3Server, s3_server
from kit.s3_objects import list_keys, read_object

BODY = bytes(range(256)) * 1024


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(upstream=s3.endpoint) as made:
        yield made


def client(s3: S3Server, proxy: FaultProxy) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=proxy.endpoint,
        region_name="us-east-1",
        aws_access_key_id=s3.access_key,
        aws_secret_access_key=s3.secret_key,
        config=Config(
            retries={"total_max_attempts": 1},
            read_timeout=20,
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"},
        ),
    )


def test_passes_every_kind_of_request_unchanged(s3: S3Server, proxy: FaultProxy) -> None:
    there = client(s3, proxy)
    there.put_object(Bucket=s3.bucket, Key="a b/ü", Body=BODY, IfNoneMatch="*")
    assert there.get_object(Bucket=s3.bucket, Key="a b/ü")["Body"].read() == BODY
    part = there.get_object(Bucket=s3.bucket, Key="a b/ü", Range="bytes=10-19")
    assert part["Body"].read() == BODY[10:20]
    assert there.head_object(Bucket=s3.bucket, Key="a b/ü")["ContentLength"] == len(BODY)
    assert [o["Key"] for o in there.list_objects_v2(Bucket=s3.bucket)["Contents"]] == ["a b/ü"]
    with pytest.raises(ClientError, match="PreconditionFailed"):
        there.put_object(Bucket=s3.bucket, Key="a b/ü", Body=b"x", IfNoneMatch="*")
    there.delete_object(Bucket=s3.bucket, Key="a b/ü")
    assert list_keys(s3) == []
    assert {seen.fault for seen in proxy.seen} == {Mode.PASS}


def test_each_fault_hurts_as_named_and_ends_when_healed(s3: S3Server, proxy: FaultProxy) -> None:
    there = client(s3, proxy)
    there.put_object(Bucket=s3.bucket, Key="k", Body=BODY)

    proxy.switch(Fault(Mode.BUSY))
    with pytest.raises(ClientError, match="SlowDown"):
        there.list_objects_v2(Bucket=s3.bucket)
    proxy.switch(Fault(Mode.REFUSE))
    with pytest.raises(BotoCoreError):
        there.get_object(Bucket=s3.bucket, Key="k")
    proxy.switch(Fault(Mode.CUT))
    with pytest.raises((BotoCoreError, OSError)):
        there.get_object(Bucket=s3.bucket, Key="k")["Body"].read()
    with pytest.raises((BotoCoreError, ClientError)):
        there.put_object(Bucket=s3.bucket, Key="cut", Body=BODY)
    proxy.switch(Fault(Mode.CORRUPT))
    got = there.get_object(Bucket=s3.bucket, Key="k")["Body"].read()
    assert sum(a != b for a, b in zip(got, BODY, strict=True)) == 1

    proxy.heal()
    assert there.get_object(Bucket=s3.bucket, Key="k")["Body"].read() == BODY
    assert "cut" not in list_keys(s3)


def test_a_lost_reply_is_done_and_narrowed_to_one_request(s3: S3Server, proxy: FaultProxy) -> None:
    there = client(s3, proxy)
    proxy.switch(Fault(Mode.LOSE_REPLY, only="^PUT /checkpoints/lost", times=1))
    there.put_object(Bucket=s3.bucket, Key="other", Body=b"1")
    with pytest.raises(BotoCoreError):
        there.put_object(Bucket=s3.bucket, Key="lost", Body=b"2")
    assert read_object(s3, key="lost") == b"2"
    there.put_object(Bucket=s3.bucket, Key="lost", Body=b"3")
    assert [seen.status for seen in proxy.hits(Mode.LOSE_REPLY)] == [200]


@pytest.mark.parametrize("drop", [False, True], ids=["goes-on", "dropped"])
def test_a_held_request_reaches_the_server_only_when_let_go(
    s3: S3Server, proxy: FaultProxy, drop: bool
) -> None:
    there, key = client(s3, proxy), f"held-{drop}"
    proxy.switch(Fault(Mode.HOLD, only=f"^PUT /checkpoints/{key}"))
    with ThreadPoolExecutor() as pool:
        put = pool.submit(there.put_object, Bucket=s3.bucket, Key=key, Body=b"1")
        wait_for(lambda: proxy.held, within=60, what="the request waits")
        there.put_object(Bucket=s3.bucket, Key="other", Body=b"2")
        assert key not in list_keys(s3)
        proxy.heal(drop=drop)
        if drop:
            with pytest.raises(BotoCoreError):
                put.result()
        else:
            put.result()
    assert (key in list_keys(s3)) is not drop
    assert proxy.held == []


def test_a_drip_is_slow_and_whole(s3: S3Server, proxy: FaultProxy) -> None:
    there = client(s3, proxy)
    proxy.switch(replace(Fault(Mode.DRIP), bytes_per_second=len(BODY)))
    began = time.monotonic()
    there.put_object(Bucket=s3.bucket, Key="slow", Body=BODY)
    assert time.monotonic() - began > 0.5  # the proxy waits that long by itself
    assert read_object(s3, key="slow") == BODY
