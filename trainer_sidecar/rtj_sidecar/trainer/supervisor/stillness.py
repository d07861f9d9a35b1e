"""Whether the trainer's processes do anything at all: what the kernel counts of them.

A process that waits in a collective, on a lock or for a signal to go on uses no processor and moves
no bytes. That alone is no fault: it only says when it fell still, and how. Must never touch a
process, and never take one that waits for a disk, or that a debugger holds, for one that does
nothing; nor time in which nobody looked, as a paused machine's, for stillness.
"""

from __future__ import annotations

import os
import time

CORE_SHARE = 0.05  # of one core, all processes together: below it nothing is computed
FILE_BYTES = 65536  # a second, all processes together
NETWORK_BYTES = 32768  # a second, of the pod, loopback apart; while a gang hangs nobody asks much
UNSEEN_SECONDS = 5.0  # between two looks, beyond what was to lie between them
DEBUGGED = "t"
STOPPED, BLOCKED, STILL = "stopped", "blocked", "still"


def clock_ticks():
    try:
        return float(os.sysconf("SC_CLK_TCK"))
    except (ValueError, OSError):
        return 100.0


def bytes_of(pid):
    """What a process has read and written through calls so far; 0 where it may not be seen."""
    try:
        with open("/proc/{}/io".format(pid), encoding="utf-8") as file:
            words = dict(line.split(":", 1) for line in file if ":" in line)
        return int(words["rchar"]) + int(words["wchar"])
    except (OSError, ValueError, KeyError):
        return 0


def network_bytes():
    """What this network namespace has sent and received so far, loopback apart."""
    total = 0
    try:
        with open("/proc/net/dev", encoding="utf-8") as file:
            for line in file:
                name, _, rest = line.partition(":")
                fields = rest.split()
                if rest and name.strip() != "lo":
                    total += int(fields[0]) + int(fields[8])
    except (OSError, ValueError, IndexError):
        return 0
    return total


class Stillness:
    """Fed by one thread with a look a second; `view` is read by another."""

    def __init__(self):
        self.ticks = clock_ticks()
        self.reset()

    def reset(self):
        self.before = None  # (when, ticks by process, bytes by process, network)
        self.view = None  # as in wire.StillView
        self.network_at = None

    def look(self, found, pids, now=None, apart=1.0):
        """`found`: all processes, `pids`: the trainer's, `now`: Unix time, `apart`: seconds that
        were to lie between this look and the one before."""
        moment = time.time() if now is None else now
        times = {pid: found[pid].ticks for pid in pids}
        moved = {pid: bytes_of(pid) for pid in pids}
        network = network_bytes()
        before, self.before = self.before, (moment, times, moved, network)
        if before is None:
            return
        seconds = moment - before[0]
        if not 0 < seconds <= apart + UNSEEN_SECONDS:
            self.view = None  # the machine was paused, or its clock was set
            return
        spent = grown(before[1], times) / self.ticks / seconds
        read = grown(before[2], moved) / seconds
        if (network - before[3]) / seconds >= NETWORK_BYTES:
            self.network_at = moment
        states = {found[pid].state for pid in pids}
        if DEBUGGED in states:
            self.view = None
            return
        if "T" in states:
            kind = STOPPED
        elif spent >= CORE_SHARE or read >= FILE_BYTES or not pids:
            self.view = None
            return
        else:
            kind = BLOCKED if "D" in states else STILL
        old = self.view
        is_new = old is None or (kind == STOPPED) != (old["kind"] == STOPPED)
        since = before[0] if old is None or is_new else old["since"]
        self.view = {"kind": kind, "since": since, "networkAt": self.network_at}


def grown(before, after):
    """By how much the counters rose; a process that is new counts whole."""
    return sum(max(0, value - before.get(pid, 0)) for pid, value in after.items())
