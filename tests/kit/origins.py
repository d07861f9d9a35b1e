"""A place with foreign checkpoints, in a directory or a bucket, and a run that takes them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rtj_api.wire import Found, Wanted
from rtj_sidecar.runs.fence import Claimed
from rtj_sidecar.runs.records import ManifestRecord
from rtj_sidecar.runs.run import Run
from rtj_sidecar.stores.base import Store
from rtj_sidecar.stores.open import open_store

from kit.foreign import put_files, write_files
from kit.memory_store import MemoryStore
from kit.run_writer import run_of


@dataclass
class Origin:
    """Where the foreign files lie, and a run that takes them up."""

    kind: str
    directory: Path
    store: MemoryStore
    elsewhere: MemoryStore
    run: Run
    incoming: Path

    def holds(self, files: Mapping[str, bytes]) -> None:
        if self.kind == "directory":
            write_files(self.directory, files)
        else:
            put_files(self.elsewhere, "old/ckpts", files)

    def value(self, path: str = "") -> str:
        base = str(self.directory) if self.kind == "directory" else "s3://bucket/old/ckpts"
        return f"{base}/{path}".rstrip("/")

    def find(self, path: str = "", **more: Any) -> Found:
        return self.run.find(
            self.run.history(),
            wanted=Wanted(value=self.value(path), asked="spec"),
            fence=1,
            incoming=self.incoming,
            **more,
        )

    def taken(self, path: str = "") -> ManifestRecord:
        found = self.find(path)
        assert found.save is not None, found.problem
        manifest = self.run.manifest(found.save.name)
        assert manifest is not None
        assert self.run.judging.examine(found.save.name, deep=True) == []
        return manifest


class Below:
    """A store of the same objects, below a prefix."""

    def __init__(self, store: MemoryStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix
        self.url = f"{store.url}/{prefix}"

    def get(self, key: str) -> object:
        return self._store.get(f"{self._prefix}/{key}")


def origin_in(directory: Path, *, kind: str) -> Origin:
    """`kind`: "directory" or "bucket". The run holds its first fence."""
    store, elsewhere = MemoryStore(), MemoryStore()

    def opened(url: str) -> Store:
        if url.startswith("file://"):
            return open_store(url)
        below = url.removeprefix("s3://bucket").strip("/")
        return elsewhere if not below else Below(elsewhere, below)  # type: ignore[return-value]

    run = run_of(store, open_place=opened)
    claimed = run.claim(attempt=1, world_size=1)
    assert isinstance(claimed, Claimed)
    old = directory / "old" / "ckpts"
    old.mkdir(parents=True)
    return Origin(kind, old, store, elsewhere, run, directory / "incoming")
