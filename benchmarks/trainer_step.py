"""What the sidecar's work costs a trainer that needs its core for itself.

A process steps as fast as it can (hashing a small buffer: pure CPU) in windows of a few seconds, in
turns alone, beside a store client that uploads one large file over and over to a sink that discards
it, beside one that is held to a limit (`maxUploadBytesPerSecond`), and beside one that, with its
server, has the other cores and not the trainer's (as where cores are free; left out on one core).
Prints JSON: steps a second
of wall time against those alone ([median, smallest, largest] of the pairs), and steps a second of
the trainer's own CPU time, which a busy machine does not blur and which shows caches and memory
alone. Asserts nothing about time.

    python benchmarks/trainer_step.py --gigabytes 1 --windows 6
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
for part in ("crds", "trainer_sidecar", "benchmarks"):
    sys.path.insert(0, str(ROOT / part))

KINDS = ("alone", "upload", "limited", "apart")
LIMIT = 100_000_000


def step_for(seconds: float) -> tuple[float, float]:
    """(steps a second of wall time, of CPU time)."""
    block, steps = bytes(64 << 10), 0
    began, cpu = time.monotonic(), time.process_time()
    while time.monotonic() - began < seconds:
        hashlib.blake2b(block).digest()
        steps += 1
    return steps / (time.monotonic() - began), steps / (time.process_time() - cpu)


def uploader(options: argparse.Namespace) -> int:
    """Until it is ended."""
    from rtj_sidecar.stores.pace import Pace
    from rtj_sidecar.stores.s3 import S3Store

    pace = Pace(LIMIT) if options.child == "limited" else None
    store = S3Store(bucket="any", endpoint=options.endpoint, pace=pace)
    print("ready", flush=True)
    while True:
        store.upload_file("checkpoint.pt", options.file)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    from transfer import make

    kinds = KINDS if len(os.sched_getaffinity(0)) > 1 else KINDS[:-1]
    rates: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    environment = os.environ | {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        file = Path(directory) / "checkpoint.pt"
        make(file, int(options.gigabytes * 1e9))
        sink = [sys.executable, str(Path(__file__).with_name("sink.py")), str(file)]
        with subprocess.Popen(sink, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            endpoint = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            try:
                for number in range(options.windows):
                    for kind in kinds if number % 2 == 0 else kinds[::-1]:
                        with places(server.pid, apart=kind == "apart") as cores:
                            rate = window(kind, endpoint, file, environment, options, cores)
                        rates[kind].append(rate)
            finally:
                server.kill()
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load_before": load,
        "load_after": os.getloadavg(),
        **{
            kind: {
                "wall_rate_to_alone": ratios(rates, kind, 0),
                "cpu_rate_to_alone": ratios(rates, kind, 1),
            }
            for kind in kinds
            if kind != "alone"
        },
    }


@contextmanager
def places(server: int, *, apart: bool) -> Iterator[set[int]]:
    """The cores of what stands beside the trainer; `apart`: all but the one that is the trainer's
    then. The server's threads, one a connection, have the cores of the one that starts them."""
    every = os.sched_getaffinity(0)
    others = every - {min(every)} if apart else every
    try:
        os.sched_setaffinity(server, others)
        os.sched_setaffinity(0, {min(every)} if apart else every)
        yield others
    finally:
        os.sched_setaffinity(0, every)


def window(
    kind: str,
    endpoint: str,
    file: Path,
    environment: dict[str, str],
    options: argparse.Namespace,
    cores: set[int],
) -> tuple[float, float]:
    if kind == "alone":
        return step_for(options.seconds)
    command = [sys.executable, __file__, "--child", kind, "--endpoint", endpoint]
    command += ["--file", str(file)]
    beside = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    os.sched_setaffinity(beside.pid, cores)  # before it has threads
    try:
        assert beside.stdout is not None
        beside.stdout.readline()
        return step_for(options.seconds)
    finally:
        beside.kill()
        beside.wait()


def ratios(rates: dict[str, list[tuple[float, float]]], kind: str, of: int) -> list[float]:
    found = [mine[of] / alone[of] for alone, mine in zip(rates["alone"], rates[kind], strict=True)]
    return [round(each(found), 3) for each in (statistics.median, min, max)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each window")
    parser.add_argument("--directory", type=Path, default=None, help="where the bytes lie")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return uploader(options)
    print(json.dumps(measure(options), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
