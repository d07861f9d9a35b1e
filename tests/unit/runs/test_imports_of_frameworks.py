"""What real frameworks wrote is taken up from a bucket as it is from a directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.checkpoint_fixtures import real_checkpoints
from kit.memory_store import MemoryStore
from kit.run_writer import run_of
from kit.tools import ToolMissing
from rtj_api.wire import Wanted
from rtj_sidecar.runs.fence import Claimed
from rtj_sidecar.runs.imports import places
from rtj_sidecar.runs.records import ManifestRecord
from rtj_sidecar.runs.run import Run


@pytest.fixture(scope="module")
def real() -> Path:
    try:
        return real_checkpoints()
    except ToolMissing as missing:
        pytest.skip(str(missing))


def taken(run: Run, value: str, incoming: Path) -> ManifestRecord:
    found = run.find(
        run.history(), wanted=Wanted(value=value, asked=value), fence=1, incoming=incoming
    )
    assert found.save is not None, found.problem
    manifest = run.manifest(found.save.name)
    assert manifest is not None
    assert run.judging.examine(manifest.name, deep=True) == []
    return manifest


@pytest.mark.parametrize(
    ("name", "layout", "step"),
    [
        ("torch", "torch", 1000),
        ("lightning", "torch", 20),
        ("dcp", "dcp", 2),
        ("hf", "hf-trainer", 4),
        ("hf-ddp", "hf-trainer", 4),
    ],
)
def test_a_framework(
    real: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    layout: str,
    step: int,
) -> None:
    monkeypatch.setattr(places, "SETTLE_S", 0.0)
    elsewhere = MemoryStore()
    for path in sorted((real / name).rglob("*")):
        if path.is_file() and not path.is_symlink():
            key = f"old/{name}/{path.relative_to(real / name).as_posix()}"
            elsewhere.put(key, path.read_bytes())
    run = run_of(
        MemoryStore(), open_place=lambda url: elsewhere if url == "s3://bucket" else MemoryStore()
    )
    assert isinstance(run.claim(attempt=1, world_size=1), Claimed)
    from_bucket = taken(run, f"s3://bucket/old/{name}", tmp_path / "incoming")
    assert (from_bucket.step, from_bucket.status) == (step, "Verified")
    assert from_bucket.full_state is True
    assert from_bucket.layout == layout or layout == "torch"
    from_directory = taken(run, str(real / name), tmp_path / "incoming")
    same = ("root_key", "layout", "step", "epoch", "full_state", "status", "loss")
    assert [getattr(from_bucket, each) for each in same] == [
        getattr(from_directory, each) for each in same
    ]
    hashes = {file.path: file.sha256 for file in from_bucket.files}
    assert hashes == {file.path: file.sha256 for file in from_directory.files}
