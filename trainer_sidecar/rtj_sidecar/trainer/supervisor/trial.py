"""The user's probe of a restored save, run once in the trainer's container before any trainer.

Asked for by trial.json, told of in supervisor.json. It has a session and an output of its own;
whatever it leaves running is killed, so that it holds neither a GPU nor a port afterwards. Must
never run while a trainer does, and never twice for one id, also after this process died.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from .files import read_json, write_whole
from .launch import arguments_of, launch
from .memory import oom_kills
from .output import Log, log_lines
from .processes import descendants, kill, processes

JOURNAL = "trial.journal"
LINES = 20
DRAIN_SECONDS = 5.0


class Trials:
    """Belongs to the supervisor's loop; `step` is called in each turn of it."""

    def __init__(self, run):
        self.run_dir = run
        self.log = Log(self.at("trial.log"))
        self.view = None  # as in wire.TrialView
        self.asked = None
        self.pid = None
        self.attempt = 0
        self.deadline = 0.0
        self.kernel_kills = 0
        self.pumps = []

    def at(self, name):
        return os.path.join(self.run_dir, name)

    def running(self):
        return self.pid is not None

    def recover(self):
        """One that an earlier run of this container had begun is lost, and not begun again."""
        known = read_json(self.at(JOURNAL)) or {}
        self.view = known.get("view")
        if self.view is not None and not self.view.get("ended"):
            tail = log_lines(self.log.path)[-LINES:]
            self.view.update(ended=True, lost=True, tail=tail)
            self.save()

    def ask(self, wish):
        """A new trial.json."""
        self.asked = wish

    def step(self, may_run, stopped):
        """Begin what is asked for, end what is over its time. True: something changed.

        `stopped`: no trial of an attempt up to that one may run.
        """
        if self.running():
            if self.attempt <= stopped or not may_run:
                self.view["stopped"] = True
                self.end()
            elif time.monotonic() >= self.deadline:
                self.view["timedOut"] = True
                self.end()
            return False
        wish = self.asked
        if wish is None or not may_run:
            return False
        self.asked = None
        is_known = (self.view or {}).get("id") == wish.get("id")
        if is_known or int(wish.get("attempt", 0)) <= stopped:
            return False
        self.begin(wish)
        return True

    def begin(self, wish):
        self.view = {"id": str(wish.get("id")), "ended": False}
        self.attempt = int(wish.get("attempt", 0))
        self.log.begin()
        self.save()  # before the effect
        env = dict(os.environ)
        env.update({str(k): str(v) for k, v in (wish.get("env") or {}).items()})
        words = arguments_of([str(word) for word in wish.get("command") or []], [], env)
        self.kernel_kills = oom_kills()
        self.deadline = time.monotonic() + float(wish.get("timeoutSeconds") or 600)
        try:
            self.pid, self.pumps = launch(words, env, self.log)
        except (OSError, ValueError, IndexError) as error:
            self.view.update(ended=True, notRun="{}".format(error))
            self.save()

    def end(self):
        """Kill it with all that it started; its end is seen by the loop's waitpid."""
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        # No trainer runs, so whatever descends from this process is the probe's.
        kill({self.pid} | descendants(os.getpid(), processes()), signal.SIGKILL)

    def ended(self, status):
        """It was reaped. What it left is the caller's to kill before anything else starts."""
        self.end()
        self.pid = None
        deadline = time.monotonic() + DRAIN_SECONDS
        for thread in self.pumps:
            thread.join(max(0.0, deadline - time.monotonic()))
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self.view.update(
            ended=True,
            exitCode=code,
            oomKills=max(0, oom_kills() - self.kernel_kills),
            tail=self.log.lines()[-LINES:],
        )
        self.save()

    def save(self):
        try:
            write_whole(self.at(JOURNAL), {"view": self.view})
        except OSError as error:
            sys.stderr.write("supervise: cannot write {}: {}\n".format(JOURNAL, error))
