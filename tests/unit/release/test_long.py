"""`make test` leaves the long tests out and says so; `make test-long` runs them and no other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import pytest

@pytest.mark.parametrize("case", ["short", pytest.param("long", marks=pytest.mark.long)])
def test_case(case):
    assert case == "short"

@pytest.mark.long
def test_whole():
    assert False
"""


def run(place: Path, *options: str, **environment: str) -> str:
    """What pytest says of `TESTS`; where it ran the long ones, they failed."""
    shutil.copy(ROOT / "tests" / "conftest.py", place)
    (place / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    (place / "test_it.py").write_text(TESTS)
    kept = {name: value for name, value in os.environ.items() if name != "RTJ_LONG"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(place)],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_what_is_left_out_is_counted_aloud_and_for_the_runs_last_lines(tmp_path: Path) -> None:
    told = tmp_path / "left-out"
    for options in ((), ("-n", "2")):
        said = run(tmp_path, *options, RTJ_LEFT_OUT=str(told))
        assert "LEFT OUT: 2 long tests" in said
        assert "1 passed, 2 skipped" in said
    assert told.read_text() == "2\n2\n"


def test_the_long_ones_run_where_they_are_asked_for(tmp_path: Path) -> None:
    assert "2 failed, 1 passed" in run(tmp_path, RTJ_LONG="1")
    said = run(tmp_path, "-m", "long", RTJ_LONG="1")
    assert "2 failed, 1 deselected" in said
    assert "LEFT OUT" not in said
