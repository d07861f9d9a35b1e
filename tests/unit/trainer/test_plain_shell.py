"""The supervisor for images without Python: a shell that keeps the same promises."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from kit.supervised import can_unshare, start_supervised, supervised, wait_for
from rtj_api.wire import Release
from rtj_sidecar.trainer.supervisor_link import is_stopped

SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]
SLEEPER = ["sh", "-c", "echo up; exec sleep 600"]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_waits_for_the_go_and_gives_environment_and_arguments(tmp_path: Path, shell: str) -> None:
    code = 'echo "$RTJ_ATTEMPT|$ODD|$0|$1|$2"; exit 3'
    command = ["sh", "-c", code, "at $(RTJ_ATTEMPT)$(RTJ_NOTHING)$(HOME)"]
    with supervised(tmp_path, command, shell=shell) as one:
        state = one.state()
        assert (state.trainer.state, state.python) == ("none", "")
        assert state.open_for_writing is None
        odd = 'it\'s "a" $(b) `c`\\'
        one.go(1, env={"RTJ_ATTEMPT": "1", "ODD": odd}, extra=("--resume", "/a b/c'd"))
        ended = one.until_exited(1).trainer
        assert (ended.exit_code, ended.signal, ended.asked_to_stop) == (3, None, False)
        assert one.output_text().strip() == f"1|{odd}|at 1$(RTJ_NOTHING)$(HOME)|--resume|/a b/c'd"


def test_a_shell_command_places_the_arguments_itself(tmp_path: Path, shell: str) -> None:
    command = ["sh", "-c", "echo run $(RTJ_RESUME_ARGS) $#"]
    with supervised(tmp_path, command, shell=shell) as one:
        one.go(1, env={"RTJ_RESUME_ARGS": "--resume 5"}, extra=("--resume", "5"))
        one.until_exited(1)
        assert one.output_text().strip() == "run --resume 5 0"


def test_killed_trainers_are_told_and_the_next_attempt_starts(tmp_path: Path, shell: str) -> None:
    with supervised(tmp_path, SLEEPER, shell=shell) as one:
        one.go(1)
        one.until_running(1)
        wait_for(lambda: one.output_text() == "up\n")
        children = _children(one.pid)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        ended = one.until_exited(1).trainer
        assert (ended.exit_code, ended.signal) == (-9, 9)
        one.go(1)
        one.go(2)
        one.until_running(2)
        wait_for(lambda: one.output_text() == "up\nup\n")


def test_stop_with_and_without_grace(tmp_path: Path, shell: str) -> None:
    deaf = ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"]
    with supervised(tmp_path, deaf, shell=shell) as one:
        one.go(1)
        one.until_running(1)
        wait_for(lambda: "up" in one.output_text())
        one.stop(1, grace=1)
        ended = one.until_exited(1)
        assert ended.trainer.signal == 9
        assert ended.trainer.asked_to_stop
        one.until(lambda s: is_stopped(s, up_to=1), why="what it forked is gone")
        one.stop(2)
        one.go(2)
        one.go(3)
        one.until_running(3)
        one.stop(3)
        one.until_exited(3)


def test_sigterm_is_forwarded_and_it_stays_until_released(tmp_path: Path, shell: str) -> None:
    polite = ["sh", "-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done"]
    with supervised(tmp_path, polite, shell=shell) as one:
        one.go(1)
        one.until_running(1)
        wait_for(lambda: "up" in one.output_text())
        one.terminate()
        ended = one.until_exited(1)
        assert ended.trainer.exit_code == 7
        assert ended.term_received_at is not None
        assert one.process.poll() is None
        one.go(2)
        one.release()
        assert one.process.wait(60) == 0
        assert one.termination_log.read_text() == "released"
        assert one.state().trainer.attempt == 1


def test_it_leaves_with_the_code_and_the_words_of_its_release(tmp_path: Path, shell: str) -> None:
    words = '{"tail":["it\'s \\"abandoned\\" $(x) `y` é\\n"],\n"n":1}'
    with supervised(tmp_path, ["sh", "-c", "exit 3"], shell=shell) as one:
        one.go(1)
        one.until_exited(1)
        one.link.release(Release(message=words, code=3))
        assert one.process.wait(60) == 3
        assert one.termination_log.read_text() == words
    with supervised(tmp_path, SLEEPER, shell=shell) as again:
        again.go(2)
        again.until_running(2)  # the release spoke of the last end only
        again.stop(2)
        again.until_exited(2)
        again.link.release(Release(message="abandoned"))
        assert again.process.wait(60) == 0
        assert again.termination_log.read_text() == "abandoned"


@pytest.mark.skipif(not can_unshare(), reason="needs a PID namespace, as a container has")
def test_it_is_not_stopped_while_what_the_trainer_forked_goes_on(
    tmp_path: Path, shell: str
) -> None:
    writer = "trap '' TERM HUP; while :; do echo x >>forked; sleep 0.01; done"
    code = f'cd {tmp_path}; ({writer}) & (setsid sh -c "sleep 1000 & sleep 1000" &); '
    wait = "while [ ! -s forked ] || [ ! -s execed ]; do sleep 0.01; done; exit 1"
    with supervised(tmp_path, ["sh", "-c", code + wait], shell=shell) as one:
        inside = os.readlink(f"/proc/{one.pid}/ns/pid")
        one.go(1)
        one.until_running(1)
        _exec_inside(one.pid, tmp_path / "execed")
        one.until_exited(1)
        one.stop(1)
        assert one.until(lambda s: is_stopped(s, up_to=1)).trainer.exit_code == 1
        assert _alive(inside, but=one.pid) == ["sleep 12345"], "and what an exec started goes on"
        one.go(2)
        one.until(lambda s: s.trainer.attempt == 2)
        assert "sleep 12345" not in _alive(inside, but=one.pid), "until the next attempt starts"


@pytest.mark.skipif(not can_unshare(), reason="needs a PID namespace, as a container has")
def test_a_restarted_container_starts_no_attempt_twice(tmp_path: Path, shell: str) -> None:
    one = start_supervised(tmp_path, SLEEPER, shell=shell)
    one.go(1)
    one.until_running(1)
    wait_for(lambda: one.output_text() == "up\n")
    one.kill_container()
    with supervised(tmp_path, SLEEPER, shell=shell) as again:
        state = again.until(lambda s: s.trainer.container_restarted)
        assert (state.trainer.state, state.trainer.attempt) == ("exited", 1)
        again.go(2)
        again.until_running(2)
        wait_for(lambda: again.output_text().count("up\n") == 2)


def test_a_command_that_is_not_there_is_an_exit(tmp_path: Path, shell: str) -> None:
    with supervised(tmp_path, ["/nonexistent/trainer"], shell=shell) as one:
        one.go(1)
        assert one.until_exited(1).trainer.exit_code == 127


def test_an_exec_probe_is_asked_only_while_a_trainer_runs(tmp_path: Path, shell: str) -> None:
    def probe(kind: str, *words: str) -> int:
        command = [shell, str(tmp_path / "bin/supervise"), "probe", "--kind", kind]
        return subprocess.run([*command, *words], capture_output=True).returncode

    with supervised(tmp_path, SLEEPER, shell=shell) as one:
        one.state()
        assert probe("liveness", "--timeout", "1", "--", "false") == 0
        assert probe("unsupervised", "--", "false") == 1
        one.go(1)
        one.until_running(1)
        assert probe("liveness", "--timeout", "1", "--", "false") == 1
        assert probe("readiness", "--timeout", "1", "--http", "http://127.0.0.1:1/") == 0


def _children(pid: int) -> list[int]:
    """The trainer among a supervisor's children: the other one is what wakes it."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    names = {int(p): Path(f"/proc/{p}/comm").read_text().strip() for p in found}
    return [child for child, name in names.items() if name == "sleep"]


def _exec_inside(pid: int, output: Path) -> None:
    """A process as `kubectl exec` starts one: with a parent outside."""
    with output.open("wb") as file:
        enter = ["nsenter", f"--pid=/proc/{pid}/ns/pid", "sh", "-c", "echo up; exec sleep 12345"]
        subprocess.Popen(enter, stdout=file, start_new_session=True)
    wait_for(lambda: output.read_text() == "up\n")


def _alive(namespace: str, *, but: int) -> list[str]:
    """The commands of a namespace's processes but its first and what helps that."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "ns/pid") != namespace or int(entry.name) == but:
                continue
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            continue
        helps = words in ("", "sleep 0.2", "sleep 1", "date +%s") or words.startswith("mv ")
        if not dead and not helps and "supervise" not in words:
            found.append(words)
    return found
