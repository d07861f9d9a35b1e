"""The trainer that saves on a signal, as real PyTorch: one rank is told, and all save one step."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit import manifests, tools
from kit.trainers import habits

ROOT = Path(__file__).resolve().parents[3]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.contract
@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_all_ranks_save_where_one_was_told(tmp_path: Path, number: signal.Signals) -> None:
    try:
        packages = manifests.site_packages()
    except tools.ToolMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    script = Path(habits.__file__).with_name("told_by_signal.py")
    command = [sys.executable, "-u", str(script), "--out", str(tmp_path)]
    command += ["--steps", "100000", "--every", "100000", "--step-seconds", "0.05"]
    env = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'tests'}:{packages}",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
    }
    logs = [tmp_path / f"log{rank}" for rank in (0, 1)]
    ranks = []
    for rank, log in enumerate(logs):
        with log.open("w") as out:
            ranks.append(subprocess.Popen(command, env={**env, "RANK": str(rank)}, stdout=out))
    try:
        end = time.monotonic() + 150
        while "step 5/" not in logs[1].read_text() and time.monotonic() < end:
            time.sleep(0.05)
        ranks[1].send_signal(number)
        assert [one.wait(60) for one in ranks] == [0, 0]
    finally:
        for one in ranks:
            one.kill()
    ends = [re.findall(r"SAVED AND ENDS AT (\d+)", log.read_text()) for log in logs]
    assert ends[0] == ends[1]
    assert [path.name for path in tmp_path.glob("*.pt")] == [f"step_{ends[0][0]}.pt"]
