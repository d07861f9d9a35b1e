"""What a new pod asks of a real S3 server before a choice: no request for a file of any save."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.s3 import S3Server, s3_server
from rtj_sidecar.checkpoints.types import Gate, GateResult
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.fence import Claimed, Done
from rtj_sidecar.runs.records import Parent, SaveFacts
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.stores.s3 import S3Store

SAVES = 3


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as patch, s3_server() as server:
        patch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
        yield server


def run_in(store: S3Store) -> Run:
    return Run(
        store=store,
        run_id="run",
        cluster_uid="cluster",
        job_uid="job",
        rank=0,
        union_gate=lambda *_: GateResult(Gate.SET, None, "no rule"),
    )


def saved(run: Run, n: int, disk: Path, *, files: int) -> None:
    facts = SaveFacts(root_key=f"s{n}", layout="generic", step=n, status="Verified")
    named = run.name_ship(fence=1, n=n, save=facts, seen={0: ["."]}, world_size=1, parent=None)
    assert isinstance(named, Named)
    local = []
    for number in range(files):
        path = disk / f"{n}-{number}"
        path.write_bytes(f"{n} {number}".encode())
        local.append(LocalFile(f"s{n}/{number}", path, path.stat().st_size, 0o644))
    run.moving.upload_part(named.ship, files=local, save=facts)
    assert isinstance(run.try_commit(named.ship, fence=1), Committed)


@pytest.mark.parametrize("files", [1, 40])
def test_a_choice_asks_for_the_records_and_for_no_file(
    s3: S3Server, tmp_path: Path, files: int
) -> None:
    place = f"discovery-{tmp_path.name}"
    store = S3Store(bucket=s3.bucket, prefix=place, endpoint=s3.endpoint)
    run = run_in(store)
    assert isinstance(run.claim(attempt=1, world_size=1), Claimed)
    assert isinstance(run.set_parent(fence=1, parent=Parent(scratch=True)), Done)
    for n in range(1, SAVES + 1):
        saved(run, n, tmp_path, files=files)
    asked: Counter[str] = Counter()
    lock = threading.Lock()

    def count(event_name: str, **_: Any) -> None:
        with lock:
            asked[event_name.rpartition(".")[2]] += 1

    for client in (store._clients.small, store._clients.large):
        client.meta.events.register("before-send.s3.*", count)
    new = run_in(store)
    found = new.candidates(new.history())
    assert [(each.step, each.durable) for each in found] == [(3, True), (2, True), (1, True)]
    # Fences, ships, manifests and marks; the one fence and each manifest.
    assert asked == {"ListObjectsV2": 4, "GetObject": 1 + SAVES}
    asked.clear()
    assert new.candidates(new.history()) == found
    assert asked == {"ListObjectsV2": 4, "GetObject": 1}, "a manifest never changes"
