"""Asked to stop, all ranks save the same step and leave with 0; that is not the end of training."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from kit import exact
from kit.exact import needs_torch

pytestmark = [needs_torch, pytest.mark.timeout(900)]
SLOW = ("--step-seconds", 0.05)


def until_step(process: subprocess.Popen[str], step: int) -> str:
    """Reads its output up to that step."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith(f"step {step} "):
            return said
    raise AssertionError(f"it ended before step {step}: {process.communicate()[1]}")


def how_it_ended(place: Path) -> tuple[str, int]:
    said = json.loads((place / ".rtj_trainer" / "ended.json").read_text())
    return said["ended"], said["step"]


def test_a_signal_ends_it_with_0_and_the_next_start_goes_on_from_that_very_step(
    tmp_path: Path,
) -> None:
    place, other = tmp_path / "saves", tmp_path / "other"
    process = exact.started(place, "--steps", 60, *SLOW)
    until_step(process, 3)
    process.send_signal(signal.SIGTERM)
    code, out, err = exact.ended(process)
    assert code == 0, err
    assert "as asked (SIGTERM), saved" in err
    assert "weights" not in out, "what stands after the loop is not carried out"
    ended, step = how_it_ended(place)
    assert ended == "stopped"
    assert step >= 3
    code, out, err = exact.ended(exact.started(place, "--steps", 60))
    assert code == 0, err
    assert f"from {step} with" in out
    assert how_it_ended(place) == ("finished", 60)
    code, alone, err = exact.ended(exact.started(other, "--steps", 60))
    assert exact.last(alone, "weights").split()[1] == exact.last(out, "weights").split()[1]


def test_a_signal_to_the_whole_group_leaves_the_loaders_workers_to_the_last_step(
    tmp_path: Path,
) -> None:
    """As `kill -- -GROUP`, a shell or a batch system send it: without workers no step would end."""
    place = tmp_path / "saves"
    process = exact.started(place, "--steps", 400, "--workers", 2, *SLOW)
    until_step(process, 2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) >= 2
    for pid in (*map(int, children), process.pid):
        os.kill(pid, signal.SIGTERM)
    code, _, err = exact.ended(process)
    assert code == 0, err
    assert "as asked (SIGTERM), saved" in err
    assert how_it_ended(place)[0] == "stopped"


def test_an_agreed_stop_step_is_kept_to_the_step_by_every_rank(tmp_path: Path) -> None:
    place, stop = tmp_path / "saves", tmp_path / "stop"
    stop.write_text(json.dumps({"step": 7, "reason": "PodEvicted", "until": 0, "attempt": 1}))
    ranks = exact.gang(place, "--steps", 40, world=2, RTJ_STOP_FILE=str(stop), RTJ_ATTEMPT="1")
    for process in ranks:
        code, out, err = exact.ended(process)
        assert code == 0, err
        assert exact.last(out, "step ").startswith("step 6 "), "step 7 is done, and the last"
    assert how_it_ended(place) == ("stopped", 7)
    assert (place / "rtj_step_0000000007.pt").exists()


def test_a_signal_to_one_rank_stops_all_at_one_step(tmp_path: Path) -> None:
    place = tmp_path / "saves"
    ranks = exact.gang(place, "--steps", 400, *SLOW, world=2)
    said = until_step(ranks[1], 2)
    ranks[1].send_signal(signal.SIGTERM)
    ends = [exact.ended(process) for process in ranks]
    assert [code for code, _, _ in ends] == [0, 0], ends
    steps = [exact.last(text, "step ").split()[1] for text in (ends[0][1], said + ends[1][1])]
    assert steps[0] == steps[1]
    assert how_it_ended(place) == ("stopped", int(steps[0]) + 1)


@pytest.mark.parametrize("on_stop", ["exit", "return"])
def test_under_a_supervisor_a_rank_that_was_not_asked_waits_to_be_asked(
    tmp_path: Path, on_stop: str
) -> None:
    """Code 0 of a rank that nobody asked would mean that training is done."""
    place = tmp_path / "saves"
    told = {"RTJ_STOP_FILE": str(tmp_path / "stop"), "RTJ_ATTEMPT": "1"}
    words = ("--steps", 400, "--on-stop", on_stop, *SLOW)
    ranks = exact.gang(place, *words, world=2, **told)
    until_step(ranks[1], 2)
    ranks[1].send_signal(signal.SIGTERM)
    code, _, err = exact.ended(ranks[1])
    assert code == 0, err
    with pytest.raises(subprocess.TimeoutExpired):
        ranks[0].wait(timeout=1)
    ranks[0].send_signal(signal.SIGTERM)
    code, _, err = exact.ended(ranks[0])
    assert code == 0, err
