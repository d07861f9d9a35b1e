"""`rtj run` and a trainer that fails again, or that hangs: real processes, a directory as store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kit import toy_trainer
from rtj_api.rules.hang import Standing
from rtj_api.wire import (
    CallView,
    Candidate,
    FlightGroup,
    FlightView,
    PaceView,
    Report,
    Resume,
    StallView,
    TrainerState,
    TrainerView,
)
from rtj_cli.blaming import Trial, hang_of, judged
from unit.cli.test_rtj_process import call, run_words

# The toy's own steps and saves, and a fault of the test's choice before each step.
TROUBLED = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {kit!r})
import toy_trainer
marks, begun = Path({marks!r}), int(os.environ["RTJ_RESUME_STEP"] or 0)
real = time.sleep
made = [begun]
def sleep(seconds):
    made[0] += 1
    step, attempt = made[0], os.environ["RTJ_ATTEMPT"]
    {fault}
    real(seconds)
toy_trainer.time.sleep = sleep
sys.exit(toy_trainer.main())
"""


def troubled(tmp_path: Path, fault: str) -> list[str]:
    kit = str(Path(toy_trainer.__file__).parent)
    code = TROUBLED.format(kit=kit, marks=str(tmp_path), fault=fault)
    words = ["--dir", str(tmp_path / "out"), "--steps", "80", "--every", "10"]
    words += ["--step-seconds", "0.08"]
    return [sys.executable, "-u", "-c", code, *words]


def run(tmp_path: Path, fault: str, *options: str) -> subprocess.CompletedProcess[str]:
    return call(run_words(tmp_path, *troubled(tmp_path, fault), options=options))


def test_a_fault_that_follows_the_step_ends_the_run_early(tmp_path: Path) -> None:
    done = run(tmp_path, "if step == 53: real(1.2); raise ValueError('a bad batch')")
    assert done.returncode == 1, done.stderr
    assert "it follows the step" in done.stderr
    assert "Look at the data of steps 52 to 53" in done.stderr
    assert "Restart 2 of 10" in done.stderr
    assert "Restart 3 of 10" not in done.stderr
    # From the start and from the save, or from the save and from the one before it.
    assert "from 2 beginnings" in done.stderr


def test_a_save_from_which_nothing_goes_on_is_passed_over(tmp_path: Path) -> None:
    """The first save of step 50 is whole, and everything that begins from it fails."""
    done = run(
        tmp_path,
        "if step == 53 and attempt == '1': real(1.2); os._exit(7)\n"
        "    if step == 53 and begun == 50: real(1.2); raise ValueError('x')",
    )
    assert done.returncode == 0, done.stderr
    assert f"RESULT 80 {toy_trainer.expected(80)}" in done.stdout
    assert "at step 40" in done.stdout
    marks = [p.read_text() for p in (tmp_path / "store" / "me" / "toy" / "marks").rglob("*.json")]
    assert any('"poison"' in text for text in marks), marks


def test_a_trainer_that_hangs_is_killed_and_resumes(tmp_path: Path) -> None:
    fault = "if attempt == '1' and step == 33: print('it waits', flush=True); real(600)"
    done = run(tmp_path, fault, "--hang-timeout", "5")
    assert done.returncode == 0, done.stderr
    assert "attempt 1 hung: no step, no line and no moving save for 5 s" in done.stderr
    assert "What it was doing: process" in done.stderr
    assert "at step 30" in done.stdout
    assert f"RESULT 80 {toy_trainer.expected(80)}" in done.stdout


def test_a_hang_is_only_told_where_a_person_wants_that(tmp_path: Path) -> None:
    fault = "if step == 33: real(12)"
    done = run(tmp_path, fault, "--hang-timeout", "5", "--on-hang", "Report")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("attempt 1 hung:") == 1
    assert "Restart" not in done.stderr


# --- the judgement ---


def report(*, saves: int = 3, step: int | None = 52, tail: str = "", **fields: object) -> Report:
    trainer = TrainerView(
        state=TrainerState.EXITED, attempt=1, exit_code=1, tail=[tail], started_at=1.0, ended_at=9.0
    )
    listed = [
        Candidate(name=f"s{n}", step=n, durable=True, full_state=True) for n in (50, 40, 30)[:saves]
    ]
    base = {"job_uid": "j", "pod_uid": "p", "rank": 0, "boot_id": "b", "sequence": 1}
    progress = {"step": step, "source": "file", "first_step_at": None if step is None else 2.0}
    return Report.model_validate(
        {**base, "sent_at": 9.0, "trainer": trainer, "candidates": listed, "progress": progress}
        | fields
    )


BEGUN = Resume(run="me/toy", name="s50", step=50)


def test_the_first_fault_changes_nothing() -> None:
    found = judged(Trial(), report(tail="ValueError: x"), resume=BEGUN, attempt=1, now=9.0)
    assert (found.ends, found.why) == (None, "")
    assert len(found.trial.incidents) == 1
    assert found.trial.passed_over == {}


def test_the_second_alike_makes_the_save_suspect() -> None:
    trial = Trial()
    for attempt in (1, 2):
        found = judged(trial, report(tail="ValueError: x"), resume=BEGUN, attempt=attempt, now=9.0)
        trial = found.trial
    assert list(trial.passed_over) == ["s50"]
    assert [s.name for s in trial.suspects] == ["s50"]
    assert trial.after_progress().suspicions == trial.suspicions
    assert trial.after_progress().incidents == ()


@pytest.mark.parametrize("words", ["Xid (PCI:0000:3b:00): 79", "ncclSystemError: x"])
def test_no_other_node_is_proposed_on_one_machine(words: str) -> None:
    trial = Trial()
    for attempt in range(1, 4):
        found = judged(trial, report(tail=words), resume=BEGUN, attempt=attempt, now=9.0)
        trial = found.trial
        assert "node" not in found.why


def hung(now: float, *, timeout: float | None = None, **fields: object) -> str | None:
    trainer = TrainerView(state=TrainerState.RUNNING, attempt=3)
    stall = StallView(
        standing=Standing.STILL, since=100.0, pace=PaceView(usual=0.1), stacks=["at x"]
    )
    told = report(**{"stall": stall, "trainer": trainer, **fields})  # type: ignore[arg-type]
    return hang_of(told, attempt=3, now=now, timeout=timeout)


def test_a_silence_is_a_hang_from_its_limit_on() -> None:
    assert hung(129.9) is None
    found = hung(130.0)
    assert found is not None
    assert "What it was doing: at x" in found
    assert hung(104.9, timeout=5.0) is None
    assert hung(105.0, timeout=5.0) is not None


def test_nobody_hangs_who_is_not_silent_or_not_there() -> None:
    assert hung(999.0, stall=None) is None
    older = TrainerView(state=TrainerState.RUNNING, attempt=2)
    assert hung(999.0, trainer=older) is None
    assert hung(999.0, trainer=TrainerView(state=TrainerState.EXITED, attempt=3)) is None


def test_the_process_that_is_missing_is_named() -> None:
    waits = FlightGroup(name="0", begun=7, ended=6, open=CallView(seq=7, op="all_reduce"))
    views = [
        FlightView(process=0, groups=[waits]),
        FlightView(process=1, groups=[FlightGroup(name="0", begun=6, ended=6)]),
    ]
    found = hung(130.0, flights=views)
    assert found is not None
    assert "process 1" in found
