"""Records of clusters and processes: read back whole, damaged ones never taken for good."""

import json
import os
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.processes import (
    Process,
    ProcessError,
    Registry,
    boot_id,
    kill,
    start_time,
    wait_until,
)
from devcluster.state import RECORD, Spec, StateError, free_slot, locked, names, read, write

SPEC = Spec("x", 3, nodes=2, gpus=4, audit=True, kcm_args=("--v=2",))


def test_a_record_reads_back_equal(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    write(tmp_path, SPEC)
    assert read(tmp_path) == SPEC


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 99}'])
def test_a_damaged_record_says_how_to_clear_it(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(StateError, match=rf"cannot be read .*down --name {tmp_path.name}"):
        read(tmp_path)


def test_a_slot_is_free_of_records_and_of_addresses(tmp_path: Path) -> None:
    for slot in (0, 2):
        (tmp_path / f"c{slot}").mkdir()
        write(tmp_path / f"c{slot}", replace(SPEC, slot=slot))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / RECORD).write_text("{")
    assert free_slot(tmp_path, in_use=set()) == 1
    assert free_slot(tmp_path, in_use={1, 3}) == 4
    with pytest.raises(StateError, match="all 16 address ranges are in use; `down`"):
        free_slot(tmp_path, in_use=set(range(16)))
    assert names(tmp_path) == ["c0", "c2", "damaged"]


def test_a_lock_survives_the_removal_of_its_directory(tmp_path: Path) -> None:
    target = tmp_path / "cluster"
    entered = threading.Event()

    def second() -> None:
        with locked(target):
            entered.set()

    with locked(target):
        waiter = threading.Thread(target=second)
        waiter.start()
        target.rmdir()
        assert not entered.is_set()
    waiter.join(50)
    assert entered.is_set()
    assert target.is_dir()


@pytest.fixture
def sleeper():
    child = subprocess.Popen(["sleep", "60"])
    yield child
    child.kill()
    child.wait()


def process_of(child: subprocess.Popen, **changes: int) -> Process:
    start = start_time(child.pid)
    assert start is not None
    return replace(Process("s", child.pid, start, "/dev/null"), **changes)


def test_a_reused_pid_is_another_process(sleeper: subprocess.Popen) -> None:
    ours = process_of(sleeper)
    stranger = replace(ours, start=ours.start - 1)
    assert ours.alive
    assert not stranger.alive
    assert replace(ours, boot=boot_id()).alive
    assert not replace(ours, boot="of another boot").alive
    kill(stranger)
    assert sleeper.poll() is None
    kill(ours)
    assert sleeper.wait(50) == -9


def test_a_zombie_is_not_alive(sleeper: subprocess.Popen) -> None:
    ours = process_of(sleeper)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not ours.alive


def test_the_registry_forgets_and_survives_damage(
    tmp_path: Path, sleeper: subprocess.Popen
) -> None:
    registry = Registry(tmp_path / "processes")
    assert registry.all() == []
    ours = process_of(sleeper)
    registry.record(ours)
    assert registry.get("s") == ours == registry.alive("s")
    (tmp_path / "processes" / "t.json").write_text("{")
    (tmp_path / "processes" / "u.json").write_text(json.dumps({"pid": 1}))
    assert registry.get("t") is None
    assert registry.all() == [ours]
    registry.forget("s")
    assert registry.get("s") is None


def test_waiting_ends_with_the_log_of_a_process_that_died(
    tmp_path: Path, sleeper: subprocess.Popen
) -> None:
    log = tmp_path / "s.log"
    log.write_text("bind: address already in use\n")
    process = replace(process_of(sleeper), log=str(log))
    kill(process)
    with pytest.raises(ProcessError, match=r"s ended while waiting for X.*\nbind: address"):
        wait_until(lambda: False, timeout=30, what="X", alive=(process,))
    with pytest.raises(ProcessError, match="waited 0 s for X"):
        wait_until(lambda: False, timeout=0, what="X")
