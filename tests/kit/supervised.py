"""A real supervisor on this machine, in a PID namespace of its own where we may make one."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rtj_api.wire import Go, Release, Stop, SuperviseConfig, SupervisorState, TrainerState
from rtj_sidecar.trainer.supervisor_link import SupervisorLink

Found = TypeVar("Found")


def wait_for(what: Callable[[], Found], *, seconds: float = 60, why: str = "") -> Found:
    """The first true answer of `what`, asked until the deadline; AssertionError after it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {why or what}")


@functools.cache
def can_unshare() -> bool:
    """Whether this user may make PID namespaces (a container's first process has PID 1)."""
    try:
        done = subprocess.run(
            ["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True
        )
    except FileNotFoundError:
        return False
    return done.returncode == 0


@dataclass
class Supervised:
    process: subprocess.Popen[bytes]
    link: SupervisorLink
    termination_log: Path
    output: Path

    def go(
        self, attempt: int, *, env: Mapping[str, str] | None = None, extra: tuple[str, ...] = ()
    ) -> None:
        self.link.go(Go(attempt=attempt, env=dict(env or {}), extra_args=list(extra)))

    def stop(self, attempt: int, *, grace: float | None = None) -> None:
        self.link.stop(Stop(attempt=attempt, grace_seconds=grace))

    def release(self, message: str = "released") -> None:
        self.link.release(Release(message=message))

    def state(self) -> SupervisorState:
        return wait_for(self.link.state, why="supervisor.json")

    def until(self, fact: Callable[[SupervisorState], bool], *, why: str = "") -> SupervisorState:
        def seen() -> SupervisorState | None:
            state = self.link.state()
            return state if state is not None and fact(state) else None

        return wait_for(seen, why=why or str(self.link.state()))

    def until_running(self, attempt: int) -> SupervisorState:
        return self.until(
            lambda s: (
                s.trainer.attempt == attempt
                and s.trainer.state is TrainerState.RUNNING
                and s.trainer.pid is not None
            ),
            why=f"attempt {attempt} running",
        )

    def until_exited(self, attempt: int) -> SupervisorState:
        return self.until(
            lambda s: s.trainer.attempt == attempt and s.trainer.state is TrainerState.EXITED,
            why=f"attempt {attempt} exited",
        )

    def terminate(self) -> None:
        """SIGTERM to the supervisor itself, as the kubelet sends it."""
        os.kill(self.pid, signal.SIGTERM)

    @property
    def pid(self) -> int:
        """Its PID as seen from here."""
        if self.process.args[0] != "unshare":  # type: ignore[index]
            return self.process.pid
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(wait_for(lambda: children.read_text().split(), why="unshare's child")[0])

    def kill_container(self) -> None:
        """What the kernel does when a whole container is out of memory."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(60)

    def output_text(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")


def start_supervised(
    root: Path,
    command: list[str],
    *,
    path: Path | None = None,
    grace: float = 5,
    alone: bool = False,
    env: Mapping[str, str] | None = None,
    post_start: tuple[str, ...] = (),
    hold_term: float = 0.0,
    shell: str | None = None,
) -> Supervised:
    """`alone`: without a PID namespace, as under `rtj run`. `shell`: as in an image whose sh that
    is and which has no Python."""
    link = SupervisorLink(root)
    link.install(
        SuperviseConfig(
            path=str(path or root / "checkpoints"),
            trainer_grace_seconds=grace,
            post_start=list(post_start),
            hold_term_seconds=hold_term,
        )
    )
    words = [str(link.executable), "--", *command]
    if shell is not None:
        hide_python(link.executable)
        words.insert(0, shell)
    if not alone and can_unshare():
        words = ["unshare", "--pid", "--fork", "--mount-proc", *words]
    log = root / "termination-log"
    with open(root / "output", "ab") as output:
        process = subprocess.Popen(
            words,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "RTJ_TERMINATION_LOG": str(log), **(env or {})},
        )
    return Supervised(process, link, log, root / "output")


def hide_python(shim: Path) -> None:
    """Make the shim look for a Python that no machine has."""
    text = shim.read_text()
    names = "python3 python /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python"
    if names not in text:
        raise AssertionError(f"{shim} looks for other names now")
    shim.write_text(text.replace(names, "/nonexistent/python3"))


@contextmanager
def supervised(root: Path, command: list[str], **options: object) -> Iterator[Supervised]:
    one = start_supervised(root, command, **options)  # type: ignore[arg-type]
    try:
        yield one
    finally:
        if one.process.poll() is None:
            state = one.link.state()
            if state is not None and state.trainer.state is TrainerState.RUNNING:
                one.stop(10**9)
                one.until(lambda s: s.trainer.state is not TrainerState.RUNNING)
            one.release()
            try:
                one.process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(one.process.pid, signal.SIGKILL)
                one.process.wait(60)


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


def inner_pid(pid: int, word: str) -> int:
    """The number that a process with `pid` in its own PID namespace has in this one. `word`: of its
    command line, and of no other test's, for many namespaces have that number."""
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            status = (place / "status").read_text()
            words = (place / "cmdline").read_text().split("\0")
        except OSError:
            continue
        numbers = next(line for line in status.splitlines() if line.startswith("NSpid:"))
        is_it = numbers.split()[-1] == str(pid) and "supervise" not in "".join(words[1:2])
        if is_it and any(word in text for text in words[1:]):
            found.append(int(place.name))
    assert len(found) == 1, f"processes {pid} with {word!r}: {found}"
    return found[0]
