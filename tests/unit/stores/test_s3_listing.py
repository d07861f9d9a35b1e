"""A page of a listing read by us says what botocore says of it, or is left to botocore."""

from __future__ import annotations

from typing import Any

import botocore.handlers
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.parsers import create_parser
from botocore.session import get_session
from rtj_sidecar.stores.s3_listing import attach, contents_of

SPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
ENTRY = (
    "<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
    "<ETag>&#34;ab{n}&#34;</ETag><Size>{n}</Size>{more}</Contents>"
)


def page(
    *entries: str, space: str = SPACE, more: str = "<IsTruncated>false</IsTruncated>"
) -> bytes:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f"<ListBucketResult{space}><Name>b</Name><Prefix/>{more}{''.join(entries)}"
        "</ListBucketResult>"
    ).encode()


def entry(key: str, n: int, more: str = "") -> str:
    return ENTRY.format(key=key, n=n, more=more)


def by_botocore(body: bytes) -> dict[str, object]:
    shape = get_session().get_service_model("s3").operation_model("ListObjectsV2").output_shape
    answer = {"status_code": 200, "headers": {}, "body": body}
    parsed = create_parser("rest-xml").parse(answer, shape)
    parsed.pop("ResponseMetadata")
    return parsed


PAGES = {
    "none": page(),
    "some": page(entry("a/1", 0), entry("a/2", 12)),
    "odd keys": page(entry("a%2Fb+c%25", 1), entry("ä&amp;&lt;b", 2), entry(" ", 3)),
    "classes and owners": page(
        entry("a", 1, "<StorageClass>GLACIER</StorageClass><Owner><ID>Key</ID></Owner>"),
        entry("b", 2, "<StorageClass/><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm>"),
    ),
    "no namespace": page(entry("a", 1), space=""),
    "truncated": page(
        entry("a", 1),
        more="<IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken>"
        "<EncodingType>url</EncodingType><CommonPrefixes><Prefix>x/</Prefix></CommonPrefixes>",
    ),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_botocore_says_of_it(name: str) -> None:
    found = contents_of(PAGES[name])
    assert found is not None
    rest, contents = found
    told = by_botocore(PAGES[name])
    expected = [
        {field: each[field] for field in ("Key", "Size", "ETag", "StorageClass") if field in each}
        for each in told.pop("Contents", [])
    ]
    assert contents == expected
    assert by_botocore(rest) == told, "all but the entries"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello, this is a proxy",
        page(entry("a", 1))[:-20],
        b"<Error><Code>SlowDown</Code></Error>",
        page("<Contents><Size>1</Size></Contents>"),
        page("<Contents><Key>a</Key></Contents>"),
        page("<Contents><Key>a</Key><Size>many</Size></Contents>"),
        page("<Contents><Key>a</Key><Size/></Contents>"),
        page("<Contents><Key>a</Key><Size>-1</Size></Contents>"),
    ],
)
def test_an_odd_page_is_left_to_botocore(body: bytes) -> None:
    assert contents_of(body) is None


class Answered:
    """The body of an answer, as urllib3's."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: object, **__: object) -> list[bytes]:
        return [self._body]


def client_that_hears(body: bytes) -> Any:
    client = get_session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url="http://127.0.0.1:9",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"total_max_attempts": 1}),
    )
    attach(client)
    client.meta.events.register(
        "before-send.s3.*",
        lambda request, **_: AWSResponse(request.url, 200, {}, Answered(body)),
    )
    return client


def test_a_page_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore, which looks into every answer for an error, gets the rest of it."""
    looked: list[int] = []
    look = botocore.handlers._looks_like_special_case_error

    def looking(status: int, body: bytes) -> bool:
        looked.append(len(body))
        return bool(look(status, body))

    monkeypatch.setattr(botocore.handlers, "_looks_like_special_case_error", looking)
    body = page(*(entry(f"a/{n}", n) for n in range(500)))
    answer = client_that_hears(body).list_objects_v2(Bucket="b")
    assert [each["Size"] for each in answer["Contents"]] == list(range(500))
    (length,) = looked
    assert length < len(body) / 50


@pytest.mark.parametrize(
    "body", [b"<Error><Code>SlowDown</Code></Error>", page(entry("a", 1))[:-20]]
)
def test_an_error_in_a_good_answer_is_still_one(body: bytes) -> None:
    with pytest.raises(ClientError) as told:
        client_that_hears(body).list_objects_v2(Bucket="b")
    assert told.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
