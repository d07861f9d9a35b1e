"""The trees made by hand have the file names of the real ones, where CI has the real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kit.handmade import dcp_directory
from kit.handmade_grid import dcp_hf
from kit.handmade_sharded import accelerate, hf_trainer

_ANY_MODEL = {"generation_config.json"}
"""Depends on the model, not on the library's way to save."""

PAIRS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "hf": ("hf/checkpoint-2", lambda root: hf_trainer(root, step=2)),
    "hf, two ranks": ("hf-ddp/checkpoint-2", lambda root: hf_trainer(root, step=2, ranks=2)),
    "dcp": ("dcp/step-1", lambda root: dcp_directory(root, {"model.w": None})),
    "dcp-hf": ("dcp-hf/step-3", lambda root: dcp_hf(root)),
    "accelerate": ("accelerate/checkpoints/checkpoint_0", lambda root: accelerate(root, step=1)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_tree_made_by_hand_has_the_names_of_a_real_one(
    name: str, originals: Path, tmp_path: Path
) -> None:
    real, build = PAIRS[name]
    build(tmp_path / "made")
    assert _names(tmp_path / "made") == _names(originals / real) - _ANY_MODEL


def _names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
