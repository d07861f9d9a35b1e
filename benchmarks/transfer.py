"""Upload and restore of one large checkpoint: ours against boto3's defaults, on a real S3 server.

Prints JSON: GB/s, CPU seconds per GB and peak RSS of the client, each the median of the rounds,
and the ratios; against SeaweedFS, and against a sink that discards what it gets and costs next to
nothing. Both clients run in the same conditions: a process of their own, one server, the file in
the page cache, in turns. Ours also hashes (SHA-256, CRC64NVME), verifies and fsyncs; the defaults
do neither. The real server shares the machine, so its own cost (`server_cpu_s_per_gb`) bounds the
GB/s there; the sink shows what the clients can do. Asserts nothing about time.

    python benchmarks/transfer.py --gigabytes 2 --rounds 3
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
for part in ("crds", "trainer_sidecar", "tests"):
    sys.path.insert(0, str(ROOT / part))

KEY = "bench/checkpoint.pt"
ACCESS_KEY, SECRET = "rtj-test-access", "rtj-test-secret"  # of kit.s3
GB = 1e9


def ours(what: str, *, bucket: str, endpoint: str, file: Path, back: Path, sha256: str) -> None:
    from rtj_sidecar.stores.open import open_store

    store = open_store(f"s3://{bucket}", endpoint=endpoint)
    if what == "upload":
        done = store.upload_file(KEY, file)
        head = store.head(KEY)
        # A sink keeps no checksum.
        if done.sha256 != sha256 or head is None or head.crc64nvme not in (done.crc64nvme, None):
            raise SystemExit("the upload is not what was sent")
    else:
        store.download(KEY, back, size=file.stat().st_size, sha256=sha256)
    store.close()


def boto3_defaults(what: str, *, bucket: str, endpoint: str, file: Path, back: Path) -> None:
    import boto3

    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    if what == "upload":
        client.upload_file(str(file), bucket, KEY)
    else:
        client.download_file(bucket, KEY, str(back))


def child(options: argparse.Namespace) -> int:
    """One transfer in this process; prints what it cost."""
    if options.child == "sink":
        return sink(options.file)
    where: dict[str, Any] = {
        "bucket": options.bucket,
        "endpoint": options.endpoint,
        "file": options.file,
        "back": options.back,
    }
    # Start-up and imports are no part of a transfer.
    import boto3  # noqa: F401
    import rtj_sidecar.stores.s3  # noqa: F401

    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    if options.child == "ours":
        ours(options.what, sha256=options.sha256, **where)
    else:
        boto3_defaults(options.what, **where)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": seconds, "cpu_s": cpu, "rss_mib": peak_rss_mib()}))
    return 0


def peak_rss_mib() -> float:
    """Of this program alone: `ru_maxrss` would tell the parent's, from before the exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def sink(file: Path) -> int:
    """The least that looks like S3: takes bytes and forgets them, serves ranges of `file`."""
    size, source = file.stat().st_size, os.open(file, os.O_RDONLY)

    def serve(connection: socket.socket) -> None:
        reader, room = connection.makefile("rb"), memoryview(bytearray(1 << 20))
        while first := reader.readline():
            method, target, _ = first.split()
            headers: dict[bytes, bytes] = {}
            while line := reader.readline().strip():
                name, _, value = line.partition(b":")
                headers[name.lower()] = value.strip()
            if b"expect" in headers:
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            left = int(headers.get(b"content-length", 0))
            while left:
                left -= reader.readinto(room[: min(left, len(room))])
            if method == b"GET" and b"uploads" in target:
                answer(connection, b"<ListMultipartUploadsResult/>")
            elif method == b"GET":
                bounds = re.fullmatch(rb"bytes=(\d+)-(\d*)", headers.get(b"range", b"bytes=0-"))
                start, end = int(bounds[1]), int(bounds[2] or size - 1) + 1
                head = f'HTTP/1.1 206 Partial\r\nContent-Length: {end - start}\r\nETag: "x"\r\n'
                head += f"Content-Range: bytes {start}-{end - 1}/{size}\r\n\r\n"
                connection.sendall(head.encode())
                while start < end:
                    start += os.sendfile(connection.fileno(), source, start, end - start)
            elif method == b"HEAD":
                head = f'HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nETag: "x"\r\n\r\n'
                connection.sendall(head.encode())
            elif method == b"POST" and b"uploads" in target:
                name = b"InitiateMultipartUploadResult"
                answer(connection, b"<%s><UploadId>u</UploadId></%s>" % (name, name))
            elif method == b"POST":
                name = b"CompleteMultipartUploadResult"
                answer(connection, b"<%s><ETag>x</ETag></%s>" % (name, name))
            else:
                answer(connection, b"")

    def answer(connection: socket.socket, body: bytes) -> None:
        head = f'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: {len(body)}\r\n\r\n'
        connection.sendall(head.encode() + body)

    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    from kit.s3 import s3_server

    size = int(options.gigabytes * GB)
    result: dict[str, Any] = {"bytes": size, "cores": len(os.sched_getaffinity(0))}
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        file = Path(directory) / "checkpoint.pt"
        sha256 = make(file, size)
        with s3_server(data=Path(directory) / "server") as server:
            result["seaweedfs"] = against(
                options, server.endpoint, server.pid, server.bucket, file, sha256
            )
        command = [sys.executable, __file__, "--child", "sink", "--file", str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sink:
            try:
                assert sink.stdout is not None
                endpoint = f"http://127.0.0.1:{sink.stdout.readline().strip()}"
                result["sink"] = against(options, endpoint, sink.pid, "any", file, sha256)
            finally:
                sink.kill()
    return result


def against(
    options: argparse.Namespace, endpoint: str, pid: int, bucket: str, file: Path, sha256: str
) -> dict[str, Any]:
    rounds: dict[str, list[dict[str, float]]] = {}
    size, back = file.stat().st_size, file.with_name("back")
    environment = os.environ | {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    for number in range(options.rounds):
        who = ["ours", "boto3"] if number % 2 == 0 else ["boto3", "ours"]
        for what, client in [(w, c) for c in who for w in ("upload", "restore")]:
            back.unlink(missing_ok=True)
            command = [sys.executable, __file__, "--child", client, "--what", what]
            command += ["--bucket", bucket, "--endpoint", endpoint]
            command += ["--file", str(file), "--back", str(back), "--sha256", sha256]
            at = cpu_of(pid)
            done = subprocess.run(
                command, env=environment, check=True, capture_output=True, text=True
            )
            found = json.loads(done.stdout)
            found["server_cpu_s"] = cpu_of(pid) - at
            rounds.setdefault(f"{client} {what}", []).append(found)
            print(f"{client} {what}: {found}", file=sys.stderr, flush=True)
            if what == "restore" and back.stat().st_size != size:
                raise SystemExit("the restored file is not whole")
    return summary(rounds, size)


def make(path: Path, size: int) -> str:
    """Random bytes, so that nothing on the way can compress or skip them."""
    digest, block = hashlib.sha256(), os.urandom(1 << 24)
    with path.open("wb") as file:
        left, number = size, 0
        while left > 0:
            piece = number.to_bytes(8, "big") + block[8 : min(left, len(block))]
            piece = piece[: min(left, len(piece))]
            file.write(piece)
            digest.update(piece)
            left, number = left - len(piece), number + 1
    return digest.hexdigest()


def summary(rounds: dict[str, list[dict[str, float]]], size: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, found in rounds.items():
        client, what = name.split()
        result.setdefault(what, {})[client] = {
            "gb_per_s": round(size / GB / statistics.median(f["seconds"] for f in found), 3),
            "cpu_s_per_gb": round(statistics.median(f["cpu_s"] for f in found) * GB / size, 3),
            "rss_mib": round(max(f["rss_mib"] for f in found)),
            "server_cpu_s_per_gb": round(
                statistics.median(f["server_cpu_s"] for f in found) * GB / size, 3
            ),
        }
    for what in ("upload", "restore"):
        mine, theirs = result[what]["ours"], result[what]["boto3"]
        result[what]["ratio"] = {
            "gb_per_s": round(mine["gb_per_s"] / theirs["gb_per_s"], 2),
            "cpu_s_per_gb": round(theirs["cpu_s_per_gb"] / mine["cpu_s_per_gb"], 2),
        }
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None, help="where the bytes lie")
    for name in ("child", "what", "bucket", "endpoint", "sha256"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    for name in ("file", "back"):
        parser.add_argument(f"--{name}", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options)
    print(json.dumps(measure(options), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
