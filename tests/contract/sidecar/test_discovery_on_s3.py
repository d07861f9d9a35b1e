"""What a new pod asks of a real S3 server before a choice: no request for a file of any save."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.run_writer import begun, one_save, run_of
from kit.s3 import S3Server, s3_server
from rtj_sidecar.stores.s3 import S3Store

SAVES = 3


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as patch, s3_server() as server:
        patch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
        yield server


@pytest.mark.parametrize("files", [1, 40])
def test_a_choice_asks_for_the_records_and_for_no_file(
    s3: S3Server, tmp_path: Path, files: int
) -> None:
    place = f"discovery-{tmp_path.name}"
    store = S3Store(bucket=s3.bucket, prefix=place, endpoint=s3.endpoint)
    run = run_of(store, run_id="run")
    begun(run)
    for n in range(1, SAVES + 1):
        one_save(run, n, tmp_path, files=files)
    asked: Counter[str] = Counter()
    lock = threading.Lock()

    def count(event_name: str, **_: Any) -> None:
        with lock:
            asked[event_name.rpartition(".")[2]] += 1

    for client in (store._clients.small, store._clients.large):
        client.meta.events.register("before-send.s3.*", count)
    new = run_of(store, run_id="run")
    found = new.candidates(new.history())
    assert [(each.step, each.durable) for each in found] == [(3, True), (2, True), (1, True)]
    # Fences, ships, manifests and marks; the one fence and each manifest.
    assert asked == {"ListObjectsV2": 4, "GetObject": 1 + SAVES}
    asked.clear()
    assert new.candidates(new.history()) == found
    assert asked == {"ListObjectsV2": 4, "GetObject": 1}, "a manifest never changes"
