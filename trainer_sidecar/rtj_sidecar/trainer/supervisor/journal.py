"""What this container has started, kept over its own end: no attempt is ever started twice.

Written before the trainer starts, so that a supervisor that comes back never takes a started
attempt for a new one. Must never be read as empty where it cannot be read.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from .files import identity, read_json, write_whole
from .output import error_file, error_message, log_lines
from .processes import descendants, kill, process, processes


class Journal:
    """`run`: the directory of the small files, which has `go.json` too."""

    def __init__(self, run):
        self.run = run
        self.place = os.path.join(run, "supervisor.journal")
        self.failed = False

    def read(self):
        """The last record; None where nothing was ever started."""
        found = read_json(self.place)
        if found is None and identity(self.place) is not None:
            # Unreadable: the only safe reading is that what was asked for was started.
            go = read_json(os.path.join(self.run, "go.json")) or {}
            return {"attempt": int(go.get("attempt", 0))}
        return found

    def recovered(self, log):
        """(the attempt that was started last, its view); (0, None) where nothing was. What is left
        of it is ended. `log`: where it had its output."""
        record = self.read()
        if record is None:
            return 0, None
        started = int(record.get("attempt", 0))
        if record.get("ended"):
            return started, record["ended"]
        if not started:
            return 0, None
        end_leftover(record)
        view = view_of_lost(record)
        view["tail"] = log_lines(log)
        view["error"] = error_message(error_file(self.run, started))
        return started, view

    def begin(self, record):
        """Before the effect. False where it could not be written: then nothing may be started."""
        try:
            write_whole(self.place, record)
        except OSError as error:
            if not self.failed:
                sys.stderr.write("supervise: cannot write its journal, waiting: %s\n" % error)
            self.failed = True
            return False
        self.failed = False
        return True

    def save(self, record):
        """After the effect, so the flush costs the trainer nothing. False where it failed."""
        try:
            write_whole(self.place, record)
            descriptor = os.open(self.place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            return False
        return True


def view_of_lost(record):
    """A trainer whose end nobody saw: its container was started again."""
    return {
        "state": "exited",
        "attempt": int(record.get("attempt", 0)),
        "pid": record.get("pid"),
        "startedAt": record.get("startedAt"),
        "endedAt": time.time(),
        "containerRestarted": True,
    }


def end_leftover(journal):
    """Outside a container the trainer outlives its supervisor: end its whole session."""
    seen = process(journal.get("pid") or 0)
    if seen is None or seen.start != journal.get("start"):
        return
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = processes()
        left = {p for p, one in found.items() if one.session == seen.pid}
        left = {p for p in left | descendants(seen.pid, found) if found[p].state not in "ZX"}
        if not left:
            return
        kill(left, signal.SIGKILL)
        time.sleep(0.005)
