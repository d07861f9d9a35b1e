"""A save of very many files: the work grows with their number, not with its square.

Counted, not timed: every comparison of two paths (or hashes), and every look into a set of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kit.handmade import torch_file
from rtj_sidecar.arrivals import follow_touch
from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.checkpoints.restore_plan import Chosen, LocalBytes, RestorePlan, plan_restore
from rtj_sidecar.checkpoints.types import Expectations, FileEntry, FoundSave, Snapshot, WantedFile
from rtj_sidecar.directory import Directory
from rtj_sidecar.pinning import pin_found
from rtj_sidecar.restoring import proved
from rtj_sidecar.runs.records import FileRecord
from rtj_sidecar.runs.reuse import Earlier
from rtj_sidecar.stores.local import hash_file

FEW, MANY = 100, 400


class Counted(str):
    """A text that counts how often it is compared with another one, or hashed."""

    __slots__ = ("count",)
    count: list[int]

    def __eq__(self, other: object) -> bool:
        self.count[0] += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        self.count[0] += 1
        return str.__hash__(self)


def counted(text: str, count: list[int]) -> Counted:
    made = Counted(text)
    made.count = count
    return made


def entry(path: str) -> FileEntry:
    return FileEntry(path, 9, 0o644, 1, 1, 1, 1)


def wanted(number: int, count: list[int]) -> tuple[WantedFile, ...]:
    return tuple(
        WantedFile(counted(f"step_7/f{at}.pt", count), 9, "0" * 64) for at in range(number)
    )


def learning(number: int, _: Path) -> int:
    count = [0]
    files = wanted(number, count)
    half = number // 2
    plan = RestorePlan(
        root_key="step_7",
        valid=tuple(counted(str(f.path), count) for f in files[:half]),
        fetch=(),
        from_pins=(),
        place=tuple(replace(f, path=counted(str(f.path), count)) for f in files[half:]),
        quarantine=(),
        keep=frozenset(),
        pointers=(),
        touch=(),
    )
    chosen = Chosen("step_7", 7, None, files, (), ())
    assert len(proved(chosen, plan)) == number
    return count[0]


def planning(number: int, _: Path) -> int:
    """Everything that is there is newer, and goes."""
    count = [0]
    files = tuple(entry(counted(f"new_9/f{at}.pt", count)) for at in range(number))
    saves = tuple(
        FoundSave(
            counted(f"step_{at + 8}", count),
            "torch",
            (entry(counted(f"step_{at + 8}/m.pt", count)),),
            step=at + 8,
        )
        for at in range(number)
    )
    files = (*files, *(save.files[0] for save in saves))
    big = FoundSave("new_9", "torch", files[:number], step=9)
    snapshot = Snapshot(files, (), (), (big, *saves), (), ())
    chosen = Chosen("step_7", 7, None, wanted(number, count), (), ())
    plan = plan_restore(
        snapshot=snapshot, verdicts={}, chosen=chosen, local=LocalBytes({}, {}, {}, frozenset())
    )
    assert len(plan.quarantine) == number + 1
    return count[0]


def touching(number: int, root: Path) -> int:
    for at in range(number):
        torch_file(root / "step_7" / f"f{at}.pt", {"a": at}, payload=1)
    directory = Directory(
        root, run_id="r", layout="auto", include=(), expect=Expectations(world_size=1)
    )
    ((save, verdict),) = directory.look(writers=Writers(gone=True)).judged
    pin_found(directory, save, verdict=verdict, attempt=1, since=0.0)
    for file in save.files:
        os.utime(root / file.path, ns=(5, 5))
    count = [0]
    follow_touch(directory, tuple(counted(str(file.path), count) for file in save.files))
    assert directory.is_intact(directory.saves[0])
    return count[0]


def reusing(number: int, root: Path) -> int:
    """All files have one size."""
    count = [0]
    records, paths = [], []
    for at in range(number):
        path = root / f"{at}"
        path.write_bytes(f"{at:08d}".encode())
        paths.append(path)
        record = FileRecord(path=str(at), key=str(at), size=8, sha256="", crc64nvme="")
        # Validation would make a plain text of it.
        records.append(record.model_copy(update={"sha256": counted(hash_file(path)[1], count)}))
    earlier = Earlier(records)
    for at, path in enumerate(paths):
        found = earlier.equal(path, 8, cancel=None)
        assert found is not None
        assert found.path == str(at)
    return count[0]


@pytest.mark.parametrize("work", [learning, planning, touching, reusing])
def test_the_comparisons_grow_with_the_number_of_files(
    work: Callable[[int, Path], int], tmp_path: Path
) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    few.mkdir()
    many.mkdir()
    assert work(MANY, many) <= 2 * (MANY // FEW) * max(work(FEW, few), FEW)


def test_one_pinned_file_is_found_without_a_walk_over_the_others(tmp_path: Path) -> None:
    """A peer asks for each file of a save."""
    for at in range(FEW):
        torch_file(tmp_path / "step_7" / f"f{at}.pt", {"a": at}, payload=1)
    directory = Directory(
        tmp_path, run_id="r", layout="auto", include=(), expect=Expectations(world_size=1)
    )
    ((save, verdict),) = directory.look(writers=Writers(gone=True)).judged
    local = pin_found(directory, save, verdict=verdict, attempt=1, since=0.0)
    local = directory.update(local, name="f1-n1-s7")
    for file in save.files:
        count = [0]
        found = directory.pinned("f1-n1-s7", counted(file.path, count))
        assert found is not None
        assert (found[0].read_bytes(), found[1]) == (
            (tmp_path / file.path).read_bytes(),
            file.size,
        )
        assert count[0] <= 2
    assert directory.pinned("f1-n1-s7", "step_7/none.pt") is None
    assert directory.pinned("f1-n2-s8", save.files[0].path) is None
    directory.drop(local)
    assert directory.pinned("f1-n1-s7", save.files[0].path) is None
