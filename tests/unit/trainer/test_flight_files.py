"""Copies of what the flight recorder wrote in the trainer's container, for the sidecar to read."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from kit.supervised import python, supervised
from rtj_api.wire import Look
from rtj_sidecar.trainer.supervisor import flight

WRITES = """
import os, sys, time
prefix = os.environ["TORCH_FR_DUMP_TEMP_FILE"]
for rank in (2, 3):
    with open(prefix + str(rank), "w") as file: file.write("dump of %d" % rank)
with open(prefix + "x", "w") as file: file.write("not one")
print("written", flush=True)
if sys.argv[1] == "end": sys.exit(6)
time.sleep(600)
"""
PIPED = """
import os, time
name = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + "0.pipe"
os.mkfifo(name)
pipe = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
print("listens", flush=True)
while not os.read(pipe, 128): time.sleep(0.05)
with open(os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] + "0", "w") as file: file.write("asked for")
time.sleep(600)
"""


@pytest.mark.parametrize("end", ["end", "go on"])
def test_what_was_written_in_this_attempt_is_copied(tmp_path: Path, end: str) -> None:
    prefix = tmp_path / "dumps" / "rank_"
    prefix.parent.mkdir()
    old = Path(f"{prefix}1")
    old.write_text("of an older attempt")
    os.utime(old, (time.time() - 60, time.time() - 60))
    env = {"TORCH_FR_DUMP_TEMP_FILE": str(prefix)}
    with supervised(tmp_path, [*python(WRITES), end], env=env) as one:
        one.go(1)
        state = one.until(lambda s: len(s.flights) == 2)
        assert [f.process for f in state.flights] == [2, 3]
        texts = [(one.link.run / f.file).read_text() for f in state.flights]
        assert texts == ["dump of 2", "dump of 3"]
        if end == "end":
            assert one.until_exited(1).trainer.exit_code == 6


def test_an_end_is_told_with_them(tmp_path: Path) -> None:
    prefix = tmp_path / "rank_"
    env = {"TORCH_FR_DUMP_TEMP_FILE": str(prefix)}
    with supervised(tmp_path, [*python(WRITES), "end"], env=env) as one:
        one.go(1)
        assert len(one.until_exited(1).flights) == 2


def test_a_new_attempt_begins_with_none(tmp_path: Path) -> None:
    env = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "rank_")}
    code = WRITES.replace(
        "prefix =", "if os.environ['RTJ_ATTEMPT'] == '2': time.sleep(600)\nprefix ="
    )
    with supervised(tmp_path, [*python(code), "end"], env=env) as one:
        one.go(1, env={"RTJ_ATTEMPT": "1"})
        one.until(lambda s: len(s.flights) == 2)
        one.go(2, env={"RTJ_ATTEMPT": "2"})
        assert one.until_running(2).flights == []


def test_a_hung_process_that_opened_a_pipe_is_asked(tmp_path: Path) -> None:
    env = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "pipe_"),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "rank_"),
    }
    with supervised(tmp_path, python(PIPED), env=env) as one:
        one.go(1)
        one.until(lambda _: "listens" in one.output_text())
        one.link.look(Look(id="1"))
        state = one.until(lambda s: bool(s.flights))
        assert (one.link.run / state.flights[0].file).read_text() == "asked for"


def test_where_they_lie_without_a_word_of_the_users() -> None:
    found = flight.prefixes_of({"HOME": "/home/me"})
    assert found == ["/tmp/nccl_trace_rank_", "/home/me/.cache/torch/comm_lib_trace_rank_"]
    found = flight.prefixes_of({"HOME": "/h", "XDG_CACHE_HOME": "/c"})
    assert found[1] == "/c/torch/comm_lib_trace_rank_"


def test_no_link_no_pipe_and_nothing_large_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "MOST_BYTES", 10)
    (tmp_path / "rank_0").write_bytes(b"x" * 11)
    (tmp_path / "target").write_text("secret")
    (tmp_path / "rank_1").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "rank_2")
    (tmp_path / "rank_3").write_text("small")
    (tmp_path / "rank_\u00b2").write_text("of no number")
    run = tmp_path / "run"
    run.mkdir()
    one = flight.Flights(str(run))
    one.prefixes, one.attempt = [str(tmp_path / "rank_")], 1
    one.look(1, True)
    assert [f["process"] for f in one.view] == [3]


def test_a_file_is_no_pipe(tmp_path: Path) -> None:
    place = tmp_path / "0.pipe"
    place.write_text("kept")
    flight.write_to_pipe(str(place))
    assert place.read_text() == "kept"
