"""`rtj plan`, against the playbook's figures and the formulas' vectors."""

from __future__ import annotations

import json

import pytest
from rtj_cli import planning
from rtj_cli.__main__ import assembled
from typer.testing import CliRunner


def test_the_largest_public_run() -> None:
    """405 billion parameters on 2,048 nodes: 4.86 TB, interrupted every 1.803 h (C1)."""
    found = planning.plan(parameters=405e9, nodes=2048, stall=None, step=None)
    assert found["stateBytes"] == 4.86e12
    assert found["mttiSeconds"] / 3600 == pytest.approx(1.803, abs=5e-4)
    assert found["saveEverySeconds"] == pytest.approx(found["mttiSeconds"] / 10, abs=0.1)
    assert found["durableEverySeconds"] == pytest.approx(4 * found["saveEverySeconds"], abs=1)
    needed = 4.86e12 / found["durableEverySeconds"]
    assert found["neededBytesPerSecond"] == pytest.approx(needed, rel=1e-4)
    assert found["perNodeBytesPerSecond"] == pytest.approx(needed / 2048, rel=1e-4)
    assert found["saveEverySteps"] is None


def test_a_known_stall_and_step() -> None:
    """Of the vector of C3: a stall of 45 s, an interruption every 150 minutes, steps of 12 s."""
    rate = 24 * 60 / 150
    found = planning.plan(parameters=1, nodes=1, stall=45, step=12, per_node_day=rate)
    assert found["mttiSeconds"] == 9000
    assert found["saveEverySeconds"] / 60 == pytest.approx(14.504, abs=2e-3)
    assert found["saveEverySteps"] == 73


def test_the_command() -> None:
    runner = CliRunner()
    words = ["plan", "--parameters", "70e9", "--nodes", "16", "--stall", "30", "--step", "5"]
    told = runner.invoke(assembled(), [*words, "-o", "json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout) == planning.plan(parameters=70e9, nodes=16, stall=30, step=5)
    table = runner.invoke(assembled(), words)
    assert "840.0 GB" in table.stdout
    refused = runner.invoke(assembled(), ["plan", "--parameters", "0"])
    assert refused.exit_code == 2
