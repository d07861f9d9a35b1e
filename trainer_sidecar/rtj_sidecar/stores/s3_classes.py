"""Storage classes of S3: an object moves between them by a copy onto itself, inside the server.

Checksums stay (CRC64NVME of the whole object); the ETag of a large one changes.
"""

from __future__ import annotations

import concurrent.futures
from typing import Any

from rtj_sidecar.stores.answers import Absent
from rtj_sidecar.stores.base import Head, ObjectMissing
from rtj_sidecar.stores.s3_copy import Call, copy_inside

_RESTORED = 'ongoing-request="false"'


def restored(answer: dict[str, Any]) -> bool:
    """Whether a HeadObject says that an archived object can be read for some time."""
    return _RESTORED in str(answer.get("Restore", ""))


def class_of(answer: dict[str, Any]) -> str | None:
    """The class as far as reading goes: the tier that intelligent tiering has moved it to."""
    return answer.get("ArchiveStatus") or answer.get("StorageClass")


def reclass(
    call: Call,
    *,
    bucket: str,
    full_key: str,
    key: str,
    head: Head,
    storage_class: str,
    pool: concurrent.futures.Executor,
) -> None:
    """`call(operation, key, **arguments)`. Raises ObjectMissing, StoreProblem."""
    copy_inside(
        call,
        source={"Bucket": bucket, "Key": full_key},
        key=key,
        head=head,
        pool=pool,
        words={"StorageClass": storage_class},
        # Some servers refuse a copy onto itself that changes nothing but the class.
        only_whole={"MetadataDirective": "REPLACE"},
    )


def ask_back(call: Call, *, key: str, days: int) -> None:
    """Ask the store to make an archived object readable for so many days; hours later it is.
    Raises ObjectMissing, StoreProblem."""
    request = {"Days": days, "GlacierJobParameters": {"Tier": "Standard"}}
    try:
        call("restore_object", key, RestoreRequest=request)
    except Absent as error:
        raise ObjectMissing(key) from error
