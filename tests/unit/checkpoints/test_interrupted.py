"""Real saves, cut off at every file and in the middle of every file: none of it is resumed from,
and the save before stays a candidate."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.checkpoint_looks import judged
from kit.interrupted import interrupted
from rtj_sidecar.checkpoints.types import Expectations


@pytest.mark.parametrize(
    ("name", "ranks"),
    [("accelerate/checkpoints", 1), ("hf", 1), ("hf-ddp", 2), ("dcp", 2), ("dcp-hf", 2)],
)
def test_a_save_cut_off_anywhere_is_no_candidate(
    name: str, ranks: int, originals: Path, tmp_path: Path
) -> None:
    expect = Expectations(world_size=ranks)
    root = tmp_path / name  # Accelerate's own naming counts on the directory's name
    root.parent.mkdir(parents=True, exist_ok=True)
    found = judged(originals / name, expect=expect)
    newest = max(found, key=lambda key: found[key][0].step or 0)
    save, _ = found[newest]
    states = 0
    for state in interrupted(originals / name, save, into=root):
        seen = judged(root, expect=expect)
        candidates = {key for key, (_, verdict) in seen.items() if verdict.candidate}
        assert candidates == set(found) - {newest}, state
        states += 1
    assert states >= 2 * len(save.files) - 1
