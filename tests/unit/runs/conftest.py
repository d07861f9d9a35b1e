"""Every store that a run may lie in, and the ranks on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.memory_store import MemoryStore
from kit.origins import Origin, origin_in
from kit.ranks import (
    Rank,
    Ranks,
    all_ranks_have_a_shard,
)
from kit.run_writer import run_of
from kit.s3 import S3Server, s3_server
from rtj_sidecar.runs.imports import places
from rtj_sidecar.stores.base import Store
from rtj_sidecar.stores.open import open_store


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["memory", "file", "s3"])
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> Store:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "file":
        return open_store((tmp_path / "store").as_uri())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    return open_store(s3.url(f"run-{tmp_path.name}"), endpoint=s3.endpoint)


@pytest.fixture
def ranks(store: Store, tmp_path: Path) -> Ranks:
    def make(rank: int, *, job: str = "job", store: Store = store) -> Rank:
        return Rank(
            run_of(store, job_uid=job, rank=rank, union_gate=all_ranks_have_a_shard),
            rank,
            tmp_path / f"disk{rank}",
        )

    return make


@pytest.fixture(params=["directory", "bucket"])
def origin(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Origin:
    """Foreign checkpoints, and a run that takes them up without waiting for a writer."""
    monkeypatch.setattr(places, "SETTLE_S", 0.0)
    return origin_in(tmp_path, kind=request.param)
