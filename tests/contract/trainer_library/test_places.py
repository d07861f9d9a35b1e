"""Wherever between or within epochs a save is made, PyTorch's own loaders go on from there."""

from __future__ import annotations

import subprocess

import pytest
from kit import exact
from kit.exact import needs_torch
from kit.reference import trainer_python

pytestmark = [needs_torch, pytest.mark.timeout(900)]


def test_each_kind_of_loader_goes_on_from_a_save_at_any_place() -> None:
    done = subprocess.run(
        [str(trainer_python()), str(exact.TRAINERS / "places.py")],
        capture_output=True,
        text=True,
        timeout=exact.SECONDS,
        env=exact.environment(),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count(" ok\n") == 11
