"""DCP on disks of the ranks' own: a step that no rank knows alone, files of the save before."""

from __future__ import annotations

import io
import os
import shutil
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from kit.handmade import dcp_directory, torch_bytes
from rtj_sidecar.checkpoints.formats.base import DEFAULT_CAPS, Window
from rtj_sidecar.checkpoints.formats.dcp import Slice
from rtj_sidecar.checkpoints.formats.dcp_numbers import number_at, numbers_at_head
from rtj_sidecar.checkpoints.laid import read_laid, without_left, write_laid
from rtj_sidecar.checkpoints.layouts import layouts_for
from rtj_sidecar.checkpoints.layouts.dcp_facts import joined_numbers
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.scan import take_snapshot, walk
from rtj_sidecar.checkpoints.types import FoundSave
from rtj_sidecar.runs.labels import labelled
from rtj_sidecar.runs.records import SaveFacts

TENSORS = {"model.w": None, "optimizer.m": None}


def split(root: Path, keys: dict[str, Any], *, plain_rank: int) -> list[FoundSave]:
    """What each of two ranks finds on its own disk."""
    dcp_directory(root / "whole", {**TENSORS, **keys}, plain_rank=plain_rank)
    found = []
    for rank in (0, 1):
        place = root / f"pod-{rank}" / "state"
        place.mkdir(parents=True)
        for name in (f"__{rank}_0.distcp", *([".metadata"] if rank == 0 else [])):
            shutil.copy2(root / "whole" / name, place / name)
        (save,) = take_snapshot(reader=Reader(place.parent), layouts=layouts_for()).saves
        found.append(save)
    return found


def facts_of(save: FoundSave) -> SaveFacts:
    return SaveFacts(
        root_key=save.root_key,
        layout=save.layout,
        step=save.step,
        epoch=save.epoch,
        facts=dict(save.facts),
    )


@pytest.mark.parametrize("plain_rank", [0, 1])
def test_two_ranks_know_together_what_neither_knows_alone(tmp_path: Path, plain_rank: int) -> None:
    keys = {"trainer.step": 1234, "epoch": 3, "loss": 0.25, "name": "x"}
    saves = split(tmp_path, keys, plain_rank=plain_rank)
    assert [save.step for save in saves] == [1234 if plain_rank == 0 else None, None]
    found = labelled([facts_of(save) for save in saves])
    assert (found.step, found.epoch, found.facts["unit"]) == (1234, 3, "step")
    if plain_rank == 1:
        assert labelled([facts_of(saves[0])]).step is None
        assert labelled([facts_of(saves[1])]).step is None


def test_the_count_of_an_optimizer_is_no_step(tmp_path: Path) -> None:
    saves = split(tmp_path, {"optimizer.state.step": 7}, plain_rank=1)
    assert joined_numbers(save.facts for save in saves) == {}


@pytest.mark.parametrize(
    "told",
    [
        {"labels_at": 3, "loose_numbers": [1]},
        {"labels_at": {"step": ["a"]}, "loose_numbers": {"a": 3}},
        {"labels_at": {"step": ["a", 0]}, "loose_numbers": {"a": {"0": "7"}}},
        {"labels_at": {"step": ["a", 0]}, "loose_numbers": {"a": {"0": -7}}},
        {"labels_at": {"step": ["a", 0]}, "loose_numbers": {"a": {"0": True}}},
    ],
)
def test_records_of_any_shape_join_to_nothing(told: dict[str, object]) -> None:
    assert joined_numbers([told]) == {}


def scalar(kind: str, raw: bytes, *, order: str = "little", shape: bytes = b")") -> bytes:
    """torch.save of a tensor without dimensions (`shape`: opcodes of its size and strides)."""
    storage = (
        b"(X\x07\0\0\0storagectorch\n" + kind.encode() + b"\nX\x01\0\0\x000X\x03\0\0\0cpuK\x01tQ"
    )
    pickle = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage
    pickle += b"K\0" + shape + shape + b"\x89}tR."
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", order)
        archive.writestr("archive/data/0", raw)
    return out.getvalue()


@pytest.mark.parametrize(
    ("archive", "number"),
    [
        (scalar("IntStorage", struct.pack("<i", 1234)), 1234),
        (scalar("LongStorage", struct.pack("<q", 1 << 40)), 1 << 40),
        (scalar("FloatStorage", struct.pack("<f", 0.5)), 0.5),
        (scalar("LongStorage", struct.pack(">q", 7), order="big"), None),
        (scalar("LongStorage", b"short"), None),
        (scalar("BoolStorage", b"\1"), None),
        (scalar("LongStorage", struct.pack("<q", 7), shape=b"K\x01\x85"), None),
        (torch_bytes(True), None),
        (torch_bytes("12"), None),
    ],
)
def test_a_tensor_without_dimensions_is_a_number(
    archive: bytes, number: float | None, tmp_path: Path
) -> None:
    path = tmp_path / "__0_0.distcp"
    path.write_bytes(b"before" + archive)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        part = Slice("step", path.name, 6, len(archive))
        assert number_at(Window(descriptor, 0, 6 + len(archive)), part, caps=DEFAULT_CAPS) == number
    finally:
        os.close(descriptor)


def test_numbers_are_looked_for_at_the_head_alone(tmp_path: Path) -> None:
    """What is no number, a false end record and a tensor beyond the head change no offset."""
    text = torch_bytes("PK\x05\x06" * 50)
    number, large = torch_bytes(41, payload=0), torch_bytes(None, payload=2 << 20)
    path = tmp_path / "__0_0.distcp"
    path.write_bytes(text + number + large + number)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        window = Window(descriptor, 0, path.stat().st_size)
        assert numbers_at_head(window, caps=DEFAULT_CAPS) == {len(text): 41}
    finally:
        os.close(descriptor)


# --- what a restore laid ---


def lay(root: Path) -> frozenset[str]:
    dcp_directory(root / "state", TENSORS)
    (root / "state" / "notes.txt").write_text("not of DCP")
    return write_laid(root, walk(root)[0])


def names(root: Path, laid: frozenset[str]) -> set[str]:
    return {entry.path for entry in without_left(walk(root)[0], laid)}


def test_what_was_laid_counts_until_something_beside_it_is_rewritten(tmp_path: Path) -> None:
    laid = lay(tmp_path)
    assert read_laid(tmp_path) == laid
    whole = {f"state/{name}" for name in (".metadata", "__0_0.distcp", "__1_0.distcp", "notes.txt")}
    assert names(tmp_path, laid) == whole
    (tmp_path / "state" / "__1_0.distcp").write_bytes(b"new")
    assert names(tmp_path, laid) == {"state/__1_0.distcp", "state/notes.txt"}
    write_laid(tmp_path, ())
    assert names(tmp_path, read_laid(tmp_path)) == whole


def test_another_directory_is_left_as_it_is(tmp_path: Path) -> None:
    dcp_directory(tmp_path / "other", TENSORS)
    laid = lay(tmp_path)
    (tmp_path / "state" / "__0_0.distcp").write_bytes(b"new")
    assert {path for path in names(tmp_path, laid) if path.startswith("other/")} == {
        "other/.metadata",
        "other/__0_0.distcp",
        "other/__1_0.distcp",
    }


def test_nothing_is_written_where_no_file_of_dcp_was_laid(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"x")
    assert write_laid(tmp_path, walk(tmp_path)[0]) == frozenset()
    assert not (tmp_path / ".rtj").exists()


def test_a_torn_memory_is_an_empty_one(tmp_path: Path) -> None:
    lay(tmp_path)
    (tmp_path / ".rtj" / "laid").write_text('["sta')
    assert read_laid(tmp_path) == frozenset()
