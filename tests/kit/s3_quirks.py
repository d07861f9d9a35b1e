"""A gateway before the real S3 server that behaves as other servers, old ones and bad proxies do.

Each quirk is one that was seen somewhere (docs/stores.md). Requests are signed anew, so that their
headers may be changed. Must never change anything without a quirk.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import http.server
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import parse_qs, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from kit.s3 import S3Server

_CHECKSUM = "x-amz-checksum-"
_CONDITIONS = ("if-match", "if-none-match")


class Quirk(StrEnum):
    IGNORES_CHECKSUMS = "takes checksum headers for unknown metadata: MinIO before 2025, old Ceph"
    IGNORES_MD5 = "does not look at Content-MD5 either"
    ONLY_SHA256 = "refuses every checksum header but SHA-256: StorageGRID"
    ONLY_CRC32C = "refuses CRC64NVME, knows CRC32C"
    OPAQUE_ETAGS = "ETags are no MD5: encrypted buckets, some gateways"
    NO_HEAD_CHECKSUM = "HEAD and GET do not tell the checksum"
    EQUAL_PARTS = "parts must be of one size but the last: R2"
    IGNORES_CONDITIONS = "ignores If-Match and If-None-Match: GCS's XML API, old servers"
    REFUSES_CONDITIONS = "answers 501 to a write with If-None-Match or If-Match: some gateways"
    IGNORES_UNDER_RACE = "looks, then writes: SeaweedFS 4.16 (#8800)"
    SAYS_304 = "answers 304 to a write whose key is there: MinIO (#19442)"
    STORES_TRAILERS = "stores an aws-chunked body with its framing (boto3#4435)"
    FLIPS_A_BIT = "damages what is put"
    SKEWED = "says that the clock of the client is wrong"
    WANTS_EXPIRED = "says that the token has expired"
    ELSEWHERE = "the bucket is in another region"


@dataclass
class Gateway:
    endpoint: str
    requests: list[str] = field(default_factory=list)
    flips: int = 0  # bodies that are still to be damaged


@contextlib.contextmanager
def gateway(server: S3Server, *quirks: Quirk, flips: int = 0) -> Iterator[Gateway]:
    told = Gateway("", flips=flips)
    lock, parts = threading.Lock(), dict[str, list[int]]()
    credentials = Credentials(server.access_key, server.secret_key)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            return None

        def handle_expect_100(self) -> bool:
            self.send_response_only(http.HTTPStatus.CONTINUE)
            self.end_headers()
            return True

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with lock:
                told.requests.append(f"{self.command} {self.path}")
            writes = self.command in ("PUT", "POST")
            sums = [name for name in headers if name.startswith(_CHECKSUM)]
            algorithms = {name.removeprefix(_CHECKSUM) for name in sums} - {"type", "algorithm"}
            known = {Quirk.ONLY_SHA256: "sha256", Quirk.ONLY_CRC32C: "crc32c"}
            if Quirk.SKEWED in quirks:
                return self._error(403, "RequestTimeTooSkewed")
            if Quirk.WANTS_EXPIRED in quirks:
                return self._error(400, "ExpiredToken")
            if Quirk.ELSEWHERE in quirks:
                return self._error(301, "PermanentRedirect", {"x-amz-bucket-region": "eu-west-1"})
            for quirk, one in known.items():
                asked = headers.get("x-amz-checksum-algorithm", one).lower()
                if quirk in quirks and writes and (algorithms - {one} or asked != one):
                    return self._error(400, "InvalidRequest")
            if Quirk.IGNORES_CHECKSUMS in quirks:
                for name in sums:
                    del headers[name]
            if Quirk.IGNORES_MD5 in quirks:
                headers.pop("content-md5", None)
            if Quirk.REFUSES_CONDITIONS in quirks and writes and set(_CONDITIONS) & set(headers):
                return self._error(501, "NotImplemented")
            if Quirk.IGNORES_CONDITIONS in quirks:
                for name in _CONDITIONS:
                    headers.pop(name, None)
            if Quirk.IGNORES_UNDER_RACE in quirks and writes:
                refused = self._looks(headers)
                if refused:
                    return self._error(412, "PreconditionFailed")
            if Quirk.STORES_TRAILERS in quirks and "aws-chunked" in headers.get(
                "content-encoding", ""
            ):
                headers.pop("content-encoding")
                for name in ("x-amz-trailer", "x-amz-decoded-content-length"):
                    headers.pop(name, None)
            query = parse_qs(urlsplit(self.path).query)
            if "partNumber" in query:
                with lock:
                    parts.setdefault(query["uploadId"][0], []).append(len(body))
            elif self.command == "POST" and "uploadId" in query and Quirk.EQUAL_PARTS in quirks:
                sizes = sorted(parts[query["uploadId"][0]], reverse=True)
                if len(set(sizes[:-1])) > 1:
                    return self._error(400, "InvalidPart")
            with lock:
                if Quirk.FLIPS_A_BIT in quirks and self.command == "PUT" and body and told.flips:
                    told.flips -= 1
                    body = body[:-1] + bytes([body[-1] ^ 1])
            status, answered, payload = self._upstream(headers, body)
            if Quirk.SAYS_304 in quirks and status == 412 and self.command == "PUT":
                return self._reply(304, {}, b"")
            if {Quirk.IGNORES_CHECKSUMS, Quirk.NO_HEAD_CHECKSUM} & set(quirks) and (
                Quirk.IGNORES_CHECKSUMS in quirks or not writes
            ):
                answered = {n: v for n, v in answered.items() if not n.startswith(_CHECKSUM)}
            if Quirk.OPAQUE_ETAGS in quirks and "etag" in answered:
                # The other way round again in `_upstream`.
                answered["etag"] = answered["etag"].replace('"', '"kms-', 1)
            if Quirk.OPAQUE_ETAGS in quirks and self.command == "POST":
                payload = re.sub(rb'<ETag>(&#34;|&quot;|")', rb"\g<0>kms-", payload)
                answered["content-length"] = str(len(payload))
            self._reply(status, answered, payload)
            return None

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

        def _looks(self, headers: dict[str, str]) -> bool:
            """Whether the condition fails now; it is not given to the server."""
            wanted = {name: headers.pop(name) for name in _CONDITIONS if name in headers}
            if not wanted:
                return False
            status, there, _ = self._upstream({}, b"", method="HEAD")
            race.wait()
            if "if-none-match" in wanted:
                return status == 200
            return there.get("etag") != wanted["if-match"]

        def _upstream(
            self, headers: dict[str, str], body: bytes, *, method: str | None = None
        ) -> tuple[int, dict[str, str], bytes]:
            dropped = ("host", "authorization", "x-amz-date", "x-amz-content-sha256", "expect")
            kept = {n: v for n, v in headers.items() if n not in (*dropped, "content-length")}
            kept = {n: v.replace('"kms-', '"') for n, v in kept.items()}
            if "MD5" not in kept and b"kms-" in body:
                body = body.replace(b"kms-", b"")
            method = method or self.command
            kept["x-amz-content-sha256"] = hashlib.sha256(body).hexdigest()
            signed = AWSRequest(method, f"{server.endpoint}{self.path}", headers=kept, data=body)
            S3SigV4Auth(credentials, "s3", "us-east-1").add_auth(signed)
            connection = http.client.HTTPConnection(server.address, server.port, timeout=30)
            try:
                connection.request(method, self.path, body, dict(signed.headers.items()))
                answer = connection.getresponse()
                payload = answer.read()
            finally:
                connection.close()
            return answer.status, {n.lower(): v for n, v in answer.getheaders()}, payload

        def _error(self, status: int, code: str, more: dict[str, str] | None = None) -> None:
            text = f"<Error><Code>{code}</Code><Message>x</Message></Error>".encode()
            self._reply(status, {"date": "Mon, 01 Jan 2001 00:00:00 GMT", **(more or {})}, text)

        def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response_only(status)
            length = headers.pop("content-length", str(len(body)))
            for name in ("transfer-encoding", "connection"):
                headers.pop(name, None)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 304:
                self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    class Meeting:
        """Lets those who look at the same time write at the same time."""

        def wait(self) -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                barrier.wait(timeout=0.3)
            barrier.reset()

    barrier, race = threading.Barrier(2), Meeting()
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http_server.daemon_threads = True
    thread = threading.Thread(target=http_server.serve_forever, daemon=True)
    thread.start()
    told.endpoint = f"http://127.0.0.1:{http_server.server_port}"
    try:
        yield told
    finally:
        http_server.shutdown()
        http_server.server_close()
        thread.join()
