"""Where `rtj run` keeps what a pod's volumes hold in a cluster: below `<path>/.rtj/local/`.

It lives with the checkpoints, so that a second invocation goes on as the same job. Must never be
used by two invocations at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rtj_api import contract
from rtj_api.wire import Directive, Release, Stop
from rtj_sidecar.trainer.supervisor_link import SupervisorLink, write_whole


class PlaceTaken(RuntimeError):
    """Another `rtj run` uses this directory."""


@dataclass(frozen=True, slots=True)
class Place:
    """`root` stands for /rtj; `directive` for the annotation."""

    root: Path
    lock: IO[str]

    @property
    def link(self) -> SupervisorLink:
        return SupervisorLink(self.root)

    @property
    def directive(self) -> Path:
        return self.root / "podinfo" / "directive"

    @property
    def termination_log(self) -> Path:
        return self.root / "termination-log"

    def job_uid(self) -> str:
        """The same for every invocation on this directory."""
        path = self.root / "job"
        if not path.exists():
            write_whole(path, uuid.uuid4().hex)
        return path.read_text(encoding="utf-8").strip()

    def direct(self, directive: Directive) -> None:
        write_whole(self.directive, directive.dump_json())


def open_place(path: Path) -> Place:
    """The place of a checkpoint directory, for this process alone. Raises PlaceTaken, OSError."""
    root = path / contract.HIDDEN_DIR / "local"
    (root / "podinfo").mkdir(parents=True, exist_ok=True)
    lock = open(root / "lock", "w", encoding="utf-8")  # noqa: SIM115 (held until this process ends)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise PlaceTaken(f"another `rtj run` is at work in {path}") from None
    place = Place(root, lock)
    _end_leftover(place)
    for name in (contract.FILE_RELEASE, contract.FILE_SUPERVISOR):
        (place.link.run / name).unlink(missing_ok=True)
    place.directive.unlink(missing_ok=True)
    return place


def _end_leftover(place: Place) -> None:
    """A supervisor that outlived its `rtj run` (kill -9) still trains: end both."""
    link = place.link
    try:
        pid = int(json.loads((link.run / contract.FILE_SUPERVISOR).read_text())["pid"])
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError, KeyError, TypeError):
        return
    if os.fsencode(str(link.root / "bin" / "supervise.py")) not in words:
        return
    link.stop(Stop(attempt=1 << 30, grace_seconds=None))
    link.release(Release(message=contract.MESSAGE_ABANDONED))
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                break
        time.sleep(0.02)
    else:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    (link.run / contract.FILE_STOP).unlink(missing_ok=True)


def start_supervisor(place: Place, command: list[str]) -> subprocess.Popen[bytes]:
    """The trainer's supervisor, with this terminal's output; Ctrl-C reaches it through us only."""
    script = str(place.link.root / "bin" / "supervise.py")
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-u", script, "--", *command],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={
            **os.environ,
            "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1"),
            "RTJ_TERMINATION_LOG": str(place.termination_log),
        },
    )
