"""Signals of this container, as a queue that the loop reads; and how the trainer gets them.

Must never act in a handler: what a signal means is the loop's to say.
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import signal

from .processes import kill

FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")
NO_WISH = ("SIGWINCH", "SIGCONT")  # forwarded, but nobody's wish to end the trainer
SHELLS = ("sh", "bash", "dash", "ash", "zsh")


class Signals:
    """`came`: numbers, oldest first. A child's end wakes, and is not in it."""

    def __init__(self):
        self.came = collections.deque()
        self.wake_read, self.wake_write = os.pipe()

    def listen(self):
        for number in (self.wake_read, self.wake_write):
            os.set_blocking(number, False)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        for name in FORWARDED:
            signal.signal(getattr(signal, name), lambda number, _: self.came.append(number))
        signal.signal(signal.SIGCHLD, lambda number, _: None)

    def wait(self, seconds):
        """Until the next signal, or that long."""
        select.select([self.wake_read], [], [], seconds)
        with contextlib.suppress(OSError):
            os.read(self.wake_read, 4096)


def signal_trainer(pid, command, number):
    # The kubelet signals a container's first process only. A shell as that process would
    # keep the signal to itself, so then its whole group hears it.
    if os.path.basename(command[0]) in SHELLS:
        with contextlib.suppress(OSError):
            os.killpg(pid, number)
    else:
        kill([pid], number)
