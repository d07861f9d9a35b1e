"""A page of a listing read by us says what botocore says of it, or is left to botocore."""

from __future__ import annotations

import pytest
from botocore.parsers import create_parser
from botocore.session import get_session
from rtj_sidecar.stores.s3_listing import contents_of

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
