"""Trainers that use `rtj_trainer`, as processes of the interpreter that has PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kit.reference import trainer_python

ROOT = Path(__file__).resolve().parents[2]
TRAINERS = ROOT / "tests" / "kit" / "trainers" / "exact"
TOY = TRAINERS / "toy.py"
SECONDS = 840

needs_torch = pytest.mark.skipif(
    not trainer_python().exists(),
    reason=f"NOT TESTED: no {trainer_python()}: run scripts/setup trainer",
)


def environment(**told: str) -> dict[str, str]:
    """What a trainer finds around it: the library, and nothing else of this project."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RTJ_")}
    return {**kept, "PYTHONPATH": str(ROOT / "trainer_library"), "OMP_NUM_THREADS": "1", **told}


def matrix(
    cases: Sequence[Mapping[str, Any]], *, kills: int, seed: int, timeout: int = SECONDS
) -> list[dict[str, Any]]:
    """What `matrix.py` tells of each case; all of them in one process."""
    words = [str(trainer_python()), str(TRAINERS / "matrix.py")]
    words += ["--kills", str(kills), "--seed", str(seed)]
    done = subprocess.run(
        [*words, *(json.dumps(case) for case in cases)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def started(directory: Path, *words: object, **told: str) -> subprocess.Popen[str]:
    """toy.py, saving to `directory`."""
    told = {"RTJ_CHECKPOINT_DIR": str(directory), **told}
    return subprocess.Popen(
        [str(trainer_python()), str(TOY), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**told),
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """(code, stdout, stderr) once it has ended."""
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def gang(directory: Path, *words: object, world: int, **told: str) -> list[subprocess.Popen[str]]:
    """One toy.py a rank; they meet in a file."""
    meeting = tempfile.mktemp(prefix="rtj-meeting-", dir=directory.parent)
    words = (*words, "--ranks-file", meeting)
    return [
        started(directory, *words, RANK=str(rank), WORLD_SIZE=str(world), **told)
        for rank in range(world)
    ]


def last(out: str, start: str) -> str:
    """The last line that begins so."""
    found = [line for line in out.splitlines() if line.startswith(start)]
    assert found, out[-2000:]
    return found[-1]
