"""The supervisor as a real process: every promise of its docstring, seen from outside."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from kit.supervised import can_unshare, python, start_supervised, supervised, wait_for
from rtj_api.wire import Release, TrainerState
from rtj_sidecar.trainer.supervisor_link import is_stopped

SLEEPER = python("import time; print('up', flush=True); time.sleep(600)")


def test_waits_for_the_go_then_starts_with_its_environment_and_arguments(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.argv[1:], os.environ['RTJ_ATTEMPT'], flush=True)"
    with supervised(tmp_path, [*python(code), "--x=$(RTJ_RESUME_STEP)", "$(OTHER)"]) as one:
        assert one.state().trainer.state is TrainerState.NONE
        one.go(
            3,
            env={"RTJ_ATTEMPT": "3", "RTJ_RESUME_STEP": "40"},
            extra=("--resume", "$(RTJ_RESUME_STEP)", "$(RTJ_UNKNOWN)"),
        )
        state = one.until_exited(3)
        assert state.trainer.exit_code == 0
        assert not state.trainer.asked_to_stop
        expected = "['--x=40', '$(OTHER)', '--resume', '40', '$(RTJ_UNKNOWN)'] 3"
        assert expected in one.output_text()
        assert state.trainer.tail == [expected]


def test_a_shell_places_the_resume_arguments_itself(tmp_path: Path) -> None:
    script = "echo got $(RTJ_RESUME_ARGS); echo $0"
    with supervised(tmp_path, ["sh", "-c", script]) as one:
        one.go(1, env={"RTJ_RESUME_ARGS": "--resume '/a b/c'"}, extra=("--resume", "/a b/c"))
        assert one.until_exited(1).trainer.tail == ["got --resume /a b/c", "sh"]


def test_records_code_signal_tail_and_the_torchelastic_error(tmp_path: Path) -> None:
    code = (
        "import os, sys, json\n"
        "json.dump({'message': {'message': 'RuntimeError: boom'}},"
        " open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\n"
        "print('10%\\r20%\\rlast', flush=True); print('why', file=sys.stderr, flush=True)\n"
        "sys.exit(7) if os.environ['HOW'] == 'code' else os.kill(os.getpid(), 11)\n"
    )
    with supervised(tmp_path, python(code)) as one:
        one.go(1, env={"HOW": "code"})
        trainer = one.until_exited(1).trainer
        assert (trainer.exit_code, trainer.signal) == (7, None)
        assert sorted(trainer.tail) == ["10%", "20%", "last", "why"]
        assert trainer.error == "RuntimeError: boom"
        one.go(2, env={"HOW": "signal"})
        trainer = one.until_exited(2).trainer
        assert (trainer.exit_code, trainer.signal) == (-11, 11)
        assert trainer.ended_at is not None
        assert trainer.started_at is not None
        assert trainer.ended_at >= trainer.started_at


@pytest.mark.parametrize(("command", "code"), [("/nonexistent", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_run_is_an_exit(tmp_path: Path, command: str, code: int) -> None:
    with supervised(tmp_path, [command]) as one:
        one.go(1)
        trainer = one.until_exited(1).trainer
        assert trainer.exit_code == code
        assert command in trainer.tail[0]


def test_stop_without_grace_kills_at_once_even_what_ignores_sigterm(tmp_path: Path) -> None:
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        "print('ready', flush=True); time.sleep(600)\n"
    )
    with supervised(tmp_path, python(code)) as one:
        one.go(1)
        wait_for(lambda: "ready" in one.output_text())
        one.stop(1)
        state = one.until(lambda s: is_stopped(s, up_to=1))
        assert state.trainer.signal == signal.SIGKILL
        assert state.trainer.asked_to_stop
        assert state.lingering == 0
        one.go(1)  # the same attempt, and an older one, are never started again
        one.go(0)
        one.go(2)
        assert one.until_running(2).trainer.attempt == 2


def test_stop_with_grace_lets_the_trainer_end_by_itself(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saving', flush=True), sys.exit(0)))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.01)\n"
    )
    with supervised(tmp_path, python(code)) as one:
        one.go(1)
        wait_for(lambda: "ready" in one.output_text())
        one.stop(1, grace=30)
        trainer = one.until_exited(1).trainer
        assert trainer.exit_code == 0
        assert trainer.asked_to_stop
        assert "saving" in one.output_text()


def test_a_stop_that_is_there_first_cancels_the_go(tmp_path: Path) -> None:
    with supervised(tmp_path, SLEEPER) as one:
        one.stop(4)
        one.until(lambda s: s.stopped_attempt == 4)
        one.go(4)
        one.stop(5)
        state = one.until(lambda s: s.stopped_attempt == 5)
        assert state.trainer.state is TrainerState.NONE


def test_sigterm_of_the_pod_is_forwarded_and_it_stays_until_released(tmp_path: Path) -> None:
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('heard', flush=True))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.01)\n"
    )
    with supervised(tmp_path, python(code), grace=0.5) as one:
        one.go(1)
        wait_for(lambda: "ready" in one.output_text())
        one.terminate()
        state = one.until_exited(1)
        assert "heard" in one.output_text()
        assert state.term_received_at is not None
        assert state.trainer.signal == signal.SIGKILL  # the template's grace was enforced
        assert state.trainer.asked_to_stop
        one.go(2)  # a pod that is being ended starts nothing
        one.stop(1)
        assert one.until(lambda s: s.stopped_attempt == 1).trainer.attempt == 1
        assert one.process.poll() is None
        one.release()
        assert one.process.wait(60) == 0
        assert one.termination_log.read_text() == "released"


def test_release_waits_for_the_trainer(tmp_path: Path) -> None:
    with supervised(tmp_path, SLEEPER) as one:
        one.go(1)
        one.until_running(1)
        one.release("abandoned")
        before = one.state().sequence
        one.until(lambda s: s.sequence > before)
        assert one.process.poll() is None
        one.stop(1)
        assert one.process.wait(60) == 0
        assert one.termination_log.read_text() == "abandoned"


def test_a_failure_that_is_passed_on_is_told_once(tmp_path: Path) -> None:
    """The kubelet starts the container again, and that run waits for what comes next."""
    with supervised(tmp_path, python("import sys; sys.exit(3)")) as one:
        one.go(1)
        one.until_exited(1)
        one.link.release(Release(message="words", code=3))
        assert one.process.wait(60) == 3
        assert one.termination_log.read_text() == "words"
    with supervised(tmp_path, python("import time; time.sleep(60)")) as again:
        state = again.until(lambda s: s.trainer.attempt == 1)
        assert state.trainer.exit_code == 3
        again.go(2)
        again.until_running(2)


def test_leaves_when_nobody_looks_after_the_saves_any_more(tmp_path: Path) -> None:
    patched = tmp_path / "bin" / "supervisor" / "departure.py"
    one = start_supervised(tmp_path, SLEEPER)
    one.release()
    assert one.process.wait(60) == 0
    (tmp_path / "run" / "release.json").unlink()
    text = patched.read_text()
    assert "BEAT_TIMEOUT_SECONDS = 300.0" in text
    patched.write_text(text.replace("BEAT_TIMEOUT_SECONDS = 300.0", "BEAT_TIMEOUT_SECONDS = 0.5"))
    log = tmp_path / "log"
    done = subprocess.run(
        [str(tmp_path / "bin" / "supervise"), "--", "true"],
        env={**os.environ, "RTJ_TERMINATION_LOG": str(log)},
        timeout=60,
    )
    assert done.returncode == 0
    assert log.read_text() == "abandoned"


def test_a_restarted_container_reports_and_never_starts_the_attempt_again(tmp_path: Path) -> None:
    one = start_supervised(tmp_path, SLEEPER)
    one.go(5)
    one.until_running(5)
    wait_for(lambda: "up" in one.output_text())
    wait_for(lambda: json.loads((tmp_path / "run/supervisor.journal").read_text()).get("pid"))
    one.kill_container()
    with supervised(tmp_path, SLEEPER) as two:
        state = two.until(lambda s: s.trainer.container_restarted)
        assert state.trainer.state is TrainerState.EXITED
        assert state.trainer.attempt == 5
        assert state.trainer.exit_code is None
        assert state.trainer.tail == ["up"]
        two.go(5)
        two.go(6)
        two.until_running(6)
        assert two.output_text().count("up") <= 2


def test_outside_a_container_a_trainer_that_outlived_its_supervisor_is_ended(
    tmp_path: Path,
) -> None:
    one = start_supervised(tmp_path, SLEEPER, alone=True)
    one.go(1)
    pid = one.until_running(1).trainer.pid
    wait_for(lambda: json.loads((tmp_path / "run/supervisor.journal").read_text()).get("pid"))
    assert pid is not None
    one.kill_container()
    assert Path(f"/proc/{pid}").exists()
    with supervised(tmp_path, SLEEPER, alone=True) as two:
        two.until(lambda s: s.trainer.container_restarted)

        def gone() -> bool:
            # Its new parent may be slow to reap it.
            text = Path(f"/proc/{pid}/stat").read_text() if Path(f"/proc/{pid}").exists() else ") Z"
            return text[text.rindex(")") + 2] == "Z"

        wait_for(gone)


def test_an_unreadable_journal_means_started(tmp_path: Path) -> None:
    one = start_supervised(tmp_path, SLEEPER)
    one.state()
    one.kill_container()
    (tmp_path / "run" / "supervisor.journal").write_text("")
    one.go(7)
    with supervised(tmp_path, SLEEPER) as two:
        state = two.until(lambda s: s.trainer.attempt == 7)
        assert state.trainer.state is TrainerState.EXITED
        assert state.trainer.container_restarted


def test_tells_which_files_of_the_directory_are_open_for_writing(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    (directory / "step-1").mkdir(parents=True)
    (directory / "old").write_text("x")
    code = (
        f"import time; a = open({str(directory / 'step-1' / 'w.pt')!r}, 'wb');"
        f"b = open({str(directory / 'old')!r}); time.sleep(600)"
    )
    with supervised(tmp_path, python(code), path=directory) as one:
        one.go(1)
        one.until(lambda s: s.open_for_writing == ["step-1/w.pt"])
        one.stop(1)
        assert one.until_exited(1).open_for_writing == []


@pytest.mark.skipif(not can_unshare(), reason="needs root: a PID namespace of its own")
def test_what_an_exec_left_behind_is_gone_before_the_next_start(tmp_path: Path) -> None:
    with supervised(tmp_path, SLEEPER) as one:
        one.go(1)
        one.until_running(1)
        intruder = subprocess.Popen(
            [
                *("nsenter", "--pid", "--target", str(one.pid)),
                *python("print('in', flush=True); import time; time.sleep(600)"),
            ],
            stdout=subprocess.PIPE,
        )
        assert intruder.stdout is not None
        assert intruder.stdout.readline() == b"in\n"
        one.stop(1)
        one.until_exited(1)
        assert intruder.poll() is None  # an exec of a person lives on between attempts
        one.go(2)
        one.until_running(2)
        assert intruder.wait(60) != 0


def test_probes_are_true_while_no_trainer_runs_and_asked_while_one_does(tmp_path: Path) -> None:
    def probe(*words: str) -> int:
        return subprocess.run(
            [str(tmp_path / "bin/supervise"), "probe", *words], capture_output=True
        ).returncode

    server = (
        "import http.server, sys\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        ok = self.path == '/ok' and self.headers['X-A'] == 'b'\n"
        "        self.send_response(204 if ok else 500); self.end_headers()\n"
        "s = http.server.HTTPServer(('127.0.0.1', 0), H)\n"
        "print('port', s.server_port, flush=True); s.serve_forever()\n"
    )
    with supervised(tmp_path, python(server)) as one:
        one.state()
        assert probe("--", "false") == 0
        assert probe("--tcp", "127.0.0.1:1", "--timeout", "1") == 0
        one.go(1)
        one.until_running(1)
        wait_for(lambda: re.search(r"port \d+\s", one.output_text()))
        port = one.output_text().split()[1]
        assert probe("--", "false") == 1
        assert probe("--", "true") == 0
        assert probe("--", "/nonexistent") == 127
        assert probe("--http", f"http://127.0.0.1:{port}/ok", "--header", "X-A: b") == 0
        assert probe("--http", f"http://127.0.0.1:{port}/bad", "--timeout", "2") == 1
        assert probe("--tcp", f"127.0.0.1:{port}") == 0
        assert probe("--tcp", "127.0.0.1:1") == 1
        assert probe("--bad", "x") == 2
        one.stop(1)
        one.until_exited(1)
        assert probe("--", "false") == 0


def test_a_users_modules_and_pythonpath_do_not_reach_the_supervisor(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "json.py").write_text("raise SystemExit('trapped')")
    code = "import sys; sys.exit(0)"
    with supervised(
        tmp_path, ["/usr/bin/env", *python(code)], env={"PYTHONPATH": str(trap)}
    ) as one:
        one.go(1)
        assert one.until_exited(1).trainer.exit_code == 0


def test_the_log_is_bounded_and_output_passes_through_whole(tmp_path: Path) -> None:
    code = "import sys\nfor i in range(60000): print(f'line {i:06d} ' + 'x' * 150)\n"
    with supervised(tmp_path, python(code)) as one:
        one.go(1)
        trainer = one.until_exited(1).trainer
        wait_for(lambda: "line 059999" in one.output_text())
        assert one.output_text().count("line ") == 60000
        assert trainer.tail[-1].startswith("line 059999")
        assert len(trainer.tail) <= 100
        run = tmp_path / "run"
        sizes = [(run / name).stat().st_size for name in ("trainer.log", "trainer.log.1")]
        assert max(sizes) <= 5 * 1024 * 1024


def test_is_installed_for_another_user(tmp_path: Path) -> None:
    with supervised(tmp_path, ["true"]) as one:
        one.state()
        assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o777
        assert stat.S_IMODE((tmp_path / "bin/supervise").stat().st_mode) == 0o755
        assert one.state().uid == os.getuid()


def test_usage_errors_name_themselves(tmp_path: Path) -> None:
    with supervised(tmp_path, ["true"]):
        done = subprocess.run([str(tmp_path / "bin/supervise")], capture_output=True, text=True)
        assert done.returncode == 2
        assert "usage" in done.stderr
