"""A process that is stopped for a while: it does nothing, then it goes on; never another one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.processes import Process, ProcessError, boot_id, start_time, stopped, wait_until


@pytest.fixture
def sleeper() -> Iterator[Process]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    start = start_time(child.pid)
    assert start is not None
    yield Process("sleeper", child.pid, start, "", boot_id())
    child.kill()
    child.wait()


def state_of(process: Process) -> str:
    stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
    return stat[stat.rindex(")") + 2]


def test_it_is_stopped_and_goes_on(sleeper: Process) -> None:
    with stopped(sleeper):
        wait_until(lambda: state_of(sleeper) == "T", timeout=20, what="it is stopped")
    wait_until(lambda: state_of(sleeper) != "T", timeout=20, what="it goes on")


def test_it_goes_on_after_an_error_too(sleeper: Process) -> None:
    with pytest.raises(ValueError, match="oops"), stopped(sleeper):
        raise ValueError("oops")
    wait_until(lambda: state_of(sleeper) != "T", timeout=20, what="it goes on")


def test_another_process_of_that_number_is_left_alone(sleeper: Process) -> None:
    other = replace(sleeper, start=sleeper.start + 1)
    with pytest.raises(ProcessError, match="has ended"), stopped(other):
        pass
    assert state_of(sleeper) != "T"
