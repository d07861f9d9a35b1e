"""What a test does to a store behind the clients' backs: read, list, damage, remove.

Must never be used by the code under test.
"""

from __future__ import annotations

from kit.s3 import S3Server


def list_keys(server: S3Server, *, prefix: str = "", bucket: str | None = None) -> list[str]:
    """All keys under `prefix`, sorted."""
    pages = server.client().get_paginator("list_objects_v2")
    found = pages.paginate(Bucket=bucket or server.bucket, Prefix=prefix)
    return sorted(item["Key"] for page in found for item in page.get("Contents", []))


def read_object(server: S3Server, *, key: str, bucket: str | None = None) -> bytes:
    body: bytes = server.client().get_object(Bucket=bucket or server.bucket, Key=key)["Body"].read()
    return body


def flip_byte(
    server: S3Server, *, key: str, offset: int | None = None, bucket: str | None = None
) -> int:
    """Replace the object by one whose byte at `offset` (default: the middle) is inverted.

    Size and key stay; the store itself finds nothing wrong with it, as after corruption before
    the upload. Returns the offset. Raises `ValueError` for an empty object.
    """
    body = bytearray(read_object(server, key=key, bucket=bucket))
    if not body:
        raise ValueError(f"{key} is empty: there is no byte to flip")
    at = len(body) // 2 if offset is None else offset
    body[at] ^= 0xFF
    server.client().put_object(Bucket=bucket or server.bucket, Key=key, Body=bytes(body))
    return at


def remove_object(server: S3Server, *, key: str, bucket: str | None = None) -> None:
    """Delete one object; raises `KeyError` if it was not there (S3 itself would not say)."""
    if key not in list_keys(server, prefix=key, bucket=bucket):
        raise KeyError(key)
    server.client().delete_object(Bucket=bucket or server.bucket, Key=key)
