"""The counting trainer: its digest shows a lost step, and its files are what torch.save writes."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from kit.manifests import ROOT
from kit.trainers import counter

SCRIPT = ROOT / "tests" / "kit" / "trainers" / "counter.py"


def run(out: Path, *arguments: str) -> list[str]:
    command = [sys.executable, str(SCRIPT), "--out", str(out), "--step-seconds", "0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.splitlines()


def test_a_resumed_count_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = run(tmp_path, "--steps", "12", "--save-every", "5")
    assert whole[0].startswith("START 0 ")
    resumed = run(tmp_path, "--steps", "12", "--resume", str(tmp_path / "step_0000005.pt"))
    assert resumed[0].startswith("START 5 ")
    assert resumed[-1] == whole[-1]
    assert resumed[1].startswith("STEP 6 ")


def test_a_skipped_or_repeated_step_ends_otherwise() -> None:
    def count(steps: list[int]) -> int:
        state = 1
        for step in steps:
            state = counter.next_state(state, step)
        return state

    assert count([1, 2, 3]) != count([1, 3])
    assert count([1, 2, 3]) != count([1, 2, 2, 3])


def test_the_file_has_the_members_of_torch_save(tmp_path: Path) -> None:
    path = tmp_path / "step_0000007.pt"
    counter.write_checkpoint(path, step=7, state=9, floats=4)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            f"step_0000007/{member}"
            for member in ("data.pkl", "byteorder", "data/0", "data/1", "version")
        ]
        assert archive.getinfo("step_0000007/data/0").file_size == 16
    assert counter.read_checkpoint(path) == (7, 9)
    assert "torch" not in sys.modules


def test_a_torn_file_is_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "step_0000007.pt"
    counter.write_checkpoint(path, step=7, state=9)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(zipfile.BadZipFile):
        counter.read_checkpoint(path)
