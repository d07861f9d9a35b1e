"""An object of S3 copied inside the server: in one request, or by parts where it is large.

CopyObject takes at most 5 GiB. Only a copy by parts runs in several requests at once, and cannot
appear late, after its caller has given up: so all that is larger than a part goes that way where a
checksum of the whole proves it. An unfinished copy leaves what is at its key as it was.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable
from typing import Any

from rtj_api.reasons import Reason

from rtj_sidecar.stores.answers import Absent, BadDigest, ConditionFailed, NoSuchUpload
from rtj_sidecar.stores.base import Head, ObjectMissing, StoreProblem
from rtj_sidecar.stores.s3_send import lost

ONE_COPY = 5 << 30
PART = 1 << 30
_CHECKSUM = {"ChecksumAlgorithm": "CRC64NVME"}

Call = Callable[..., Any]
"""`call(operation, key, **arguments)`."""


def copy_inside(
    call: Call,
    *,
    source: dict[str, str],
    key: str,
    head: Head,
    pool: concurrent.futures.Executor,
    condition: dict[str, str] | None = None,
    words: dict[str, str] | None = None,
    only_whole: dict[str, str] | None = None,
) -> None:
    """Copy the object at `source` (Bucket, Key), of which `head` tells, to `key`.

    `words` go to the request that makes the object, `only_whole` to CopyObject alone. Raises
    ObjectMissing where the source is gone or `condition` does not hold, StoreProblem.
    """
    words, condition = words or {}, condition or {}
    try:
        if head.size <= (ONE_COPY if head.crc64nvme is None else PART):
            call(
                "copy_object",
                key,
                CopySource=source,
                **_CHECKSUM,
                **words,
                **condition,
                **(only_whole or {}),
            )
            return
        begun = call(
            "create_multipart_upload", key, ChecksumType="FULL_OBJECT", **_CHECKSUM, **words
        )
        upload = begun["UploadId"]

        def part(number: int) -> dict[str, Any]:
            start = (number - 1) * PART
            done = call(
                "upload_part_copy",
                key,
                UploadId=upload,
                PartNumber=number,
                CopySource=source,
                CopySourceRange=f"bytes={start}-{min(start + PART, head.size) - 1}",
                **condition,
            )
            return {"PartNumber": number, "ETag": done["CopyPartResult"]["ETag"]}

        try:
            parts = _all(pool, part, range(1, -(-head.size // PART) + 1))
            call(
                "complete_multipart_upload", key, UploadId=upload, MultipartUpload={"Parts": parts}
            )
        except BaseException:
            with contextlib.suppress(StoreProblem, Absent, NoSuchUpload):
                call("abort_multipart_upload", key, UploadId=upload)
            raise
    except (Absent, ConditionFailed) as error:
        raise ObjectMissing(source["Key"]) from error
    except (NoSuchUpload, BadDigest) as error:
        raise lost(key) from error


def copy_proved(
    call: Call,
    look: Callable[[str], Head | None],
    *,
    source: dict[str, str],
    keys: tuple[str, str],
    etag: str,
    pool: concurrent.futures.Executor,
) -> Head:
    """See `base.Copies.copy`; `keys`: of the source and of the copy."""
    before = look(keys[0])
    if before is None or before.etag != etag:
        raise ObjectMissing(keys[0])
    copy_inside(
        call,
        source=source,
        key=keys[1],
        head=before,
        pool=pool,
        condition={"CopySourceIfMatch": etag},
        # To copy tags needs rights of its own, and ours have none.
        only_whole={"TaggingDirective": "REPLACE"},
    )
    after = look(keys[1])
    if after is None or not _same_bytes(before, after):
        raise StoreProblem(
            Reason.STORE_UNSUPPORTED,
            f"{keys[1]}: the store does not show that its copy of {keys[0]} has the same bytes",
        )
    return after


def _same_bytes(one: Head, other: Head) -> bool:
    """By the checksum of the whole where both tell it; else by the ETag, which only a copy in one
    request keeps."""
    if one.size != other.size:
        return False
    if one.crc64nvme is not None and other.crc64nvme is not None:
        return one.crc64nvme == other.crc64nvme
    return one.etag == other.etag


def _all(
    pool: concurrent.futures.Executor,
    part: Callable[[int], dict[str, Any]],
    numbers: range,
) -> list[dict[str, Any]]:
    """Nothing of it runs any more when this returns or raises."""
    running = [pool.submit(part, number) for number in numbers]
    try:
        return [future.result() for future in running]
    except BaseException:
        for future in running:
            future.cancel()
        concurrent.futures.wait(running)
        raise
