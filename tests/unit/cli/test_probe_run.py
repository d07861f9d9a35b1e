"""`rtj run --probe`: the same rule as for a gang, for one process on this machine."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from kit import toy_trainer

from tests.unit.cli.test_rtj_process import call, run_words, toy

CHECK = (
    "import os, sys; step = os.environ['RTJ_RESUME_STEP']; print('looked at step', step);"
    " sys.exit(7 if step in sys.argv[1:] else 0)"
)


def checked(*refused: str) -> tuple[str, ...]:
    return ("--probe", shlex.join([sys.executable, "-c", CHECK, *refused]))


def test_a_refused_save_is_passed_over_and_marked_and_two_alike_hold(tmp_path: Path) -> None:
    slow = ("--every", "25", "--step-seconds", "0.08")
    done = call(
        run_words(
            tmp_path, *toy(tmp_path, *slow, "--crash-at", "55"), options=("--max-restarts", "0")
        )
    )
    assert done.returncode == 1, done.stderr

    held = call(run_words(tmp_path, *toy(tmp_path, *slow), options=checked("25", "50")))
    assert held.returncode == 75, held.stderr
    for words in ("failed alike on 2 saves", "exit code 7", "looked at step", "--probe"):
        assert words in held.stderr
    assert "RESULT" not in held.stdout
    assert list((tmp_path / "store/me/toy/marks").rglob("*.json")) == []

    done = call(run_words(tmp_path, *toy(tmp_path, *slow), options=checked("50")))
    assert done.returncode == 0, done.stderr
    assert "ProbeFailed: f" in done.stderr
    assert "passed over" in done.stderr
    assert "at step 25" in done.stdout
    assert f"RESULT 100 {toy_trainer.expected(100)}" in done.stdout
    (mark,) = (json.loads(p.read_text()) for p in (tmp_path / "store/me/toy/marks").rglob("*.json"))
    assert mark["reason"] == "ProbeFailed"
