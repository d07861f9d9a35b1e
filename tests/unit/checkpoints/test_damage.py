"""The damage corpus: whatever happened to a save, the verdict is right, the right save is resumed
from, nothing of a file is executed, and time and memory are bounded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from damage.case import Case
from damage.looked import Amid, look
from damage.table import CASES
from damage.trees import TREES, made


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each tree once, to be copied."""
    root = tmp_path_factory.mktemp("trees")
    for name, tree in TREES.items():
        (root / name).mkdir()
        made(root / name, tree)
    return root


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.tree}-{case.name}")
def test_damage_is_seen_and_the_right_save_is_resumed(
    case: Case, good: Path, tmp_path: Path
) -> None:
    root = tmp_path / "run"
    shutil.copytree(good / case.tree, root, symlinks=True)
    amid = Amid(case.during, case.damage) if case.during else None
    if amid is None:
        case.damage(root)
    seen = look(
        root,
        world_size=case.of.world_size,
        include=case.of.include,
        with_weights=case.of.weights_only,
        amid=amid,
    )
    assert seen.caused == ()
    assert seen.resumed == case.resumed_key, seen.saves
    found = seen.saves.get(case.judged_key)
    if case.status is None:
        assert found is None, found
        return
    assert found is not None, seen.saves
    assert found[:2] == (case.status.value, case.reason.value), found


def test_there_are_many_cases_over_all_layouts() -> None:
    assert len(CASES) >= 250
    assert {case.tree for case in CASES} == set(TREES)
    names = [(case.tree, case.name) for case in CASES]
    assert len(set(names)) == len(names)
