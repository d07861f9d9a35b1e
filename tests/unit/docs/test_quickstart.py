"""The laptop's part of docs/quickstart.md, carried out word for word."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from kit.pages import DOCS, ROOT, fences
from kit.podlike import ENVIRONMENT

PAGE = DOCS / "quickstart.md"
ME = "tests/unit/docs/test_quickstart.py"


def test_a_run_that_lost_its_disk_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    (block,) = [fence.body for fence in fences(PAGE) if fence.run_by == ME]
    programs = tmp_path / "bin"
    programs.mkdir()
    command = programs / "rtj"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rtj_cli "$@"\n')
    command.chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    shutil.copytree(ROOT / "examples" / "plain-python", tmp_path / "examples" / "plain-python")
    environment = ENVIRONMENT | {"PATH": f"{programs}:{os.environ['PATH']}"}

    done = subprocess.run(
        ["bash", "-e", "-c", block],
        cwd=tmp_path,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr

    steps = [int(step) for step in re.findall(r"^step (\d+)/", done.stdout, flags=re.MULTILINE)]
    starts = [step for before, step in zip((0, *steps), steps, strict=False) if step != before + 1]
    assert len(starts) == 1, f"one interruption: {starts}"
    assert (starts[0] - 1) % 50 == 0
    assert starts[0] > 1, "it went on from a checkpoint"
    alone = subprocess.run(
        [
            *(sys.executable, "examples/plain-python/train.py", "--out", "alone"),
            *("--steps", "250", "--step-seconds", "0"),
        ],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=True,
    )
    assert alone.stdout.splitlines()[-1] in done.stdout.splitlines()
    assert "s250" in done.stdout
