"""Real checkpoints, copied for each test that wants to damage them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.checkpoint_fixtures import real_checkpoints, trainer_python
from kit.tools import ToolMissing


@pytest.fixture(scope="session")
def trainer() -> Path:
    try:
        return trainer_python()
    except ToolMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(f"CI needs real frameworks: {missing}")
        pytest.skip(f"no real frameworks here: {missing}")


@pytest.fixture(scope="session")
def originals(trainer: Path) -> Path:
    return real_checkpoints()


@pytest.fixture
def fresh(originals: Path, tmp_path: Path) -> Callable[[str], Path]:
    """`fresh("hf")`: a private copy of one directory of real checkpoints, times kept."""

    def copy(name: str) -> Path:
        place = tmp_path / name.replace("/", "-")
        shutil.copytree(originals / name, place, symlinks=True)
        return place

    return copy
