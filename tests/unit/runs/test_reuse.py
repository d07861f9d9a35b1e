"""Bytes that the store has already are named, not sent; and what nobody will read is freed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from kit.memory_store import MemoryStore
from rtj_sidecar.checkpoints.types import Gate, GateResult
from rtj_sidecar.runs.commit import Committed, Dropped
from rtj_sidecar.runs.fence import Claimed, Done, FenceLost
from rtj_sidecar.runs.fetch import Fetched
from rtj_sidecar.runs.keeping import Keep
from rtj_sidecar.runs.records import MarkKind, Parent, SaveFacts, ShipRecord
from rtj_sidecar.runs.retain import Retained
from rtj_sidecar.runs.reuse import HASHED_AT_ONCE, sample_of
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.runs.sweep import Swept
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.stores.base import Head, Store
from rtj_sidecar.stores.open import open_store

DATA = "ns/gpt/checkpoints/"
TOKENIZER = b'{"vocab": {}}' * 1000


@dataclass
class Writer:
    """Rank 0's sidecar of a run whose clock is set by hand."""

    store: Store
    disk: Path
    clock: list[float] = field(default_factory=lambda: [1000.0])

    def __post_init__(self) -> None:
        self.run = Run(
            store=self.store,
            run_id="ns/gpt",
            cluster_uid="cluster",
            job_uid="job",
            rank=0,
            union_gate=lambda *_: GateResult(Gate.SET, None, "no rule"),
            now=lambda: self.clock[0],
        )

    def claim(self, attempt: int = 1) -> int:
        claimed = self.run.claim(attempt=attempt, world_size=1)
        assert isinstance(claimed, Claimed)
        parent = Parent(scratch=True)
        assert isinstance(self.run.set_parent(fence=claimed.fence, parent=parent), Done)
        return claimed.fence

    def name(self, fence: int, n: int) -> ShipRecord:
        facts = SaveFacts(root_key=f"ckpt_{n}", layout="generic", step=n, status="Verified")
        named = self.run.name_ship(
            fence=fence, n=n, save=facts, seen={0: ["."]}, world_size=1, parent=None
        )
        assert isinstance(named, Named)
        return named.ship

    def files(self, n: int, files: Mapping[str, bytes]) -> list[LocalFile]:
        made = []
        for path, body in files.items():
            source = self.disk / str(n) / path
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_bytes(body)
            made.append(LocalFile(path, source, len(body), 0o644))
        return made

    def upload(self, ship: ShipRecord, files: Mapping[str, bytes], *, after: str | None) -> None:
        facts = SaveFacts(root_key=ship.root_key, layout="generic", step=ship.n, status="Verified")
        local = self.files(ship.n, files)
        self.run.moving.upload_part(ship, files=local, save=facts, after=after)

    def save(
        self, fence: int, n: int, files: Mapping[str, bytes], *, after: str | None = None
    ) -> str:
        ship = self.name(fence, n)
        self.upload(ship, files, after=after)
        assert isinstance(self.run.try_commit(ship, fence=fence), Committed)
        return ship.name

    def stored(self) -> list[str]:
        return [found.key.removeprefix(DATA) for found in self.store.list(DATA)]


@pytest.fixture(params=["memory", "file"])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Writer:
    store = MemoryStore() if request.param == "memory" else open_store((tmp_path / "s").as_uri())
    return Writer(store, tmp_path / "disk")


def weights(n: int) -> bytes:
    return f"weights of step {n}".encode()


def test_an_unchanged_file_costs_nothing(writer: Writer, tmp_path: Path) -> None:
    fence = writer.claim()
    before: str | None = None
    for n in (1, 2, 3):
        files = {"model.pt": weights(n), "tokenizer.json": TOKENIZER}
        before = writer.save(fence, n, files, after=before)
    assert writer.stored() == [
        "f1-n1-s1/model.pt",
        "f1-n1-s1/tokenizer.json",
        "f1-n2-s2/model.pt",
        "f1-n3-s3/model.pt",
    ]
    assert before is not None
    got = writer.run.moving.fetch(before, tmp_path / "back")
    assert isinstance(got, Fetched)
    assert (tmp_path / "back/tokenizer.json").read_bytes() == TOKENIZER
    assert (tmp_path / "back/model.pt").read_bytes() == weights(3)


def test_a_copy_under_another_name_costs_nothing(writer: Writer) -> None:
    fence = writer.claim()
    body = os.urandom(HASHED_AT_ONCE + 1)
    first = writer.save(fence, 1, {"epoch1.ckpt": body})
    writer.save(fence, 2, {"epoch2.ckpt": os.urandom(len(body)), "best.ckpt": body}, after=first)
    assert writer.stored() == ["f1-n1-s1/epoch1.ckpt", "f1-n2-s2/epoch2.ckpt"]


def test_equal_size_and_sample_are_no_equal_bytes(writer: Writer, tmp_path: Path) -> None:
    fence = writer.claim()
    body = bytearray(os.urandom(HASHED_AT_ONCE + 1))
    first = writer.save(fence, 1, {"model.pt": bytes(body)})
    body[200_000] ^= 1  # between the pieces of the sample
    second = writer.save(fence, 2, {"model.pt": bytes(body)}, after=first)
    one, two = (writer.disk / n / "model.pt" for n in "12")
    assert sample_of(one, len(body)) == sample_of(two, len(body))
    writer.run.moving.fetch(second, tmp_path / "back")
    assert (tmp_path / "back/model.pt").read_bytes() == body


def test_what_is_not_in_the_store_as_recorded_is_sent(writer: Writer) -> None:
    fence = writer.claim()
    files = {"a.json": TOKENIZER, "b.json": TOKENIZER[::-1]}
    first = writer.save(fence, 1, files)
    writer.store.delete(f"{DATA}{first}/a.json")
    writer.store.put(f"{DATA}{first}/b.json", b"x" * len(TOKENIZER))
    second = writer.save(fence, 2, files, after=first)
    manifest = writer.run.manifest(second)
    assert manifest is not None
    assert [file.key for file in manifest.files] == [
        f"checkpoints/{second}/a.json",
        f"checkpoints/{second}/b.json",
    ]


def test_what_lies_in_an_archive_is_sent(tmp_path: Path) -> None:
    class Archive(MemoryStore):
        def head(self, key: str) -> Head | None:
            found = super().head(key)
            is_first = key.startswith(f"{DATA}f1-n1-")
            return replace(found, storage_class="GLACIER") if found and is_first else found

    writer = Writer(Archive(), tmp_path / "disk")
    fence = writer.claim()
    first = writer.name(fence, 1)
    writer.upload(first, {"a.json": TOKENIZER}, after=None)
    ship = writer.name(fence, 2)
    writer.upload(ship, {"a.json": TOKENIZER}, after=first.name)
    assert writer.stored() == ["f1-n1-s1/a.json", "f1-n2-s2/a.json"]


@pytest.mark.parametrize("after", ["f7-n7-s7", "not a name"])
def test_a_save_that_nobody_knows_spares_nothing(writer: Writer, after: str) -> None:
    writer.save(writer.claim(), 1, {"a": b"1"}, after=after)
    assert writer.stored() == ["f1-n1-s1/a"]


def test_an_interrupted_part_goes_on_with_what_is_there(tmp_path: Path) -> None:
    store = MemoryStore()
    writer = Writer(store, tmp_path / "disk")
    fence = writer.claim()
    ship = writer.name(fence, 1)
    files = {"a": b"1" * 10, "b": b"2" * 20, "c": b"3" * 30}
    store.objects[f"{DATA}{ship.name}/c"] = (files["c"], "etag c")  # sent before the crash
    store.objects[f"{DATA}{ship.name}/b"] = (b"x" * 20, "etag b")  # of the size, but damaged
    written: list[str] = []
    store.after_write = written.append
    writer.upload(ship, files, after=None)
    assert sorted(key for key in written if key.startswith(DATA)) == [
        f"{DATA}{ship.name}/a",
        f"{DATA}{ship.name}/b",
    ]
    assert isinstance(writer.run.try_commit(ship, fence=fence), Committed)


def test_retention_keeps_what_a_newer_manifest_names_until_it_goes_too(writer: Writer) -> None:
    fence = writer.claim()
    name: str | None = None
    for n in (1, 2):
        files = {"model.pt": weights(n), "tokenizer.json": TOKENIZER}
        name = writer.save(fence, n, files, after=name)
    retain(writer, fence)
    assert writer.stored() == ["f1-n1-s1/tokenizer.json", "f1-n2-s2/model.pt"]
    assert name is not None
    assert writer.run.judging.examine(name, deep=True) == []
    writer.save(fence, 3, {"model.pt": weights(3)}, after=name)
    retain(writer, fence)
    assert writer.stored() == ["f1-n3-s3/model.pt"], "the last that named the tokenizer has gone"


def test_retention_keeps_what_a_part_on_its_way_names(writer: Writer) -> None:
    fence = writer.claim()
    first = writer.save(fence, 1, {"model.pt": weights(1), "tokenizer.json": TOKENIZER})
    slow = writer.name(fence, 2)
    writer.upload(slow, {"model.pt": weights(2), "tokenizer.json": TOKENIZER}, after=first)
    writer.save(fence, 3, {"model.pt": weights(3)})
    retain(writer, fence)
    assert "f1-n1-s1/tokenizer.json" in writer.stored()
    assert "f1-n1-s1/model.pt" not in writer.stored()
    assert isinstance(writer.run.try_commit(slow, fence=fence), Committed)
    assert writer.run.judging.examine(slow.name, deep=True) == []


def retain(writer: Writer, fence: int) -> None:
    """Mark, and delete an hour later."""
    keep = Keep(last=1)
    assert isinstance(writer.run.tending.retain(fence=fence, keep=keep), Retained)
    writer.clock[0] += 3600
    assert isinstance(writer.run.tending.retain(fence=fence, keep=keep), Retained)


# --- what nobody will read ---


def test_a_dropped_save_is_freed_an_hour_later_and_its_number_is_not_used_again(
    writer: Writer,
) -> None:
    fence = writer.claim()
    first = writer.save(fence, 1, {"model.pt": weights(1), "tokenizer.json": TOKENIZER})
    ship = writer.name(fence, 2)
    writer.upload(ship, {"model.pt": weights(2), "tokenizer.json": TOKENIZER}, after=first)
    writer.store.delete(f"{DATA}{ship.name}/model.pt")
    assert isinstance(writer.run.try_commit(ship, fence=fence), Dropped)
    writer.store.put(f"{DATA}{ship.name}/optimizer.pt", b"sent late")
    assert writer.run.sweep(fence=fence) == Swept(0, ())
    writer.clock[0] += 3600
    assert writer.run.sweep(fence=fence) == Swept(0, (ship.name,))
    assert writer.stored() == [f"{first}/model.pt", f"{first}/tokenizer.json"]
    assert writer.run.sweep(fence=fence) == Swept(0, ()), "once"
    assert writer.run.next_n(writer.run.history(), fence) == 3


def test_only_the_holder_sweeps(writer: Writer) -> None:
    fence = writer.claim()
    writer.claim(attempt=2)
    assert isinstance(writer.run.sweep(fence=fence), FenceLost)


def test_unfinished_uploads_end_only_of_saves_that_are_over(tmp_path: Path) -> None:
    asked: dict[str, bool] = {}

    class Store(MemoryStore):
        def end_uploads(self, prefix: str, *, is_over) -> int:  # type: ignore[no-untyped-def]
            assert prefix == DATA
            asked.update((key, is_over(f"ns/gpt/{key}")) for key in keys)
            return sum(asked.values())

    writer = Writer(Store(), tmp_path / "disk")
    one = writer.claim()
    writer.save(one, 1, {"a": b"1"})
    dropped, waits = writer.name(one, 2), writer.name(one, 3)
    writer.run.judging.mark(dropped.name, kind=MarkKind.DROPPED, reason="Torn", message="torn")
    two = writer.claim(attempt=2)
    writer.save(two, 1, {"a": b"2"})
    keys = [
        "checkpoints/f1-n1-s1/late",
        f"checkpoints/{dropped.name}/a",
        f"checkpoints/{waits.name}/a",
        "checkpoints/f2-n1-s1/late",
        "checkpoints/f9-n9-s9/a",
        "checkpoints/mine/a",
        "outputs/f1/a",
    ]
    assert writer.run.sweep(fence=two) == Swept(2, ())
    assert [key for key, over in asked.items() if over] == keys[:2]
