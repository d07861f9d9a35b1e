"""A trial as the supervisor runs it: once, in time, and leaving nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.supervised import Supervised, can_unshare, python, start_supervised, supervised, wait_for
from rtj_api.wire import Trial, TrialView
from rtj_sidecar.trainer.supervisor_link import is_stopped

SLEEPER = python("import time; print('up', flush=True); time.sleep(600)")


def tried(one: Supervised, words: list[str], *, name: str = "a", **fields: object) -> TrialView:
    """How that trial ended."""
    given = {"attempt": 1, "timeout_seconds": 30, **fields}
    one.link.trial(Trial(id=name, command=words, **given))  # type: ignore[arg-type]
    state = one.until(lambda s: s.trial is not None and s.trial.id == name and s.trial.ended)
    assert state.trial is not None
    return state.trial


def test_it_passes_with_its_environment_and_then_the_trainer_may_go(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.argv[1], os.environ['RTJ_RESUME_STEP'], flush=True)"
    with supervised(tmp_path, SLEEPER) as one:
        env = {"RTJ_RESUME_CHECKPOINT": "/c/ckpt_4.pt", "RTJ_RESUME_STEP": "4"}
        view = tried(one, [*python(code), "$(RTJ_RESUME_CHECKPOINT)"], env=env)
        assert (view.exit_code, view.tail) == (0, ["/c/ckpt_4.pt 4"])
        assert [view.timed_out, view.stopped, view.lost] == [False] * 3
        assert "/c/ckpt_4.pt 4" in one.output_text()
        one.go(1)
        assert one.until_running(1).trainer.tail == []  # its output is not the trainer's


def test_the_same_trial_is_never_run_twice(tmp_path: Path) -> None:
    count = python(f"open({str(tmp_path / 'runs')!r}, 'a').write('x')")
    with supervised(tmp_path, SLEEPER) as one:
        tried(one, count)
        tried(one, count)  # what a sidecar does that comes back
        assert (tmp_path / "runs").read_text() == "x"
        tried(one, count, name="b")
        assert (tmp_path / "runs").read_text() == "xx"


FAILURES = {
    "a code": (python("print('no good'); raise SystemExit(3)"), 3, "no good"),
    "a signal": (python("import os; os.kill(os.getpid(), 11)"), -11, ""),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_has_its_code_and_last_lines(tmp_path: Path, case: str) -> None:
    words, code, said = FAILURES[case]
    with supervised(tmp_path, SLEEPER) as one:
        view = tried(one, words)
        assert view.exit_code == code
        assert view.tail == ([said] if said else [])


@pytest.mark.parametrize("command", ["/nonexistent", "/etc/passwd"])
def test_a_command_that_cannot_be_executed_says_so(tmp_path: Path, command: str) -> None:
    with supervised(tmp_path, SLEEPER) as one:
        view = tried(one, [command])
        assert view.exit_code is None
        assert command in (view.not_run or "")


LEAVES = (
    "import os, sys, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        open(sys.argv[1], 'w').write(str(os.getpid()))\n"
    "        time.sleep(600)\n"
    "    os._exit(0)\n"
    "while not (os.path.exists(sys.argv[1]) and open(sys.argv[1]).read()): time.sleep(0.01)\n"
)


@pytest.mark.parametrize("end", ["raise SystemExit(0)", "time.sleep(600)"])
def test_nothing_is_left_of_it_not_even_a_daemon(tmp_path: Path, end: str) -> None:
    place = tmp_path / "daemon"
    with supervised(tmp_path, SLEEPER, alone=True) as one:
        limit = 30 if "Exit" in end else 2
        view = tried(one, [*python(LEAVES + end), str(place)], timeout_seconds=limit)
        assert view.timed_out == ("sleep" in end)
        daemon = Path("/proc") / place.read_text()
        wait_for(lambda: not daemon.exists() or "(zombie)" in (daemon / "status").read_text())
        one.until(lambda s: s.lingering == 0)
        one.go(1)
        one.until_running(1)


def test_a_stop_of_its_attempt_ends_it_and_says_nothing_of_the_save(tmp_path: Path) -> None:
    with supervised(tmp_path, SLEEPER) as one:
        one.link.trial(Trial(id="a", attempt=3, command=SLEEPER, timeout_seconds=60))
        one.until(lambda s: s.trial is not None and not s.trial.ended)
        one.stop(2)
        state = one.until(lambda s: s.stopped_attempt == 2)
        assert not is_stopped(state, up_to=2)  # it still runs
        one.stop(3)
        state = one.until(lambda s: s.trial is not None and s.trial.ended)
        assert state.trial is not None
        assert state.trial.stopped
        one.until(lambda s: is_stopped(s, up_to=3))


def test_the_end_of_the_pod_ends_it(tmp_path: Path) -> None:
    with supervised(tmp_path, SLEEPER) as one:
        one.link.trial(Trial(id="a", attempt=1, command=SLEEPER, timeout_seconds=60))
        one.until(lambda s: s.trial is not None and not s.trial.ended)
        one.terminate()
        state = one.until(lambda s: s.trial is not None and s.trial.ended)
        assert state.trial is not None
        assert state.trial.stopped


def test_it_never_meets_a_trainer(tmp_path: Path) -> None:
    with supervised(tmp_path, SLEEPER) as one:
        one.go(1)
        one.until_running(1)
        one.link.trial(Trial(id="a", attempt=2, command=SLEEPER, timeout_seconds=60))
        one.stop(1)  # only now it may begin
        state = one.until(lambda s: s.trial is not None and s.trial.id == "a")
        assert state.trainer is None or state.trainer.exit_code is not None  # not beside it
        assert state.trial is not None
        assert not state.trial.ended
        one.stop(2)
        state = one.until(lambda s: s.trial is not None and s.trial.ended)
        assert state.trial is not None
        assert state.trial.stopped


@pytest.mark.skipif(not can_unshare(), reason="needs PID namespaces")
def test_one_that_the_container_died_under_is_lost_and_not_run_again(tmp_path: Path) -> None:
    marks = tmp_path / "runs"
    words = python(f"open({str(marks)!r}, 'a').write('x'); print('loading', flush=True)")
    words[-1] += "; import time; time.sleep(600)"
    one = start_supervised(tmp_path, SLEEPER)
    one.link.trial(Trial(id="a", attempt=1, command=words, timeout_seconds=60))
    wait_for(lambda: marks.exists() and "loading" in one.output_text())
    one.kill_container()
    with supervised(tmp_path, SLEEPER) as again:
        state = again.until(lambda s: s.trial is not None and s.trial.ended)
        assert state.trial is not None
        assert (state.trial.lost, state.trial.exit_code) == (True, None)
        assert state.trial.tail == ["loading"]
        assert tried(again, words).lost
        assert marks.read_text() == "x"
