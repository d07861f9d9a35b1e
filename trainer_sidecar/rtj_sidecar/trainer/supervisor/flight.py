"""Files in which PyTorch's flight recorder wrote what its collective operations were about.

They lie in the trainer's own container, which the sidecar cannot see, so they are copied, bounded,
to where it can. Must never read what is in them, take one of before this attempt, nor hold up the
supervisor's loop: they may lie on a network's disk.

Source: PyTorch's FlightRecorder.cpp and ProcessGroupNCCL.hpp (DebugInfoWriter, DumpPipe), 2.3 on.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time

PREFIX_NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
PIPE_NAMES = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
MOST_FILES = 16
MOST_BYTES = 32 << 20  # of one; two thousand entries with their stacks are a tenth of it
MOST_SEEN = 5000  # names of a directory
LOOK_SECONDS = 2.0
SETTLED_SECONDS = 0.3  # since its last change: PyTorch writes a dump in one go
DIRECTORY = "flight"


class Flights(threading.Thread):
    """`begin` and `end` are called by the supervisor's loop; the looking is done by this thread."""

    def __init__(self, run):
        super().__init__(daemon=True)
        self.run_dir = run
        self.lock = threading.Lock()
        self.wake = threading.Event()
        self.looked = threading.Event()
        self.prefixes = []
        self.pipes = []
        self.attempt = None
        self.since = 0.0
        self.is_ended = False
        self.view = []  # as in wire.FlightFile
        self.told = self.view

    def begin(self, attempt, env, since):
        with self.lock:
            self.prefixes, self.pipes = prefixes_of(env), pipes_of(env)
            self.attempt, self.since, self.is_ended = attempt, since, False
            self.view = self.told = []
        self.wake.set()

    def end(self, patience):
        """The trainer has ended, so what it wrote is whole: looked at once more, for which the
        loop waits a moment where there is something to see."""
        with self.lock:
            self.is_ended = True
            self.looked.clear()
        self.wake.set()
        self.looked.wait(patience)

    def ask(self):
        """A process that has opened a pipe for it writes its record now."""
        for prefix in self.pipes:
            for name, _ in named_after(prefix, ".pipe"):
                with contextlib.suppress(OSError):
                    write_to_pipe(name)

    def news(self):
        view = self.view
        if view is self.told:
            return False
        self.told = view
        return True

    def run(self):
        while True:
            with self.lock:
                attempt, is_ended = self.attempt, self.is_ended
            if attempt is not None:
                with contextlib.suppress(OSError):
                    self.look(attempt, is_ended)
            self.looked.set()
            self.wake.wait(None if attempt is None or is_ended else LOOK_SECONDS)
            self.wake.clear()

    def look(self, attempt, is_ended):
        known = {one["file"]: one["at"] for one in self.view}
        found = []
        for prefix in self.prefixes:
            for name, process in named_after(prefix, ""):
                if len(found) < MOST_FILES:
                    found.append((process, name))
        copies, is_new = [], False
        for process, name in found:
            status = os.lstat(name)
            is_fit = stat.S_ISREG(status.st_mode) and 0 < status.st_size <= MOST_BYTES
            is_settled = is_ended or time.time() - status.st_mtime >= SETTLED_SECONDS
            if not is_fit or status.st_mtime < self.since or not is_settled:
                continue
            copy = os.path.join(DIRECTORY, "{}-{}".format(attempt, process))
            if known.get(copy) != status.st_mtime:
                copy_whole(name, os.path.join(self.run_dir, copy))
                is_new = True
            copies.append({"process": process, "file": copy, "at": status.st_mtime})
        if not is_new:
            return
        forget(os.path.join(self.run_dir, DIRECTORY), attempt)
        with self.lock:
            if attempt == self.attempt:
                self.view = copies


def prefixes_of(env):
    """Where PyTorch puts them: by the user's word, else by its own, which has changed."""
    told = [env[name] for name in PREFIX_NAMES if env.get(name)]
    cache = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or "/tmp", ".cache")
    usual = ["/tmp/nccl_trace_rank_", os.path.join(cache, "torch", "comm_lib_trace_rank_")]
    return list(dict.fromkeys(told or usual))


def pipes_of(env):
    return list(dict.fromkeys(env[name] for name in PIPE_NAMES if env.get(name)))


def named_after(prefix, suffix):
    """(path, number) of the files `<prefix><number><suffix>`."""
    directory, start = os.path.split(prefix)
    found = []
    try:
        with os.scandir(directory or ".") as entries:
            for count, entry in enumerate(entries):
                number = entry.name[len(start) : len(entry.name) - len(suffix)]
                is_named = entry.name.startswith(start) and entry.name.endswith(suffix)
                if is_named and number.isdecimal() and len(number) <= 6:
                    found.append((entry.path, int(number)))
                if count >= MOST_SEEN:
                    break
    except OSError:
        return []
    return sorted(found, key=lambda pair: pair[1])[:MOST_FILES]


def write_to_pipe(name):
    """Never waits: without a reader, or where it is no pipe, nothing is written."""
    if not stat.S_ISFIFO(os.lstat(name).st_mode):
        return
    pipe = os.open(name, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(pipe, b"1\n")
    finally:
        os.close(pipe)


def copy_whole(name, copy):
    os.makedirs(os.path.dirname(copy), exist_ok=True)
    temporary = copy + ".tmp"
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(source, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError("it grew beyond what is copied")
    with open(temporary, "wb") as file:
        file.write(data)
    os.chmod(temporary, 0o666)
    os.rename(temporary, copy)


def forget(directory, attempt):
    """Copies of the attempts before."""
    for name in os.listdir(directory):
        if not name.startswith("{}-".format(attempt)):
            with contextlib.suppress(OSError):
                os.remove(os.path.join(directory, name))
