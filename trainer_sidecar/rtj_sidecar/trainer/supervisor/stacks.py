"""What a hung trainer is doing, kept before it is killed: its stacks, or what the kernel knows.

py-spy where the image has it; else a signal for which the trainer itself has registered a dump of
its stacks; in any case each process's state and what it waits in. Must never send a signal that
its receiver does not catch, and never hold up the supervisor's loop.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time

from .processes import command_line, process

MOST_PROCESSES = 16
MOST_THREADS = 8
MOST_LINES = 80
MOST_CHARACTERS = 200
DUMP_SECONDS = 5.0  # py-spy on one process
SIGNAL_SECONDS = 1.0  # until a dump is in the log


class Stacks:
    """`ask` and `news` are called by the supervisor's loop; the looking is done by a thread."""

    def __init__(self, log):
        self.log = log
        self.view = None  # as in wire.StacksView
        self.asked = None
        self.told = None
        self.spy = None  # PID of the py-spy that looks now

    def ours(self):
        """Processes below the supervisor that are none of the trainer's."""
        spy = self.spy
        return frozenset() if spy is None else frozenset({spy})

    def ask(self, wish, pids):
        if wish.get("id") == self.asked:
            return
        self.asked = wish.get("id")
        work = (str(self.asked), sorted(pids)[:MOST_PROCESSES], wish.get("signal"))
        threading.Thread(target=self.look, args=work, daemon=True).start()

    def news(self):
        """Whether `view` changed since this was asked last."""
        view = self.view
        if view is self.told:
            return False
        self.told = view
        return True

    def look(self, name, pids, number):
        lines = [line for pid in pids for line in of_kernel(pid)]
        # Told at once: a process that cannot be traced may take its time.
        self.view = {"id": name, "done": False, "lines": bounded(lines)}
        spy = shutil.which("py-spy")
        for pid in pids:
            if spy is not None and is_python(pid):
                lines += self.of_spy(spy, pid)
        if spy is None and number is not None:
            lines += self.of_signal(pids, int(number))
        self.view = {"id": name, "done": True, "lines": bounded(lines)}

    def of_spy(self, spy, pid):
        """Its Python stacks; one line where they cannot be had."""
        command = [spy, "dump", "--nonblocking", "--pid", str(pid)]
        try:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as error:
            return ["py-spy {}: {}".format(pid, error)]
        self.spy = child.pid
        child.returncode = 0  # reaped by the loop's waitpid(-1), as the trainer is
        timer = threading.Timer(DUMP_SECONDS, end_spy, [child.pid])
        timer.start()
        try:
            output = child.stdout.read() if child.stdout is not None else b""
        finally:
            timer.cancel()
            self.spy = None
        return [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]

    def of_signal(self, pids, number):
        """What the log holds more after those who catch it were sent it."""
        catching = [pid for pid in pids if catches(pid, number)]
        if not catching:
            return []
        before = len(self.log.lines())
        for pid in catching:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        time.sleep(SIGNAL_SECONDS)
        after = self.log.lines()
        return after[before:] if len(after) > before else after[-MOST_LINES:]


def bounded(lines):
    return [line[:MOST_CHARACTERS] for line in lines][:MOST_LINES]


def text_of(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip("\0\n ")
    except OSError:
        return ""


def of_kernel(pid):
    """State, and what each of its first threads waits in; its kernel stack where that is shown."""
    seen = process(pid)
    if seen is None:
        return []
    words = " ".join(command_line(pid))[:120]
    found = ["process {}: {} ({})".format(pid, words, STATES.get(seen.state, seen.state))]
    directory = "/proc/{}/task".format(pid)
    try:
        threads = sorted(int(name) for name in os.listdir(directory))[:MOST_THREADS]
    except OSError:
        threads = []
    for thread in threads:
        base = "{}/{}/".format(directory, thread)
        waits = text_of(base + "wchan")
        frames = [line.split(" ")[-1] for line in text_of(base + "stack").splitlines()[:4]]
        place = " < ".join(frames) or waits
        if place and place != "0":
            found.append("  thread {} {}: {}".format(thread, text_of(base + "comm"), place))
    return found


STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits for a disk or a device, and cannot be interrupted",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
}


def is_python(pid):
    return "python" in os.path.basename(command_line(pid)[0])


def end_spy(pid):
    seen = process(pid)
    if seen is not None and seen.ppid == os.getpid():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def catches(pid, number):
    """Whether that process has a handler for the signal: else it would end by it."""
    for line in text_of("/proc/{}/status".format(pid)).splitlines():
        if line.startswith("SigCgt:"):
            try:
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
            except (ValueError, IndexError):
                return False
    return False
