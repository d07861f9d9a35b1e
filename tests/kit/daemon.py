"""A server process for tests: started in its own session, ended by its pid, never left behind.

It must never end a process that it did not start.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """A running process whose output goes to the file `log`."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def poll(self) -> int | None:
        """None while it runs, else its exit code."""
        return self.process.poll()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self, *, grace_s: float) -> None:
        """SIGTERM, then SIGKILL when it has not ended after `grace_s` seconds; waits for it."""
        if self.process.poll() is None:
            # A stopped process would not see the SIGTERM.
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace_s)
        self.process.kill()
        self.process.wait()

    def log_tail(self, *, lines: int = 20) -> str:
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""


def start(
    command: Sequence[str | Path],
    *,
    log: Path,
    directory: Path,
    environment: Mapping[str, str] | None = None,
) -> Daemon:
    """Start `command`, its output in `log`; it dies with this process, where that can be had."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=os.environ | dict(environment or {}),
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
    return Daemon(process=process, log=log)


def free_ports(*, count: int, address: str = "127.0.0.1") -> list[int]:
    """Ports that nobody listens on just now; someone may take one before you do."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((address, 0))
        return [each.getsockname()[1] for each in sockets]


def die_with_parent() -> Callable[[], object] | None:
    """The kernel ties this to the thread that started the process, so only the main thread,
    which lives as long as the process does, may ask for it."""
    if threading.current_thread() is not threading.main_thread():
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
