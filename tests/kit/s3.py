"""A real S3 server (SeaweedFS) for tests and `make demo`.

It exists so that what the project says about S3 is tried against a server that really stores
objects, and not against an imitation of one. It must never leave a process behind, never send
anything off this machine, and never hide an error of the server: the log is named in every failure.

What this server was seen to do (SeaweedFS 4.48; `tests/contract/kit/test_s3_server.py` keeps it
true):

| request | answer |
|---|---|
| PutObject, `If-None-Match: *`, key new / there | 200 / 412 PreconditionFailed |
| the same from 16 clients at once | one 200, fifteen 412 |
| PutObject, `If-Match`, ETag current / stale / key absent | 200 / 412 / 412 (AWS: 404) |
| CompleteMultipartUpload, `If-None-Match: *`, key there | 412 |
| DeleteObject, `If-Match` stale | 412, object stays |
| PutObject, UploadPart, wrong CRC64NVME or SHA256 | 400 BadDigest, nothing stored |
| CompleteMultipartUpload, wrong FULL_OBJECT CRC64NVME | 400 BadDigest, upload stays open |
| HeadObject, GetObject, `ChecksumMode=ENABLED` | the checksum given at the upload |
| a bucket that is not there, a wrong secret | 404 NoSuchBucket, 403 SignatureDoesNotMatch |
| `stop`, `start` on the same data | same objects; 3.5 s to start, 1 s to stop |
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from kit import daemon, tools

ACCESS_KEY = "rtj-test-access"
SECRET_KEY = "rtj-test-secret"
READY_WITHIN_S = 60.0


class S3ServerError(RuntimeError):
    """The server could not be started, or ended by itself; the message names its log."""


@dataclass(frozen=True)
class Tenant:
    """Keys that are good for `place` alone: `<bucket>`, or `<bucket>/<prefix>*`."""

    access_key: str
    secret_key: str
    place: str


class S3Server:
    """One SeaweedFS (master, volume, filer, S3 gateway in one process) that speaks S3 on
    `http://<address>:<port>`.

    Only the S3 port listens on `address`; the inner services stay on 127.0.0.1. Started again
    after `stop`, it serves the same objects at the same endpoint.
    """

    def __init__(
        self,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        data: Path | None = None,
        buckets: tuple[str, ...] = ("checkpoints",),
        access_key: str = ACCESS_KEY,
        secret_key: str = SECRET_KEY,
        tenants: tuple[Tenant, ...] = (),
    ) -> None:
        self.tenants = tenants
        self.address = address
        self.buckets = buckets
        self.access_key = access_key
        self.secret_key = secret_key
        self.port = port
        self._owned = tempfile.mkdtemp(prefix="rtj-s3-") if data is None else None
        self.data = Path(self._owned) if self._owned else Path(data or ".").absolute()
        self.log_path = self.data / "weed.log"
        self.inner_ports: list[int] = []
        self._daemon: daemon.Daemon | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}:{self.port}"

    @property
    def bucket(self) -> str:
        """The first bucket."""
        return self.buckets[0]

    @property
    def pid(self) -> int:
        return self._running().pid

    def url(self, prefix: str = "") -> str:
        """`s3://<first bucket>/<prefix>`, as `checkpoint.store.url` wants it."""
        return f"s3://{self.bucket}/{prefix}".rstrip("/")

    def environment(self) -> dict[str, str]:
        """Credentials in the variables that every AWS client reads."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_S3": self.endpoint,
        }

    def client(self, **config: Any) -> Any:
        """A boto3 S3 client for this server; `config` goes to `botocore.config.Config`."""
        merged: dict[str, Any] = {
            "s3": {"addressing_style": "path"},
            "retries": {"max_attempts": 1, "mode": "standard"},
            "connect_timeout": 5,
            "read_timeout": 60,
            "max_pool_connections": 32,
        } | config
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(**merged),
        )

    def start(self) -> S3Server:
        """Start and wait until an object can be written and read in every bucket.

        Raises `S3ServerError` when it ends early or is not ready within a minute.
        """
        if self._daemon is not None:
            raise S3ServerError("the S3 server runs already")
        self.data.mkdir(parents=True, exist_ok=True)
        # A free port may be taken by someone else between looking and binding: then look again.
        # Once started, it keeps its endpoint.
        port = self.port
        for last_try in (False, False, True):
            try:
                self._start_once(port=port)
                return self
            except S3ServerError:
                taken = "address already in use" in self.log_tail()
                self.stop()
                if last_try or not taken:
                    raise
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """End the process and wait for it; the data stays. Does nothing when it is not running."""
        if self._daemon is not None:
            # Its own graceful end never comes while one of its inner streams is open. What it has
            # acknowledged is in the page cache by then and outlives the process.
            self._daemon.stop(grace_s=1)
            self._daemon = None
        # Named by port in /tmp whatever TMPDIR says, and left there when it is killed.
        for service in ("master", "volume", "filer", "s3"):
            for port in self.inner_ports:
                Path(f"/tmp/seaweedfs-{service}-grpc-{port}.sock").unlink(missing_ok=True)

    def poll(self) -> int | None:
        """None while it runs, else its exit code."""
        return self._running().poll()

    def pause(self) -> None:
        """Freeze it: connections are still accepted by the kernel, no request is ever answered."""
        self._running().send(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send(signal.SIGCONT)

    def log_tail(self) -> str:
        """Its last lines."""
        return "" if self._daemon is None else self._daemon.log_tail()

    def __enter__(self) -> S3Server:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if self._owned:
            shutil.rmtree(self._owned, ignore_errors=True)

    def _running(self) -> daemon.Daemon:
        if self._daemon is None:
            raise S3ServerError("the S3 server is not running: call start() first")
        return self._daemon

    def _start_once(self, *, port: int) -> None:
        self.inner_ports = daemon.free_ports(count=7)
        self.port = port or daemon.free_ports(count=1, address=self.address)[0]
        config = self.data / "s3.json"
        config.write_text(json.dumps(_identities(self)))
        config.chmod(0o600)
        command = _command(
            weed=tools.weed(),
            data=self.data,
            config=config,
            address=self.address,
            port=self.port,
            inner=self.inner_ports,
        )
        self._daemon = daemon.start(
            command, log=self.log_path, directory=self.data, environment={"HOME": str(self.data)}
        )
        self._wait_ready(self._daemon)

    def _wait_ready(self, process: daemon.Daemon) -> None:
        client = self.client(connect_timeout=1, read_timeout=5)
        deadline = time.monotonic() + READY_WITHIN_S
        missing = list(self.buckets)
        problem: Exception | None = None
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise S3ServerError(
                    f"weed ended with {process.poll()}; log {self.log_path}:\n{self.log_tail()}"
                )
            try:
                while missing:
                    _prove_writable(client, bucket=missing[0])
                    missing.pop(0)
                return
            except (BotoCoreError, ClientError) as error:
                problem = error
                time.sleep(0.1)
        raise S3ServerError(
            f"weed was not ready within {READY_WITHIN_S:.0f} s ({problem}); log {self.log_path}:\n"
            f"{self.log_tail()}"
        )


@contextlib.contextmanager
def s3_server(**options: Any) -> Iterator[S3Server]:
    """`with s3_server(buckets=("a", "b")) as s3:`; the options are those of `S3Server`."""
    with S3Server(**options) as server:
        yield server


def _prove_writable(client: Any, *, bucket: str) -> None:
    try:
        client.create_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] not in {
            "BucketAlreadyExists",
            "BucketAlreadyOwnedByYou",
        }:
            raise
    client.put_object(Bucket=bucket, Key=".ready", Body=b"ready")
    client.get_object(Bucket=bucket, Key=".ready")["Body"].read()
    client.delete_object(Bucket=bucket, Key=".ready")


def _identities(server: S3Server) -> dict[str, Any]:
    may = ("Read", "Write", "List", "Tagging")
    known = [("test", server.access_key, server.secret_key, ["Admin"])]
    for one in server.tenants:
        actions = [f"{verb}:{one.place}" for verb in may]
        known.append((one.access_key, one.access_key, one.secret_key, actions))
    return {
        "identities": [
            {
                "name": name,
                "credentials": [{"accessKey": key, "secretKey": secret}],
                "actions": actions,
            }
            for name, key, secret, actions in known
        ]
    }


def _command(
    *, weed: Path, data: Path, config: Path, address: str, port: int, inner: list[int]
) -> list[str]:
    volumes = data / "volumes"
    volumes.mkdir(exist_ok=True)
    return [
        str(weed),
        "-logtostderr=true",
        "server",
        f"-dir={volumes}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        # It would report statistics to its makers otherwise.
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=1024",
        "-volume.max=400",
        "-volume.minFreeSpace=200MiB",
        "-volume.preStopSeconds=0",
        f"-master.port={inner[0]}",
        f"-master.port.grpc={inner[1]}",
        f"-volume.port={inner[2]}",
        f"-volume.port.grpc={inner[3]}",
        "-filer",
        f"-filer.port={inner[4]}",
        f"-filer.port.grpc={inner[5]}",
        f"-filer.localSocket={data}/filer.sock",
        "-s3",
        f"-s3.ip.bind={address}",
        f"-s3.port={port}",
        f"-s3.port.grpc={inner[6]}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.localSocket={data}/s3.sock",
        f"-s3.config={config}",
        # A missing bucket must be an error, as on S3.
        "-s3.autoCreateBucket=false",
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kit.s3", description="Run an S3 server until SIGTERM.")
    parser.add_argument("--address", default="127.0.0.1", help="where S3 listens")
    parser.add_argument("--port", type=int, default=8333)
    parser.add_argument("--data", type=Path, default=None, help="kept; default: a temporary one")
    parser.add_argument("--bucket", action="append", default=[], help="may be given several times")
    parser.add_argument("--access-key", default=ACCESS_KEY)
    parser.add_argument("--secret-key", default=SECRET_KEY)
    options = parser.parse_args(arguments)
    asked_to_end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked_to_end.set())
    server = S3Server(
        address=options.address,
        port=options.port,
        data=options.data,
        buckets=tuple(options.bucket) or ("checkpoints",),
        access_key=options.access_key,
        secret_key=options.secret_key,
    )
    with server:
        print(
            json.dumps({"endpoint": server.endpoint, "buckets": server.buckets, "pid": server.pid}),
            flush=True,
        )
        while not asked_to_end.wait(0.5):
            if (code := server.poll()) is not None:
                print(f"weed ended with {code}:\n{server.log_tail()}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
