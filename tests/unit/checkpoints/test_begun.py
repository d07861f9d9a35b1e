"""What a trainer that was killed before its first file had a name leaves, at a restore."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.handmade import torch_bytes
from kit.put_back import look, put_back, ship
from rtj_sidecar.checkpoints.restore_plan import plan_set_aside


def a_save(root: Path, name: str, *, step: int) -> None:
    place = root / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(torch_bytes({"step": step, "model": {}, "optimizer": {}}))


def names(root: Path) -> set[str]:
    found = (path.relative_to(root) for path in root.rglob("*"))
    return {str(path) for path in found if path.parts[0] != ".rtj"}


@pytest.mark.parametrize(
    ("saves", "begun", "gone"),
    [
        (["step_2/a.pt"], "step_3/.tmpAhQnHt", True),
        (["step_2/a.pt"], "step_3/", True),
        (["step_2/a.pt"], "step_10/", True),
        (["step_9/a.pt"], "step_10/part.bin", True),
        # Not in the way: lower, of another name, or below another directory.
        (["step_2/a.pt"], "step_1/", False),
        (["step_2/a.pt"], "samples_3/picture.png", False),
        (["step_2/a.pt"], "logs/step_3/", False),
        # A run's directory with its logs, beside the run that is resumed.
        (["version_0/last.pt"], "version_1/metrics.csv", False),
        (["version_0/last.pt"], "version_1/.tmpAhQnHt", True),
    ],
)
def test_a_directory_that_looks_newer_does_not_stay(
    tmp_path: Path, saves: list[str], begun: str, gone: bool
) -> None:
    root = tmp_path / "run"
    for at, name in enumerate(saves):
        a_save(root, name, step=at + 2)
    left = root / begun
    (left if begun.endswith("/") else left.parent).mkdir(parents=True)
    if not begun.endswith("/"):
        left.write_bytes(b"half")
    snapshot, verdicts, _ = look(root)
    (save,) = (s for s in snapshot.saves if verdicts[s.identity].candidate)
    put_back(ship(root, save, snapshot, into=tmp_path / "store"), root)
    assert (begun.rstrip("/") not in names(root)) == gone
    assert set(saves) <= names(root)
    assert begun.split("/")[0] in names(root) or gone
    aside = {path.name for path in (root / ".rtj").rglob("*")}
    assert (begun.split("/")[0] in aside) == gone, "nothing is deleted"


@pytest.mark.parametrize(
    ("lying", "going"),
    [
        (["step_1/.tmpAhQnHt"], ("step_1",)),
        (["checkpoint-5/model.safetensors.tmp", "checkpoint-5/sub/.part"], ("checkpoint-5",)),
        (["shard_1/data.bin"], ()),
        (["shard_1/data.bin", "shard_1/.tmp"], ()),
        (["data/.tmp"], ()),
    ],
)
def test_a_start_from_nothing_leaves_no_half_begun_save(
    tmp_path: Path, lying: list[str], going: tuple[str, ...]
) -> None:
    for name in lying:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"half")
    assert plan_set_aside(look(tmp_path)[0]).quarantine == going
