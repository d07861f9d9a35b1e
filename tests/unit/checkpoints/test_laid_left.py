"""What a restore laid of other ranks' shards, and what is left of it when the next one comes."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from kit.directories import GONE, Place
from kit.handmade import dcp_directory
from rtj_sidecar.checkpoints.types import Expectations
from rtj_sidecar.restoring import Target, restore, set_all_aside
from rtj_sidecar.runs.records import FileRecord, SaveFacts

KEYS = {"model.w": None, "optimizer.m": None}


def laid_and_saved_again(tmp_path: Path, rank: int) -> Place:
    """Step 20 was restored into the directory itself, and then this rank saved step 30 there."""
    place = Place(tmp_path / "out", {"expect": Expectations(whole=False)})
    dcp_directory(tmp_path / "first", {**KEYS, "step": 20})
    shutil.copytree(tmp_path / "first", place.path, dirs_exist_ok=True)
    place.directory.load()
    look = place.directory.look(writers=GONE)
    for save, _ in look.judged:
        place.directory.ledger.note(save)
    place.directory.ledger.note_laid(look.snapshot.files)
    dcp_directory(tmp_path / "next", {**KEYS, "step": 30}, save_id="b")
    for name in (f"__{rank}_0.distcp", *([".metadata"] if rank == 0 else [])):
        (place.path / name).write_bytes((tmp_path / "next" / name).read_bytes())
    return place


def lying(place: Place) -> set[str]:
    found = (path.relative_to(place.path) for path in place.path.rglob("*") if path.is_file())
    return {path.as_posix() for path in found if path.parts[0] != ".rtj"}


def records(directory: Path, below: str = "") -> tuple[FileRecord, ...]:
    return tuple(
        FileRecord(
            path=below + path.name,
            key="",
            size=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            crc64nvme="",
        )
        for path in sorted(directory.iterdir())
        if path.is_file()
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_start_from_nothing_finds_no_shard_of_another_rank(tmp_path: Path, rank: int) -> None:
    place = laid_and_saved_again(tmp_path, rank)
    set_all_aside(place.directory, attempt=3)
    assert lying(place) == set()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_restore_of_a_save_elsewhere_leaves_none_beside_it(tmp_path: Path, rank: int) -> None:
    place = laid_and_saved_again(tmp_path, rank)
    source = place.path.parent / "older"
    dcp_directory(source, {**KEYS, "step": 10})
    facts = SaveFacts(root_key="older", layout="dcp", step=10)
    target = Target("f1-n1-s10", facts, records(source, "older/"), durable=True)

    def fetch(files: object, incoming: Path) -> int:
        (incoming / "older").mkdir(parents=True)
        for path in source.iterdir():
            (incoming / "older" / path.name).write_bytes(path.read_bytes())
        return 1

    restore(place.directory, target, attempt=3, owner=None, fetch=fetch)
    assert lying(place) == {f"older/{path.name}" for path in source.iterdir()}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_restore_of_the_save_that_was_laid_fetches_only_what_was_rewritten(
    tmp_path: Path, rank: int
) -> None:
    place = laid_and_saved_again(tmp_path, rank)
    source, asked = tmp_path / "first", list[str]()
    target = Target(
        "f1-n2-s20",
        SaveFacts(root_key=".", layout="dcp", step=20),
        records(source),
        durable=True,
    )

    def fetch(files: list[FileRecord], incoming: Path) -> int:
        for file in files:
            asked.append(file.path)
            (incoming / file.path).write_bytes((source / file.path).read_bytes())
        return 1

    restore(place.directory, target, attempt=3, owner=None, fetch=fetch)  # type: ignore[arg-type]
    assert ("__0_0.distcp" in asked, "__1_0.distcp" in asked) == (rank == 0, rank == 1)
    assert lying(place) == {path.name for path in source.iterdir()}
    assert records(source) == records(place.path)
    place.directory.ledger.note_laid(())
    assert [verdict.candidate for _, verdict in place.judged()] == [True]
