"""Processes, as /proc tells of them: whose they are, what they have open, how to end them.

Must never signal a process outside this container.
"""

from __future__ import annotations

import collections
import contextlib
import os
import sys
import uuid

VERSION = 1  # of what is written to supervisor.json
LAUNCHER = "supervise.py"
SHIM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "supervise")
RUNTIMES = ("runc", "crun", "youki")  # on the way into the container, before the exec


class Proc:
    """One line of /proc/<pid>/stat."""

    __slots__ = ("pid", "ppid", "session", "start", "state", "ticks")

    def __init__(self, pid, text):
        # The name is in parentheses and may itself hold spaces and parentheses.
        fields = text[text.rindex(")") + 2 :].split()
        self.pid = pid
        self.state = fields[0]
        self.ppid = int(fields[1])
        self.session = int(fields[3])
        self.ticks = int(fields[11]) + int(fields[12])
        self.start = int(fields[19])


def process(pid):
    try:
        with open("/proc/{}/stat".format(pid), encoding="utf-8", errors="replace") as file:
            return Proc(int(pid), file.read())
    except (OSError, ValueError, IndexError):
        return None


def processes():
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            seen = process(name)
            if seen is not None:
                found[seen.pid] = seen
    return found


def descendants(root, found):
    """Process IDs below `root`, without those that are dead and only wait to be reaped."""
    children = collections.defaultdict(list)
    for seen in found.values():
        children[seen.ppid].append(seen.pid)
    below, queue = set(), list(children[root])
    while queue:
        pid = queue.pop()
        if pid not in below:
            below.add(pid)
            queue.extend(children[pid])
    return {pid for pid in below if found[pid].state not in "ZX"}


def cgroup_text(pid):
    try:
        with open("/proc/{}/cgroup".format(pid), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None


def container_members(found):
    """Whatever else runs in this container, e.g. left by an exec.

    Empty unless this is a container's first process (its parent is outside the PID namespace):
    on a plain machine the cgroup holds the user's other programs. With a PID namespace of its own
    all that is visible belongs to the container; in a shared one only what is in the same cgroup:
    kill(-1) would end the sidecar.
    """
    me = os.getpid()
    if os.getppid() != 0:
        return set()
    alive = {pid for pid, seen in found.items() if pid != me and seen.state not in "ZX"}
    if me != 1:
        mine = cgroup_text(me)
        alive = {pid for pid in alive if mine is not None and cgroup_text(pid) == mine}
    below = descendants(me, found)
    return alive - {pid for pid in alive - below if is_probe(pid, found)}


def is_probe(pid, found):
    """Whether this is a probe of the kubelet's, or what one has started, or about to become one.

    A probe that is killed is a probe that failed, and may cost the whole container.
    """
    seen = found.get(pid)
    while seen is not None:
        words = command_line(seen.pid)
        if os.path.basename(words[0]) in RUNTIMES or words[1:2] == [SHIM] or SHIM in words[:1]:
            return True
        if any(os.path.basename(word) == LAUNCHER for word in words) and "probe" in words:
            return True
        seen = found.get(seen.ppid)
    return False


def command_line(pid):
    """The words of a process's command, at least one."""
    try:
        with open("/proc/{}/cmdline".format(pid), "rb") as file:
            return file.read().decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return [""]


def kill(pids, number):
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def adopt_orphans():
    """Become the reaper of orphaned descendants (PR_SET_CHILD_SUBREAPER), as PID 1 is anyway."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def open_for_writing(root, pids):
    """Paths below `root`, relative to it, that one of these processes has open for writing."""
    found = set()
    prefix = root.rstrip("/") + "/"
    for pid in pids:
        directory = "/proc/{}/fd".format(pid)
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink(directory + "/" + name)
                if not target.startswith(prefix) or target.endswith(" (deleted)"):
                    continue
                with open("/proc/{}/fdinfo/{}".format(pid, name), encoding="utf-8") as file:
                    flags = next((ln for ln in file if ln.startswith("flags:")), "flags: 0")
                if int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                    found.add(target[len(prefix) :])
            except (OSError, ValueError, IndexError):
                continue
    return sorted(found)


def about_us():
    """What the sidecar has to know of this process; `bootID` tells it from one before."""
    return {
        "version": VERSION,
        "bootID": uuid.uuid4().hex,
        "pid": os.getpid(),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
    }
