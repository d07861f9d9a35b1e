"""What the last cluster takes with it: only what was noted, only what nobody else uses."""

import json
from pathlib import Path

import pytest

from devcluster import leftovers, nodeconfig


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root for records and three mount points below it, one there before."""
    points = [tmp_path / name for name in ("before", "empty", "used")]
    points[0].mkdir()
    monkeypatch.setattr(nodeconfig, "mount_points", lambda: points)
    monkeypatch.setattr(leftovers, "NETNS_DIR", tmp_path / "netns")
    return tmp_path


def test_noted_directories_go_with_the_last_cluster(machine: Path) -> None:
    root = machine / "state"
    leftovers.make_mount_points(root)
    leftovers.make_mount_points(root)
    (machine / "used" / "by-another").mkdir()
    (root / "other").mkdir()
    leftovers.forget_root(root)
    assert root.is_dir()
    assert (machine / "empty").is_dir()
    (root / "other").rmdir()
    leftovers.forget_root(root)
    assert not root.exists()
    assert not (machine / "empty").exists()
    assert (machine / "before").is_dir()
    assert (machine / "used" / "by-another").is_dir()


def test_limits_are_raised_once_and_put_back(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, proc = machine / "state", machine / "proc"
    proc.mkdir()
    for name, value in {"low": 128, "high": 9000, "chosen": 10}.items():
        (proc / name).write_text(str(value))
    monkeypatch.setattr(leftovers, "PROC_SYS", proc)
    monkeypatch.setattr(leftovers, "LIMITS", {"low": 1024, "high": 1024, "chosen": 1024})
    leftovers.raise_limits(root)
    leftovers.raise_limits(root)
    read = {path.name: int(path.read_text()) for path in proc.iterdir()}
    assert read == {"low": 1024, "high": 9000, "chosen": 1024}
    assert json.loads((root / leftovers.LIMITS_NOTE).read_text()) == {"low": 128, "chosen": 10}
    (proc / "chosen").write_text("5000")
    leftovers.forget_root(root)
    read = {path.name: int(path.read_text()) for path in proc.iterdir()}
    assert read == {"low": 128, "high": 9000, "chosen": 5000}
    assert not root.exists()
