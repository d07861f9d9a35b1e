"""An upload that was put aside goes on behind the files that it has sent, with every store."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from kit.ranks import SCRATCH as FROM_NOTHING
from kit.ranks import Rank, Ranks, claimed, data, facts, named
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.records import PartRecord, ShipRecord
from rtj_sidecar.stores.base import Cancelled, Store, Uploaded

BODIES = {"a.bin": b"a" * 300, "b.bin": b"b" * 200, "c.bin": b"c" * 100}


class Counted:
    """The store, with the keys that were uploaded; the one that ends with `stop_at` is cut off."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.sent: list[str] = []
        self.stop_at: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def upload_file(self, key: str, path: Path, **more: Any) -> Uploaded:
        if self.stop_at is not None and key.endswith(self.stop_at):
            raise Cancelled
        done = self._store.upload_file(key, path, **more)
        self.sent.append(key.rpartition("/")[2])
        return done


class Case:
    """A save of three files, whose upload was put aside at the last of them."""

    def __init__(self, store: Store, ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Counted(store)
        self.rank: Rank = ranks(0, store=self.store)
        monkeypatch.setattr("rtj_sidecar.runs.upload._FILES_AT_ONCE", 1)
        self.fence = claimed(self.rank, 1, parent=FROM_NOTHING)
        self.save = facts(10)
        self.ship: ShipRecord = named(self.rank, self.fence, 1, self.save, {0: list(BODIES)})
        self.files = self.rank.save(self.ship.name, BODIES)
        self.kept = 0
        self.store.stop_at = "c.bin"
        with pytest.raises(Cancelled):
            self.upload()
        assert self.store.sent == ["a.bin", "b.bin"]
        self.store.stop_at = None
        self.store.sent.clear()

    def upload(self) -> PartRecord:
        self.kept = 0
        return self.rank.run.moving.upload_part(
            self.ship, files=self.files, save=self.save, kept=self._keep, cancel=threading.Event()
        )

    def _keep(self, count: int) -> None:
        self.kept += count

    def is_whole(self) -> bool:
        done = self.rank.run.publishing.try_commit(self.ship, fence=self.fence)
        assert isinstance(done, Committed)
        found = {f.path: data(self.store, f.key) for f in done.manifest.files}  # type: ignore[arg-type]
        return found == {file.path: file.source.read_bytes() for file in self.files}


@pytest.fixture
def case(store: Store, ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(store, ranks, monkeypatch)


def test_what_was_sent_whole_is_not_sent_again(case: Case) -> None:
    case.upload()
    assert case.store.sent == ["c.bin"]
    assert case.kept == 500
    assert case.is_whole()


def test_a_source_that_is_another_is_sent_anew(case: Case) -> None:
    source = next(file.source for file in case.files if file.path == "a.bin")
    source.write_bytes(b"x" * 300)
    os.utime(source, ns=(1, 1))
    case.upload()
    assert case.store.sent == ["a.bin", "c.bin"]
    assert case.is_whole()


def test_an_object_that_was_written_since_is_sent_anew(case: Case) -> None:
    key = f"ns/gpt/checkpoints/{case.ship.name}/a.bin"
    case.store.put(key, b"y" * 300)
    case.upload()
    assert "a.bin" in case.store.sent
    assert case.is_whole()
