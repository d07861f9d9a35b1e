"""Unchanged files on a real S3 server: copied inside it, also by parts, and each save is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.run_writer import DATA, Writer
from kit.s3 import S3Server, s3_server
from rtj_sidecar.runs.fetch import Fetched
from rtj_sidecar.stores import s3_copy
from rtj_sidecar.stores.s3 import S3Store

MIB = 1 << 20


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def writer(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3_copy, "PART", 5 * MIB)
    store = S3Store(bucket=s3.bucket, prefix=tmp_path.name, endpoint=s3.endpoint, part_size=5 * MIB)
    yield Writer(store, tmp_path / "disk")
    store.close()


def test_what_did_not_change_is_copied_and_each_save_stands_alone(
    writer: Writer, tmp_path: Path
) -> None:
    frozen, config = os.urandom(12 * MIB), b"{}" * 100
    fence, before = writer.claim(), None
    names = []
    for n in (1, 2, 3):
        files = {"model.pt": b"%d" % n, "frozen.pt": frozen, "config.json": config, "empty": b""}
        before = writer.save(fence, n, files, after=before)
        names.append(before)
    assert writer.stored() == [
        f"{name}/{path}"
        for name in names
        for path in ("config.json", "empty", "frozen.pt", "model.pt")
    ]
    same = len(frozen) + len(config)
    assert writer.moved == {"sent": same + 3, "kept": 2 * same}
    for name in names[:2]:
        for path in ("config.json", "empty", "frozen.pt", "model.pt"):
            writer.store.delete(f"{DATA}{name}/{path}")
    assert writer.run.judging.examine(names[2], deep=True) == []
    assert isinstance(writer.run.moving.fetch(names[2], tmp_path / "back"), Fetched)
    assert (tmp_path / "back/frozen.pt").read_bytes() == frozen
    assert list(writer.store.list(f"{DATA}{names[0]}/")) == []


def test_what_lies_in_a_slower_class_or_has_changed_is_sent(writer: Writer) -> None:
    fence = writer.claim()
    files = {"a.json": b"a" * 1000, "b.json": b"b" * 1000, "c.json": b"c" * 1000}
    first = writer.save(fence, 1, files)
    writer.store.reclass(f"{DATA}{first}/a.json", storage_class="GLACIER")
    writer.store.put(f"{DATA}{first}/b.json", b"x" * 1000)
    writer.moved = {"sent": 0, "kept": 0}
    second = writer.save(fence, 2, files, after=first)
    assert writer.moved == {"sent": 2000, "kept": 1000}
    classes = [writer.store.head(f"{DATA}{second}/{path}").storage_class for path in files]
    assert classes == [None, None, None]
    assert writer.run.judging.examine(second, deep=True) == []
