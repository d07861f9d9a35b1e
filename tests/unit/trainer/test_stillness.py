"""A trainer that does nothing is seen so, and what it is about is said before it is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit.supervised import Supervised, inner_pid, python, supervised
from rtj_api.wire import Look, SupervisorState
from rtj_sidecar.trainer.supervisor import stillness
from rtj_sidecar.trainer.supervisor.processes import Proc
from rtj_sidecar.trainer.supervisor.stillness import Stillness

WORKS = """
import os, time
while True:
    if os.path.exists(PLACE):
        time.sleep(600)
    sum(range(200000))
"""
DUMPS = """
import faulthandler, signal, time
faulthandler.register(signal.SIGUSR2, chain=False)
def waits_for_a_friend():
    time.sleep(600)
waits_for_a_friend()
"""


@contextmanager
def trainer(tmp_path: Path, script: str) -> Iterator[Supervised]:
    with supervised(tmp_path, python(script)) as one:
        one.go(1)
        one.until_running(1)
        yield one


def pid_of(one: Supervised, word: str) -> int:
    pid = one.until_running(1).trainer.pid
    assert pid is not None
    return inner_pid(pid, word)


def test_one_that_works_is_not_still_and_one_that_waits_is(tmp_path: Path) -> None:
    place = tmp_path / "wait"
    with trainer(tmp_path, WORKS.replace("PLACE", repr(str(place)))) as one:
        first = one.until(lambda s: s.sequence > 3)
        later = one.until(lambda s: s.written_at > first.written_at + 3)
        assert later.still is None
        place.touch()
        told = one.until(lambda s: s.still is not None).still
        assert told is not None
        assert told.kind == "still"
        place.unlink()


def test_a_stopped_one_is_told_apart(tmp_path: Path) -> None:
    with trainer(tmp_path, WORKS.replace("PLACE", repr(str(tmp_path / "never")))) as one:
        pid = pid_of(one, str(tmp_path / "never"))
        os.kill(pid, signal.SIGSTOP)
        one.until(lambda s: s.still is not None and s.still.kind == "stopped")
        one.link.look(Look(id="1"))
        state = one.until(lambda s: s.stacks is not None and s.stacks.done)
        assert state.stacks is not None
        assert any("stopped by a signal" in line for line in state.stacks.lines)
        os.kill(pid, signal.SIGCONT)
        one.until(lambda s: s.still is None)


def test_a_registered_dump_is_asked_for_and_kept(tmp_path: Path) -> None:
    with trainer(tmp_path, DUMPS) as one:
        one.until(lambda s: s.still is not None)
        one.link.look(Look(id="1", signal=int(signal.SIGUSR2)))
        state = one.until(lambda s: s.stacks is not None and s.stacks.done)
        assert state.stacks is not None
        assert any("waits_for_a_friend" in line for line in state.stacks.lines)
        assert is_running(one.state())


def test_a_signal_that_nobody_catches_is_not_sent(tmp_path: Path) -> None:
    with trainer(tmp_path, "import time; time.sleep(600)") as one:
        one.link.look(Look(id="1", signal=int(signal.SIGUSR1)))
        state = one.until(lambda s: s.stacks is not None and s.stacks.done)
        assert is_running(state)
        assert state.stacks is not None
        assert any("process" in line for line in state.stacks.lines)


def is_running(state: SupervisorState) -> bool:
    return state.trainer.state.value == "running"


def proc(state: str, ticks: int, pid: int = 7) -> dict[int, Proc]:
    fields = [state, "1", "1", "1", *["0"] * 7, str(ticks), "0", *["0"] * 6, "5"]
    return {pid: Proc(pid, f"{pid} (python) {' '.join(fields)}")}


def test_what_the_kernel_counts() -> None:
    looked = Stillness()
    ticks = 0
    for second in range(5):
        looked.look(proc("S", ticks), {7}, now=float(second))
        ticks += 50  # half a core
    assert looked.view is None
    for second in range(5, 8):
        looked.look(proc("S", ticks), {7}, now=float(second))
    assert looked.view is not None
    assert (looked.view["kind"], looked.view["since"]) == ("still", 5.0)
    looked.look(proc("D", ticks), {7}, now=8.0)
    assert (looked.view["kind"], looked.view["since"]) == ("blocked", 5.0)
    looked.look(proc("T", ticks), {7}, now=9.0)
    assert (looked.view["kind"], looked.view["since"]) == ("stopped", 8.0)
    looked.look(proc("S", ticks + 50), {7}, now=10.0)
    assert looked.view is None
    assert stillness.grown({1: 5}, {1: 9, 2: 4}) == 8


def seen_at(*moments: float, state: str = "S") -> Stillness:
    looked = Stillness()
    for moment in moments:
        looked.look(proc(state, 0), {7}, now=moment)
    return looked


def test_time_in_which_nobody_looked_is_no_stillness() -> None:
    """A machine that was paused, or a clock that was set, forwards or back."""
    looked = seen_at(0.0, 1.0, 2.0)
    assert looked.view is not None
    looked.look(proc("S", 0), {7}, now=3600.0)
    assert looked.view is None
    looked.look(proc("S", 0), {7}, now=3601.0)
    assert looked.view is not None
    assert looked.view["since"] == 3600.0
    looked.look(proc("S", 0), {7}, now=100.0)
    assert looked.view is None
    looked.look(proc("S", 0), {7}, now=120.0, apart=20.0)
    assert looked.view is not None, "a look that takes long is followed by a long wait"


def test_one_that_a_debugger_holds_is_not_still() -> None:
    assert seen_at(0.0, 1.0, 2.0, state="t").view is None


BUSY_SPY = """#!/bin/sh
i=0
while [ $i -lt 3000000 ]; do i=$((i+1)); done
"""


def test_what_looks_for_us_is_no_work_of_the_trainers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end each stillness for which it was asked, and no hang would ever be found."""
    spy = tmp_path / "bin" / "py-spy"
    spy.parent.mkdir()
    spy.write_text(BUSY_SPY)
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{spy.parent}:{os.environ['PATH']}")
    with trainer(tmp_path, "import time; time.sleep(600)") as one:
        before = one.until(lambda s: s.still is not None).still
        assert before is not None
        asked_at = one.state().written_at
        one.link.look(Look(id="1"))
        one.until(lambda s: s.stacks is not None and s.stacks.done)
        state = one.until(lambda s: s.written_at > asked_at + 3)
        assert state.still is not None
        assert state.still.since == before.since
