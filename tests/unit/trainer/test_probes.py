"""Probes and hooks of a trainer that comes and goes: counted for each trainer anew."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from kit.supervised import Supervised, can_unshare, python, supervised, wait_for

SLEEPER = python("import time; print('up', flush=True); time.sleep(600)")


class Asked:
    """Calls probes as the kubelet would; what they ask is whether a file is there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.well, self.up = root / "well", root / "up"

    def __call__(self, kind: str, *words: str) -> int:
        command = [str(self.root / "bin/supervise"), "probe", "--kind", kind, *words]
        return subprocess.run(command, capture_output=True).returncode

    def alive(self, *words: str, kind: str = "liveness") -> int:
        """With a threshold of two failures."""
        return self(kind, "--threshold", "2", *words, "--", "test", "-e", str(self.well))

    def startup(self, *, limit: float) -> tuple[str, str]:
        first = {"words": ["--", "test", "-e", str(self.up)], "delay": 0, "limit": limit}
        return ("--startup", json.dumps(first))


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


def ended_unhealthy(one: Supervised, attempt: int) -> str:
    trainer = one.until_exited(attempt).trainer
    assert trainer.asked_to_stop, "so an exit code of 0 is no success"
    assert trainer.unhealthy is not None
    return trainer.unhealthy


def test_liveness_ends_the_trainer_and_never_the_container(tmp_path: Path, asked: Asked) -> None:
    with supervised(tmp_path, SLEEPER) as one:
        one.state()
        assert asked.alive() == 0, "no trainer runs"
        one.go(1)
        one.until_running(1)
        asked.well.touch()
        assert asked.alive() == 0
        asked.well.unlink()
        assert asked.alive() == 0
        asked.well.touch()
        assert asked.alive() == 0, "failures must follow each other"
        asked.well.unlink()
        assert asked.alive() == 0
        assert one.until_running(1).trainer.unhealthy is None
        assert asked.alive() == 0
        assert "failed 2 times" in ended_unhealthy(one, 1)
        assert one.process.poll() is None
        one.go(2)
        one.until_running(2)
        assert asked.alive() == 0, "the new trainer has its own count"
        assert one.until_running(2).trainer.unhealthy is None


def test_each_trainer_is_asked_for_life_only_once_it_was_up(tmp_path: Path, asked: Asked) -> None:
    startup = asked.startup(limit=600)
    with supervised(tmp_path, SLEEPER) as one:
        for attempt in (1, 2):
            one.go(attempt)
            one.until_running(attempt)
            for _ in range(3):
                assert asked.alive(*startup) == 0
                assert asked.alive(*startup, kind="readiness") == 1
            assert one.until_running(attempt).trainer.unhealthy is None
            asked.up.touch()
            assert asked.alive(*startup) == 0
            asked.up.unlink()
            asked.alive(*startup)
            assert "failed 2 times" in ended_unhealthy(one, attempt)


def test_a_startup_probe_that_never_holds_ends_the_trainer(tmp_path: Path, asked: Asked) -> None:
    with supervised(tmp_path, SLEEPER) as one:
        one.go(1)
        one.until_running(1)
        startup = asked.startup(limit=0)
        assert asked.alive(*startup) == 0
        assert "startup probe never held" in ended_unhealthy(one, 1)


def test_a_delay_counts_from_the_trainers_start(tmp_path: Path, asked: Asked) -> None:
    with supervised(tmp_path, SLEEPER) as one:
        one.go(1)
        one.until_running(1)
        for _ in range(3):
            assert asked.alive("--delay", "600") == 0
        assert asked.alive("--delay", "600", kind="readiness") == 1
        assert one.until_running(1).trainer.unhealthy is None


def test_a_command_that_hangs_fails_by_its_own_timeout(tmp_path: Path, asked: Asked) -> None:
    with supervised(tmp_path, SLEEPER) as one:
        one.go(1)
        one.until_running(1)
        assert asked("readiness", "--timeout", "0.2", "--", "sleep", "600") == 1


def test_the_post_start_hook_runs_at_each_start(tmp_path: Path) -> None:
    hooks = tmp_path / "hooks"
    script = f"echo $RTJ_ATTEMPT >> {hooks}"
    with supervised(tmp_path, SLEEPER, post_start=("--", "sh", "-c", script)) as one:
        for attempt in (1, 2):
            one.go(attempt, env={"RTJ_ATTEMPT": str(attempt)})
            one.until_running(attempt)
            wait_for(lambda n=attempt: hooks.exists() and len(hooks.read_text().split()) == n)
            one.stop(attempt)
            one.until_exited(attempt)
        assert hooks.read_text().split() == ["1", "2"]


def test_a_hook_that_fails_ends_the_trainer(tmp_path: Path) -> None:
    with supervised(tmp_path, SLEEPER, post_start=("--", "sh", "-c", "exit 3")) as one:
        one.go(1)
        assert "postStart hook failed, exit code 3" in ended_unhealthy(one, 1)


def test_the_kubelets_own_hook_does_nothing_where_the_supervisor_runs_it(asked: Asked) -> None:
    with supervised(asked.root, SLEEPER):
        assert asked("unsupervised", "--", "false") == 0


@pytest.mark.skipif(not can_unshare(), reason="needs a PID namespace, as a container has")
def test_a_probe_under_way_outlives_the_start_of_a_trainer(tmp_path: Path) -> None:
    """A killed probe is a failed one, and may cost the container."""
    with supervised(tmp_path, SLEEPER) as one:
        one.go(1)
        one.until_running(1)
        inside = ["nsenter", "--pid", "--mount", "--target", str(one.pid)]
        shim = str(tmp_path / "bin/supervise")
        here, answer = tmp_path / "here", tmp_path / "answer"
        script = f"touch {here}; until [ -e {answer} ]; do sleep 0.05; done"
        words = ["--kind", "readiness", "--timeout", "60", "--", "sh", "-c", script]
        probe = subprocess.Popen([*inside, shim, "probe", *words], stderr=subprocess.PIPE)
        stray = subprocess.Popen([*inside, "sleep", "600"])
        wait_for(here.exists, why="the probe's command")
        one.stop(1)
        one.until_exited(1)
        one.go(2)
        one.until_running(2)
        assert stray.wait(60) != 0, "anything else of an exec is ended"
        assert probe.poll() is None
        answer.touch()
        assert probe.wait(60) == 0
