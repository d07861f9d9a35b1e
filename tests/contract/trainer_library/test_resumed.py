"""What a resume did not bring back is named by the library itself, at the first step that shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit import exact
from kit.exact import needs_torch

pytestmark = [needs_torch, pytest.mark.timeout(900)]


def test_a_scheduler_that_was_forgotten_is_named_in_the_log_and_in_the_progress_file(
    tmp_path: Path,
) -> None:
    place, progress = tmp_path / "saves", tmp_path / "progress.jsonl"
    words = ("--steps", 30, "--every", 10)
    code, _, err = exact.ended(exact.started(place, *words, "--die-at", 14))
    assert code < 0, err
    process = exact.started(
        place, *words, "--without", "scheduler", RTJ_PROGRESS_FILE=str(progress)
    )
    code, out, err = exact.ended(process)
    assert code == 0, err
    assert "from 10 with" in out
    assert "in the save, and not registered: scheduler" in err
    assert "step 11: lr is" in err
    assert "no scheduler was registered: Run(scheduler=...)" in err
    lines = [json.loads(line) for line in progress.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(11, 31))
    assert lines[0]["resumed"].startswith("differs: step 11: lr is")
    assert {"loss", "lr", "samples", "batch_hash", "step_seconds"} <= set(lines[0])
    assert lines[0]["samples"] == 44
