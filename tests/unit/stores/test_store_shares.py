"""A store on the checkpoint directory's own volume: shared, not copied."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from kit.stored import MIB, problem
from rtj_api.reasons import Reason
from rtj_sidecar.stores.local import hash_file
from rtj_sidecar.stores.open import kept_in

from devcluster.node import file_system


def test_a_store_on_the_same_volume_shares_what_it_keeps(tmp_path: Path) -> None:
    path = tmp_path / "save.pt"
    path.write_bytes(os.urandom(3 * MIB))
    store = kept_in(tmp_path)
    done = store.upload_file("run/a/save.pt", path)
    there = tmp_path / ".rtj" / "store" / "run" / "a" / "save.pt"
    assert (done.size, done.sha256, done.crc64nvme) == hash_file(path)
    has_reflinks = file_system(tmp_path) in ("btrfs", "xfs")
    assert has_reflinks or there.samefile(path)
    assert os.listdir(there.parent) == ["save.pt"], "no temporary name is left"
    assert store.upload_file("run/a/save.pt", path) == done, "again, after a lost answer"
    path.unlink()
    assert store.sha256("run/a/save.pt") == done.sha256, "rotated away, and still kept"


def test_what_cannot_be_shared_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    path = tmp_path / "save.pt"
    path.write_bytes(b"x" * 1000)
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr("fcntl.ioctl", refuse)
    done = kept_in(tmp_path).upload_file("run/save.pt", path)
    there = tmp_path / ".rtj" / "store" / "run" / "save.pt"
    assert not there.samefile(path)
    assert done.sha256 == hash_file(path)[1]
    assert os.listdir(there.parent) == ["save.pt"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EIO])
@pytest.mark.parametrize("step", ["share", "hash_file"])
def test_a_volume_that_fails_while_it_shares_is_the_stores_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    path = tmp_path / "save.pt"
    path.write_bytes(b"x" * 1000)
    store = kept_in(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(f"rtj_sidecar.stores.file.{step}", fail)
        found = problem(lambda: store.upload_file("run/save.pt", path))
    assert found.transient
    assert (found.reason == Reason.DISK_FULL) is (number in (errno.ENOSPC, errno.EDQUOT))
    assert os.listdir(tmp_path / ".rtj" / "store" / "run") == []
    assert store.upload_file("run/save.pt", path).size == 1000


def test_a_file_that_is_gone_is_the_sources_trouble(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        kept_in(tmp_path).upload_file("run/save.pt", tmp_path / "gone.pt")
