"""By which checksum an S3 server is told what it should receive: CRC64NVME, or what it knows.

Servers that came before a checksum refuse its header or, worse, ignore it. So the first write of a
process looks whether CRC64NVME came back in the answer; where it did not, a small object is tried
with each way in turn (one right, read back and compared; one wrong, which must be refused), and the
first that holds is used. Where none does, the MD5 in the ETag is compared, and where that is none,
the object is read back. Must never take bytes for stored that came back different, and never send
a checksum in a trailer: old gateways store those inside the object.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from awscrt import checksums
from rtj_api.reasons import Reason

from rtj_sidecar.stores.answers import BadDigest, Refused
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.stores.local import BLOCK, crc64, crc64_text
from rtj_sidecar.stores.s3_body import Body

CRC64 = "ChecksumCRC64NVME"
_WRITES = ("put_object", "upload_part", "complete_multipart_upload", "create_multipart_upload")
_WITH_BODY = ("put_object", "upload_part")


@dataclass(frozen=True, slots=True)
class Way:
    """`whole`, `part`: the argument that carries the checksum of a PutObject, of an UploadPart."""

    name: str
    whole: str | None = None
    part: str | None = None
    by_etag: bool = False
    by_reading: bool = False


# A composite checksum of parts differs by server, Content-MD5 of one part by none.
WAYS = (
    Way("crc64nvme", CRC64, CRC64),
    Way("crc32c", "ChecksumCRC32C", "ContentMD5"),
    Way("sha256", "ChecksumSHA256", "ContentMD5"),
    Way("md5", "ContentMD5", "ContentMD5"),
    Way("etag", by_etag=True),
    Way("read back", by_reading=True),
)


class Checksums:
    """`send(operation, **arguments)` does one request to the bucket, errors explained, with whole
    keys; `probe_prefix` is where a small object may lie for a moment."""

    def __init__(self, send: Callable[..., Any], *, probe_prefix: str) -> None:
        self._send, self._probe_prefix = send, probe_prefix
        self._way = WAYS[0]
        self._settled = False
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._way.name

    def do(self, operation: str, call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """`call(**arguments)`, worded for this server. Raises BadDigest, StoreProblem, …"""
        if operation not in _WRITES:
            return call(**arguments)
        way = self._way
        try:
            answer = call(**_worded(operation, arguments, way))
        except Refused:
            if self._settled:
                raise StoreProblem(
                    Reason.STORE_UNSUPPORTED,
                    f"{operation}: the store refused it: check checkpoint.store",
                ) from None
            return self._again(operation, call, arguments)
        if way is WAYS[0] and not self._settled and operation in _WITH_BODY:
            if answer.get(CRC64) == arguments[CRC64]:
                self._settled = True
                return answer
            # Stored, and nobody looked: once more, so that somebody does.
            return self._again(operation, call, arguments)
        self._accept(operation, arguments, answer, way)
        return answer

    def _again(self, operation: str, call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        with self._lock:
            if not self._settled:
                self._way = self._find()
                self._settled = True
        return self.do(operation, call, arguments)

    def _accept(
        self, operation: str, arguments: dict[str, Any], answer: dict[str, Any], way: Way
    ) -> None:
        same = True
        if way.by_etag and operation in _WITH_BODY:
            same = _is_etag(answer, arguments["Body"])
        elif way.by_reading and operation in ("put_object", "complete_multipart_upload"):
            same = self._crc_of(arguments["Key"]) == arguments[CRC64]
        if not same:
            raise BadDigest(operation)

    def _crc_of(self, key: str) -> str:
        body, crc = self._send("get_object", Key=key)["Body"], 0
        try:
            while data := body.read(BLOCK):
                crc = crc64(data, crc)
        finally:
            body.close()
        return crc64_text(crc)

    def _find(self) -> Way:
        """Raises StoreProblem where bytes come back different whatever is asked."""
        damaged = False
        for way in WAYS:
            key = f"{self._probe_prefix}.rtj-probe-{uuid.uuid4().hex}"
            data = f"probe of {way.name} {key}".encode()
            arguments = {"Key": key, "Body": data, CRC64: crc64_text(crc64(data))}
            try:
                answer = self._send("put_object", **_worded("put_object", arguments, way))
                if self._crc_of(key) != arguments[CRC64]:
                    damaged = True
                elif (
                    way.by_reading
                    or (way.by_etag and _is_etag(answer, data))
                    or (way.whole is not None and self._refuses_a_wrong_one(key, way))
                ):
                    return way
            except (Refused, BadDigest):
                continue
            finally:
                self._send("delete_object", Key=key)
        raise StoreProblem(
            Reason.STORE_UNSUPPORTED,
            "the store gave back other bytes than were put: do not use it; check for a proxy or "
            "gateway that changes objects, or stores checksum trailers inside them"
            if damaged
            else "the store takes no write with a checksum that is known here, nor without one",
        )

    def _refuses_a_wrong_one(self, key: str, way: Way) -> bool:
        told = {"Key": key, "Body": b"what was told", CRC64: crc64_text(crc64(b"what was told"))}
        wrong = _worded("put_object", told, way) | {"Body": b"what was sent"}
        try:
            self._send("put_object", **wrong)
        except (BadDigest, Refused):
            return True
        except StoreProblem as problem:
            if problem.transient or problem.reason != Reason.STORE_UNSUPPORTED:
                raise
            return True
        return False


def _worded(operation: str, arguments: dict[str, Any], way: Way) -> dict[str, Any]:
    """The arguments with the way's checksum in place of the CRC64NVME."""
    if way is WAYS[0]:
        return arguments
    plain = {
        name: value
        for name, value in arguments.items()
        if name not in (CRC64, "ChecksumAlgorithm", "ChecksumType")
    }
    if operation == "complete_multipart_upload":
        parts = plain["MultipartUpload"]["Parts"]
        kept = [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in parts]
        plain["MultipartUpload"] = {"Parts": kept}
    carries = {"put_object": way.whole, "upload_part": way.part}.get(operation)
    if carries is not None:
        plain[carries] = base64.b64encode(_hash(plain["Body"], carries)).decode()
    return plain


def _is_etag(answer: dict[str, Any], body: bytes | Body) -> bool:
    return answer["ETag"].strip('"').lower() == _hash(body, "ContentMD5").hex()


def _hash(body: bytes | Body, kind: str) -> bytes:
    """Of a whole body, which is at its beginning again afterwards."""
    if kind == "ChecksumCRC32C":
        crc = 0
        for data in _blocks(body):
            crc = checksums.crc32c(data, crc)
        return crc.to_bytes(4, "big")
    digest = hashlib.sha256() if kind == "ChecksumSHA256" else hashlib.md5(usedforsecurity=False)
    for data in _blocks(body):
        digest.update(data)
    return digest.digest()


def _blocks(body: bytes | Body) -> Any:
    if not isinstance(body, Body):
        yield body
        return
    body.seek(0)
    while data := body.read(BLOCK):
        yield data
    body.seek(0)
