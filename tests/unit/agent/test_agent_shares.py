"""What one rank wrote of a save is a share of it, until somebody says that it is all."""

from __future__ import annotations

import json
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


def same_names(path: Path) -> list[str]:
    script = Path(habits.__file__).with_name("every_node.py")
    options = ["--out", str(path), "--steps", "100000", "--every", "10", "--step-seconds", "0.1"]
    return ["env", CODE, sys.executable, "-S", str(script), *options]


def test_a_slow_rank_is_waited_for_before_its_share_passes_for_all(tmp_path: Path) -> None:
    """Every node saves other bytes under one name: without its share, it would get another's."""
    gang = Gang(tmp_path, command=same_names)
    try:
        gang.begin()
        gang.ranks[0].until(lambda r: r.checkpoint.last_durable_step, seconds=60)
        agent = gang.ranks[1].agent
        assert agent is not None
        agent.send_signal(signal.SIGSTOP)
        # It waits for a name much longer than a rank that nobody knows is waited for.
        silent = gang.ranks[0].until(lambda r: r.checkpoint.pending_saves >= 4, seconds=60)
        agent.send_signal(signal.SIGCONT)
        step = silent.checkpoint.last_saved_step or 0
        gang.ranks[0].until(lambda r: (r.checkpoint.last_durable_step or 0) >= step, seconds=60)
        records = (tmp_path / "store/ns/gpt/manifests").glob("*.json")
        found = [json.loads(record.read_text()) for record in records]
        assert {tuple(record["ranks"]) for record in found} == {(0, 1)}
        assert len({record["step"] for record in found}) == len(found)
    finally:
        gang.end()
