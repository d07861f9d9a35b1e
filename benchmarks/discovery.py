"""How long a run of many saves takes to choose from, and what proving one large save costs.

Prints JSON. `choose`: a sidecar that knows nothing of the run reads its records from a real S3
server and orders the candidates, as a new pod's rank 0 does before a choice: seconds, CPU seconds
and requests, by number of saves, first without and then with bundles (see docs/store-format.md),
and once more in the same process. `dropped`: the same of a run with one durable save and many that
were dropped, before and after its holder has swept them. `check`: proving that a save of many files
is in the store as recorded, by number of files: seconds and requests. `validate`: one large file of
each format judged from the page cache, against one SHA-256 pass over the same bytes, in turns.
Asserts nothing about time. Cost against number and size is in the rows; `--plot DIRECTORY` draws
them, where there is a matplotlib.

    python benchmarks/discovery.py --saves 100 1000 10000 --files 10 100 1000 --gigabytes 4
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
for part in ("crds", "trainer_sidecar", "tests"):
    sys.path.insert(0, str(ROOT / part))

from kit.handmade import dcp_directory, safetensors_file, torch_file  # noqa: E402
from kit.s3 import S3Server, s3_server  # noqa: E402
from rtj_sidecar.checkpoints.inspect import inspect_path  # noqa: E402
from rtj_sidecar.checkpoints.types import Gate, GateResult  # noqa: E402
from rtj_sidecar.runs.commit import Committed  # noqa: E402
from rtj_sidecar.runs.fence import Claimed  # noqa: E402
from rtj_sidecar.runs.keys import SaveId  # noqa: E402
from rtj_sidecar.runs.records import (  # noqa: E402
    MarkKind,
    MarkRecord,
    Parent,
    PartRecord,
    SaveFacts,
)
from rtj_sidecar.runs.run import Run  # noqa: E402
from rtj_sidecar.runs.ships import Named  # noqa: E402
from rtj_sidecar.runs.upload import LocalFile  # noqa: E402
from rtj_sidecar.stores.s3 import S3Store  # noqa: E402

GB = 1e9


class Place:
    """A bucket's prefix and the runs in it; requests are counted as botocore sends them."""

    def __init__(self, server: S3Server, prefix: str) -> None:
        self.requests: Counter[str] = Counter()
        self.store = S3Store(bucket=server.bucket, prefix=prefix, endpoint=server.endpoint)
        for client in (self.store._clients.small, self.store._clients.large):
            client.meta.events.register("before-send.s3.*", self._count)

    def _count(self, request: Any, event_name: str, **_: Any) -> None:
        self.requests[event_name.rpartition(".")[2]] += 1

    def run(self) -> Run:
        """A sidecar that knows nothing yet."""
        return Run(
            store=self.store,
            run_id="run",
            cluster_uid="cluster",
            job_uid="job",
            rank=0,
            union_gate=lambda *_: GateResult(Gate.SET, None, "no rule"),
        )


def costs(place: Place, call: Callable[[], Any]) -> dict[str, Any]:
    place.requests.clear()
    began, cpu = time.monotonic(), time.process_time()
    call()
    return {
        "seconds": round(time.monotonic() - began, 3),
        "cpu_s": round(time.process_time() - cpu, 3),
        "requests": sum(place.requests.values()),
        "by_operation": dict(place.requests),
    }


def first_save(run: Run, disk: Path, *, files: int) -> str:
    claimed = run.claim(attempt=1, world_size=1)
    assert isinstance(claimed, Claimed)
    run.set_parent(fence=claimed.fence, parent=Parent(scratch=True))
    facts = SaveFacts(root_key="step-1", layout="generic", step=1, full_state=True)
    named = run.publishing.name_ship(
        fence=claimed.fence, n=1, save=facts, seen={0: ["."]}, world_size=1, parent=None
    )
    assert isinstance(named, Named)
    local = []
    for number in range(files):
        path = disk / f"{number}.pt"
        path.write_bytes(os.urandom(256))
        local.append(LocalFile(f"step-1/{number}.pt", path, 256, 0o644))
    run.moving.upload_part(named.ship, files=local, save=facts)
    assert isinstance(run.publishing.try_commit(named.ship, fence=claimed.fence), Committed)
    return named.ship.name


def choose(server: S3Server, saves: int) -> dict[str, Any]:
    place = Place(server, f"choose-{saves}")
    run = place.run()
    with tempfile.TemporaryDirectory() as disk:
        name = first_save(run, Path(disk), files=2)
    manifest = run.manifest(name)
    ship = run.publishing.read_ships(fence=1)[0]
    part = run.publishing.part(SaveId(1, ship.n), 0)
    assert manifest is not None
    assert part is not None

    def copy(n: int) -> None:
        """The records of a save as a long run has them."""
        told = {"n": n, "name": f"f1-n{n}-s{n}", "step": n}
        for key, record in (
            (f"ships/f1/{n}.json", ship.model_copy(update=told)),
            (f"parts/f1/{n}/0.json", part.model_copy(update={"n": n})),
            (f"manifests/f1-n{n}.json", manifest.model_copy(update=told)),
        ):
            place.store.put(f"run/{key}", record.dump_json().encode())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(copy, range(2, saves + 1)))

    def chosen(by: Run) -> None:
        candidates = by.candidates(by.history())
        assert candidates[0].step == saves, candidates[0]
        assert len(candidates) == saves

    cold = costs(place, lambda: chosen(place.run()))
    run.publishing.sweep(fence=1)  # bundles
    new = place.run()
    return {
        "saves": saves,
        "without_bundles": cold,
        "with_bundles": costs(place, lambda: chosen(new)),
        "again": costs(place, lambda: chosen(new)),
    }


def dropped(server: S3Server, saves: int) -> dict[str, Any]:
    place = Place(server, f"dropped-{saves}")
    run = place.run()
    with tempfile.TemporaryDirectory() as disk:
        first_save(run, Path(disk), files=2)
    ship = run.publishing.read_ships(fence=1)[0]

    def drop(n: int) -> None:
        """A save that got its name and a part, and was given up two hours ago."""
        told = {"n": n, "name": f"f1-n{n}-s{n}", "step": n}
        part = PartRecord(fence=1, n=n, rank=0, why_none="no files", written_at=time.time())
        mark = MarkRecord(
            kind=MarkKind.DROPPED,
            reason="UploadLagging",
            message="rank 0 did not send its part",
            marked_at=time.time() - 7200,
        )
        for key, record in (
            (f"ships/f1/{n}.json", ship.model_copy(update=told)),
            (f"parts/f1/{n}/0.json", part),
            (f"marks/f1-n{n}/1.json", mark),
        ):
            place.store.put(f"run/{key}", record.dump_json().encode())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(drop, range(2, saves + 2)))

    def chosen(by: Run) -> None:
        assert by.candidates(by.history())[-1].step == 1

    new = place.run()
    cold, again = costs(place, lambda: chosen(new)), costs(place, lambda: chosen(new))
    run.publishing.sweep(fence=1)
    swept = place.run()
    return {
        "dropped": saves,
        "not_swept": cold,
        "not_swept_again": again,
        "swept": costs(place, lambda: chosen(swept)),
    }


def check(server: S3Server, files: int) -> dict[str, Any]:
    place = Place(server, f"check-{files}")
    run = place.run()
    with tempfile.TemporaryDirectory() as disk:
        name = first_save(run, Path(disk), files=files)

    def proved() -> None:
        assert place.run().judging.examine(name) == []

    return {"files": files} | costs(place, proved)


FORMATS = {
    "torch zip": lambda path, size: torch_file(path / "step_7.pt", {"step": 7}, payload=size),
    "safetensors": lambda path, size: safetensors_file(
        path / "model-step7.safetensors", "weight", size=size // 4
    ),
    "dcp": lambda path, size: dcp_directory(path / "step-7", {"w": None}, payload=size // 2),
}


def validate(size: int, rounds: int, *, directory: Path | None) -> list[dict[str, Any]]:
    rows = []
    for name, make in FORMATS.items():
        with tempfile.TemporaryDirectory(dir=directory) as place:
            make(Path(place), size)
            files = [path for path in Path(place).rglob("*") if path.is_file()]
            total = sum(path.stat().st_size for path in files)
            judged, hashed = [], []
            for _ in range(rounds):
                hashed.append(timed(lambda files=files: [hash_of(path) for path in files]))
                judged.append(timed(lambda place=place: judge(Path(place))))
            ratios = [a / b for a, b in zip(hashed, judged, strict=True)]
            rows.append(
                {
                    "format": name,
                    "bytes": total,
                    "gb_per_s": round(total / GB / statistics.median(judged), 2),
                    "times_as_fast_as_sha256": [
                        round(of(ratios), 2) for of in (statistics.median, min, max)
                    ],
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def judge(place: Path) -> None:
    found = list(inspect_path(place, layout="auto", include=(), settle_seconds=0.0))
    assert found, "no checkpoint was recognised"
    assert all(verdict.candidate for _, verdict in found), found


def hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def timed(call: Callable[[], Any]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def plot(result: dict[str, Any], directory: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = {
        "choose": [(row["saves"], row["with_bundles"]["seconds"]) for row in result["choose"]],
        "check": [(row["files"], row["seconds"]) for row in result["check"]],
    }
    for name, points in lines.items():
        figure, axes = pyplot.subplots()
        axes.plot(*zip(*points, strict=True), marker="o")
        axes.set(title=name, xlabel="saves" if name == "choose" else "files", ylabel="seconds")
        figure.savefig(directory / f"{name}.png")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--saves", type=int, nargs="*", default=[100, 1000, 10_000])
    parser.add_argument("--dropped", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--files", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--gigabytes", type=float, default=1.0, help="0: validate nothing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None, help="where the bytes lie")
    parser.add_argument("--plot", type=Path, default=None, help="a directory for pictures")
    options = parser.parse_args()
    result: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "load_before": os.getloadavg()}
    with s3_server() as server:
        os.environ["AWS_ACCESS_KEY_ID"] = server.access_key
        os.environ["AWS_SECRET_ACCESS_KEY"] = server.secret_key
        for what, call, numbers in (
            ("choose", choose, options.saves),
            ("dropped", dropped, options.dropped),
            ("check", check, options.files),
        ):
            result[what] = []
            for number in numbers:
                result[what].append(call(server, number))
                print(result[what][-1], file=sys.stderr, flush=True)
    if options.gigabytes:
        size = int(options.gigabytes * GB)
        result["validate"] = validate(size, options.rounds, directory=options.directory)
    result["load_after"] = os.getloadavg()
    print(json.dumps(result, indent=2))
    if options.plot:
        plot(result, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
