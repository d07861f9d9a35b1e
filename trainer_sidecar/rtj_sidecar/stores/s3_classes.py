"""Storage classes of S3: an object moves between them by a copy onto itself, inside the server.

Checksums stay (CRC64NVME of the whole object); the ETag of a large one changes. CopyObject takes at
most 5 GiB, so larger ones go by parts. An unfinished copy leaves the object as it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from rtj_sidecar.stores.answers import Absent
from rtj_sidecar.stores.base import ObjectMissing, StoreProblem

ONE_COPY = 5 << 30
_PART = 1 << 30
_CHECKSUM = {"ChecksumAlgorithm": "CRC64NVME"}
_RESTORED = 'ongoing-request="false"'

Call = Callable[..., Any]


def restored(answer: dict[str, Any]) -> bool:
    """Whether a HeadObject says that an archived object can be read for some time."""
    return _RESTORED in str(answer.get("Restore", ""))


def class_of(answer: dict[str, Any]) -> str | None:
    """The class as far as reading goes: the tier that intelligent tiering has moved it to."""
    return answer.get("ArchiveStatus") or answer.get("StorageClass")


def reclass(
    call: Call, *, bucket: str, full_key: str, key: str, size: int, storage_class: str
) -> None:
    """`call(operation, key, **arguments)`. Raises ObjectMissing, StoreProblem."""
    source = {"Bucket": bucket, "Key": full_key}
    try:
        if size <= ONE_COPY:
            # REPLACE: some servers refuse a copy onto itself that changes nothing but the class.
            call(
                "copy_object",
                key,
                CopySource=source,
                StorageClass=storage_class,
                MetadataDirective="REPLACE",
                **_CHECKSUM,
            )
            return
        begun = call(
            "create_multipart_upload",
            key,
            StorageClass=storage_class,
            ChecksumType="FULL_OBJECT",
            **_CHECKSUM,
        )
        upload = begun["UploadId"]
        try:
            _by_parts(call, source, key=key, size=size, upload=upload)
        except BaseException:
            with contextlib.suppress(StoreProblem, Absent):
                call("abort_multipart_upload", key, UploadId=upload)
            raise
    except Absent as error:
        raise ObjectMissing(key) from error


def ask_back(call: Call, *, key: str, days: int) -> None:
    """Ask the store to make an archived object readable for so many days; hours later it is.
    Raises ObjectMissing, StoreProblem."""
    request = {"Days": days, "GlacierJobParameters": {"Tier": "Standard"}}
    try:
        call("restore_object", key, RestoreRequest=request)
    except Absent as error:
        raise ObjectMissing(key) from error


def _by_parts(call: Call, source: dict[str, str], *, key: str, size: int, upload: str) -> None:
    parts = []
    for number, start in enumerate(range(0, size, _PART), start=1):
        done = call(
            "upload_part_copy",
            key,
            UploadId=upload,
            PartNumber=number,
            CopySource=source,
            CopySourceRange=f"bytes={start}-{min(start + _PART, size) - 1}",
        )
        parts.append({"PartNumber": number, "ETag": done["CopyPartResult"]["ETag"]})
    call("complete_multipart_upload", key, UploadId=upload, MultipartUpload={"Parts": parts})
