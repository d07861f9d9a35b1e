"""Processes known by pid and start time, so that a reused pid is never mistaken for ours.

It starts them detached (they outlive the shell that asked) and ends them; it must never signal
a process whose start time differs from the recorded one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

SPAWN = Path(__file__).with_name("spawn.py")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProcessError(RuntimeError):
    """A process did not start, or ended when it should run."""


@dataclass(frozen=True)
class Process:
    """One process: `start` is field 22 of /proc/<pid>/stat, in clock ticks after boot."""

    name: str
    pid: int
    start: int
    log: str
    boot: str = ""

    @property
    def alive(self) -> bool:
        return self.boot in ("", boot_id()) and start_time(self.pid) == self.start


def boot_id() -> str:
    """Of this boot of the machine: ticks and pids begin anew with each."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Start time in clock ticks (proc(5)), or None if the process is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def spawn(
    name: str,
    argv: Sequence[str],
    *,
    log: Path,
    cgroups: Sequence[Path] = (),
    join: int | None = None,
    unshare: bool = False,
    env: dict[str, str] | None = None,
) -> Process:
    """Start `argv` detached; `join` and `unshare` are those of `spawn.py`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    request = {
        "argv": list(argv),
        "log": str(log),
        "env": {"PATH": PATH, "HOME": "/", **(env or {})},
        "cgroups": [str(path) for path in cgroups],
        "join": join,
        "unshare": unshare,
    }
    result = subprocess.run(
        [sys.executable, "-I", "-S", str(SPAWN), json.dumps(request)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    if result.returncode != 0:
        raise ProcessError(f"cannot start {name}: {result.stderr.strip().splitlines()[-1:]}")
    pid = int(result.stdout)
    start = start_time(pid)
    if start is None:
        raise ProcessError(f"{name} ended at once; last lines of {log}:\n{tail(log)}")
    return Process(name, pid, start, str(log), boot_id())


def kill(process: Process, *, timeout: float = 20) -> None:
    """SIGKILL and wait; nothing happens if it has already ended."""
    if not process.alive:
        return
    try:
        # A pidfd pins the identity: between the check and the signal the pid cannot be reused.
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if process.alive:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)
    wait_until(lambda: not process.alive, timeout=timeout, what=f"{process.name} to end")


@contextmanager
def stopped(process: Process) -> Iterator[None]:
    """SIGSTOP for as long as the block runs, SIGCONT after it; ProcessError where it has ended."""
    handle = os.pidfd_open(process.pid)
    try:
        if not process.alive:
            raise ProcessError(f"{process.name} has ended and cannot be stopped")
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
        try:
            yield
        finally:
            signal.pidfd_send_signal(handle, signal.SIGCONT)
    finally:
        os.close(handle)


def wait_until(
    condition: Callable[[], object],
    *,
    timeout: float,
    what: str,
    alive: Sequence[Process] = (),
    interval: float = 0.05,
) -> None:
    """Wait for a condition; a process of `alive` that ends first is an error with its log."""
    deadline = time.monotonic() + timeout
    while not condition():
        for process in alive:
            if not process.alive:
                raise ProcessError(
                    f"{process.name} ended while waiting for {what}; "
                    f"last lines of {process.log}:\n{tail(Path(process.log))}"
                )
        if time.monotonic() > deadline:
            logs = ", ".join(process.log for process in alive)
            raise ProcessError(
                f"waited {timeout:.0f} s for {what}" + (f"; see {logs}" * bool(logs))
            )
        time.sleep(interval)


def tail(log: Path, *, lines: int = 15) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16384))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"


class Registry:
    """The processes of one cluster: one JSON file each in a directory, written whole."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def record(self, process: Process) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        target = self._directory / f"{process.name}.json"
        temporary = target.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(process)))
        temporary.replace(target)

    def get(self, name: str) -> Process | None:
        """The recorded process, alive or not; a damaged record reads as none."""
        try:
            return Process(**json.loads((self._directory / f"{name}.json").read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def alive(self, name: str) -> Process | None:
        process = self.get(name)
        return process if process is not None and process.alive else None

    def all(self) -> list[Process]:
        if not self._directory.is_dir():
            return []
        found = (self.get(path.stem) for path in sorted(self._directory.glob("*.json")))
        return [process for process in found if process is not None]

    def forget(self, name: str) -> None:
        (self._directory / f"{name}.json").unlink(missing_ok=True)
