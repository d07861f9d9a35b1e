"""Many ranks that share nothing but a store: how soon a save of all of them is durable.

Prints JSON. Real sidecars (tests/kit/fleet.py) in one process, each with a disk and a line to the
store of its own; the trainers are played and save all at once every `--interval` seconds. The lines
are unequal: the slowest rank needs `--upload` seconds for its part, the fastest a tenth of that, so
that uploads are slower than the saves come. What happened is read from the store's records.

`gap_uploads`: seconds between two durable steps, in units of the slowest rank's upload. `lag`:
seconds from a save to its commit. A durable step at least every second upload means a largest gap
of at most 2. Every named save ends committed or dropped by name: `undecided` names those that were
still on their way at the end. Asserts nothing about time.

    python benchmarks/ranks.py --ranks 64 --interval 2 --upload 6 --seconds 90
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
for part in ("crds", "trainer_sidecar", "tests"):
    sys.path.insert(0, str(ROOT / part))

from kit.fleet import Fleet  # noqa: E402
from kit.s3 import S3Server  # noqa: E402

SIZE = 20_000  # of a tensor; a part is about twice that


async def train(fleet: Fleet, options: argparse.Namespace) -> dict[int, float]:
    """Save every interval; when (Unix seconds) each step was saved."""
    saved: dict[int, float] = {}
    begun, step = time.monotonic(), 0
    while time.monotonic() - begun < options.seconds:
        step += 10
        await asyncio.to_thread(fleet.save, step, size=SIZE)
        saved[step] = time.time()
        await asyncio.sleep(max(0.0, begun + step / 10 * options.interval - time.monotonic()))
    return saved


def rates(options: argparse.Namespace) -> dict[int, float]:
    """Bytes a second of each rank's line: rank 1 is the slowest, the others up to ten times it."""
    slowest = 2 * SIZE / options.upload
    count = options.ranks - 1
    return {
        rank: slowest * (1 + 9 * ((rank - 1) % options.ranks) / max(1, count))
        for rank in range(options.ranks)
    }


async def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        store, more = f"file://{directory}/store", {}
        if options.store == "s3":
            server = stack.enter_context(S3Server())
            os.environ.update(server.environment())
            store, more = server.url("ranks"), {"store_endpoint": server.endpoint}
        fleet = Fleet(
            directory,
            world_size=options.ranks,
            store=store,
            rates=rates(options),
            mirror="never",
            **more,
        )
        async with fleet:
            await fleet.begin()
            cpu = time.process_time()
            saved = await train(fleet, options)
            cpu = time.process_time() - cpu
            history = fleet.history()
    committed = sorted(history.manifests.values(), key=lambda m: m.committed_at)
    times = [m.committed_at for m in committed]
    gaps = [(b - a) / options.upload for a, b in itertools.pairwise(times)]
    lags = [m.committed_at - saved[m.step] for m in committed if m.step in saved]
    return {
        "ranks": options.ranks,
        "store": options.store,
        "interval_s": options.interval,
        "slowest_upload_s": options.upload,
        "saves": len(saved),
        "durable": len(committed),
        "first_durable_s": round(times[0] - min(saved.values()), 2) if times else None,
        "gap_uploads": {
            "median": round(statistics.median(gaps), 2) if gaps else None,
            "largest": round(max(gaps), 2) if gaps else None,
        },
        "lag_s": {
            "median": round(statistics.median(lags), 2) if lags else None,
            "largest": round(max(lags), 2) if lags else None,
        },
        "in_order": [m.step for m in committed] == sorted(m.step or 0 for m in committed),
        "whole": all(m.ranks == list(range(options.ranks)) for m in committed),
        "undecided": [str(save) for save in history.ships if history.condemned(save) is None],
        "cpu_share": round(cpu / options.seconds, 2),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between two saves")
    parser.add_argument("--upload", type=float, default=6.0, help="seconds of the slowest part")
    parser.add_argument("--seconds", type=float, default=90.0, help="how long they train")
    parser.add_argument("--store", choices=["file", "s3"], default="file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rtj-ranks-") as directory:
        print(json.dumps(asyncio.run(measure(options, Path(directory))), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
