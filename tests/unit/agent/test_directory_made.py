"""A checkpoint directory of which only the volume above is there is made for the trainer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rtj_api.reasons import Reason
from rtj_sidecar.checkpoints.types import Expectations
from rtj_sidecar.directory import Directory
from rtj_sidecar.directory_problem import DirectoryProblem


def directory(path: Path) -> Directory:
    return Directory(path, run_id="r", layout="auto", include=(), expect=Expectations())


def test_made_with_all_that_is_missing_above(tmp_path: Path) -> None:
    directory(tmp_path / "a" / "b").make(uid=os.getuid(), gid=os.getgid())
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as the sidecar is where it hands over")
def test_handed_to_the_trainers_user_and_never_one_with_content(tmp_path: Path) -> None:
    directory(tmp_path / "new" / "out").make(uid=1234, gid=1234)
    for path in (tmp_path / "new", tmp_path / "new" / "out"):
        assert path.stat().st_uid == 1234
    fetched = tmp_path / "fetched"
    (fetched / ".rtj").mkdir(parents=True)
    directory(fetched).make(uid=1234, gid=1234)
    assert fetched.stat().st_uid == 1234
    used = tmp_path / "used"
    used.mkdir()
    (used / "ckpt_1.pt").touch()
    directory(used).make(uid=1234, gid=1234)
    assert used.stat().st_uid == 0


def test_what_stands_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryProblem) as raised:
        directory(tmp_path / "file" / "out").make(uid=os.getuid(), gid=os.getgid())
    assert raised.value.reason is Reason.PATH_NOT_WRITABLE
    assert "file/out" in raised.value.message
