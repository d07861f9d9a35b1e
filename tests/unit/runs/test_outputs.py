"""Outputs lie under their own names; another rank's only where its bytes differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.memory_store import MemoryStore
from kit.run_writer import run_of
from rtj_sidecar.checkpoints.types import Gate, GateResult
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.stores.base import SourceChanged


def rank_of(store: MemoryStore, rank: int) -> Run:
    return run_of(
        store, rank=rank, union_gate=lambda *_: GateResult(Gate.SET, True, ""), now=lambda: 7.0
    )


def files(base: Path, **content: bytes) -> list[LocalFile]:
    base.mkdir(exist_ok=True)
    made = []
    for name, body in content.items():
        (base / name).write_bytes(body)
        made.append(LocalFile(path=name, source=base / name, size=len(body), mode=0o644))
    return made


def body(store: MemoryStore, key: str) -> bytes:
    found = store.get(f"ns/gpt/{key}")
    assert found is not None, key
    return found.data


def test_each_rank_once(tmp_path: Path) -> None:
    store = MemoryStore()
    rank_of(store, 0).moving.put_outputs(
        fence=3, attempt=4, files=files(tmp_path / "0", model=b"final", report=b"rank 0")
    )
    record = rank_of(store, 1).moving.put_outputs(
        fence=3, attempt=4, files=files(tmp_path / "1", model=b"final", report=b"rank 1")
    )
    assert body(store, "outputs/f3/model") == b"final"
    assert body(store, "outputs/f3/report") == b"rank 0"
    assert body(store, "outputs/f3/.rank1/report") == b"rank 1"
    assert [file.key for file in record.files] == ["outputs/f3/model", "outputs/f3/.rank1/report"]
    listed = json.loads(body(store, "outputs/f3/.rtj/1.json"))
    assert (listed["attempt"], len(listed["files"])) == (4, 2)
    # Again, as after a restart of the sidecar.
    again = rank_of(store, 1).moving.put_outputs(
        fence=3, attempt=4, files=files(tmp_path / "1", model=b"final", report=b"rank 1")
    )
    assert [f.sha256 for f in again.files] == [f.sha256 for f in record.files]


def test_nothing_left_is_told_too_and_a_lost_file_is_not_passed_over(tmp_path: Path) -> None:
    store = MemoryStore()
    assert rank_of(store, 0).moving.put_outputs(fence=1, attempt=1, files=[]).files == []
    assert json.loads(body(store, "outputs/f1/.rtj/0.json"))["files"] == []
    made = files(tmp_path / "0", model=b"final")
    made[0].source.unlink()
    with pytest.raises((OSError, SourceChanged)):
        rank_of(store, 0).moving.put_outputs(fence=2, attempt=1, files=made)
    assert store.get("ns/gpt/outputs/f2/.rtj/0.json") is None
