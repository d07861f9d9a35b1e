"""What one rank wrote of a save is a share of it, until somebody says that it is all."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.ganglike import Gang
from kit.trainers import habits
from kit.trainers.habits.work import expected
from rtj_api.wire import Report, SidecarPhase

CODE = f"PYTHONPATH={Path(__file__).parents[2]}"


def command(path: Path) -> list[str]:
    script = Path(habits.__file__).with_name("shards.py")
    options = ["--out", str(path), "--steps", "150", "--step-seconds", "0.05"]
    return ["env", CODE, sys.executable, "-S", str(script), *options]


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    made = Gang(tmp_path, command=command, mirror="never")
    yield made
    made.end()


def test_a_share_is_never_restored_alone(gang: Gang) -> None:
    """With `mirror: never` no rank ever has more than its own shard of a step."""
    gang.begin()
    gang.ranks[0].until(lambda r: (r.checkpoint.last_durable_step or 0) >= 10)
    for pod in gang.ranks:
        pod.kill_trainer(signal.SIGKILL)
    ended: list[Report] = [pod.until(lambda r: not r.settling) for pod in gang.ranks]
    assert all(report.pinned == [] for report in ended), "a share is told as whole"
    assert all(report.shares for report in ended)
    resume = gang.slow_path(2)
    assert (resume.step or 0) >= 10
    for rank, pod in enumerate(gang.ranks):
        pod.until(lambda r: r.phase is SidecarPhase.DRAINED, seconds=60)
        assert f"START {resume.step}" in pod.output()
        assert expected(150, seed=1000 * rank) in pod.output()
