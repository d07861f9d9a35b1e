"""The supervisor itself: one loop over small files, signals and children.

The state of the running trainer is here and nowhere else. What it must never do: see the package.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from .agreed import Agreed
from .departure import Departure
from .files import Mailbox, read_json, write_text, write_whole
from .flight import Flights
from .journal import Journal
from .launch import arguments_of, end_of, environment_of, exit_code_of, launch, launch_hook
from .memory import limit_hits, memory_limit, oom_kills, was_below_limit
from .output import Log, drain, error_file, error_message, forget_errors
from .processes import (
    about_us,
    adopt_orphans,
    container_members,
    descendants,
    kill,
    process,
    processes,
)
from .signals import NO_WISH, Signals, signal_trainer
from .stacks import Stacks
from .state import state_of
from .trial import Trials
from .writers import WRITERS_SECONDS, Writers

TICK_SECONDS = 0.015
IDLE_WRITE_SECONDS = 5.0
DEFAULT_GRACE_SECONDS = 30.0
DRAIN_SECONDS = 2.0
FLIGHT_SECONDS = 0.2  # for what the flight recorder wrote: it names the rank to blame


class Supervisor:
    """One loop; every method is called from it."""

    def __init__(self, command, run):
        self.command = command
        self.run_dir = run
        self.signals = Signals()
        self.log = Log(self.at("trainer.log"))
        self.about = about_us()
        self.sequence = 0
        self.dirty = True
        self.written = 0.0
        self.term_at = None
        self.stopped = 0  # no trainer of an attempt up to this runs or will be started
        self.lingering = 0
        self.mailbox = Mailbox(run)
        self.go = None
        self.pid = None
        self.pumps = []
        self.kill_at = None  # monotonic
        self.hook = None  # PID of the postStart hook of the running trainer
        self.kernel_kills, self.limit_hits = 0, None
        self.journal = Journal(run)
        self.departure = Departure(run)
        self.trials = Trials(run)
        config = read_json(self.at("supervise.json")) or {}
        self.path = config.get("path") or "/nonexistent"
        self.post_start = [str(word) for word in config.get("postStart") or []]
        self.grace = float(config.get("trainerGraceSeconds") or DEFAULT_GRACE_SECONDS)
        self.agreed = Agreed(float(config.get("holdTermSeconds") or 0), self.grace)
        self.view = {"state": "none", "attempt": 0}
        self.started = 0
        self.stacks = Stacks(self.log)
        self.writers = Writers(self.path, self.stacks.ours)
        self.flights = Flights(run)

    def at(self, name):
        return os.path.join(self.run_dir, name)

    # --- start of this process ---

    def prepare(self):
        """Signals, reaping, and what an earlier run of this container had started."""
        self.signals.listen()
        adopt_orphans()
        with contextlib.suppress(OSError):
            write_text(self.at("python"), sys.executable + "\n")
        self.recover()
        self.writers.start()
        self.flights.start()
        self.publish()

    def recover(self):
        """An attempt found in the journal is never started again, whatever became of it."""
        self.trials.recover()
        self.started, view = self.journal.recovered(self.log.path)
        self.view = view or self.view

    # --- the loop ---

    def loop(self):
        while True:
            self.reap()
            self.forward()
            self.read_agreed()
            self.read_stop()
            self.read_unhealthy()
            self.read_go()
            self.enforce()
            self.try_save()
            self.look_into()
            self.start()
            self.refresh()
            release = self.release()
            if release is not None:
                self.publish()
                return self.departure.leave(*release)
            if self.dirty or time.monotonic() - self.written > IDLE_WRITE_SECONDS:
                self.publish()
            self.signals.wait(TICK_SECONDS)

    def running(self):
        return self.view["state"] == "running"

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except OSError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.ended(status)
            elif pid == self.trials.pid:
                self.trials.ended(status)
                self.departure.begin_wait()
                self.clear(0.01, everything=False)
                self.dirty = True
            elif pid == self.hook:
                self.hook = None
                if status and self.running():
                    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
                    self.give_up("its postStart hook failed, exit code {}".format(code), None)

    def forward(self):
        while self.signals.came:
            number = self.signals.came.popleft()
            name = signal.Signals(number).name
            if name == "SIGTERM" and self.term_at is None:
                self.term_at = time.time()
                self.dirty = True
            if not self.running():
                continue
            if name not in NO_WISH:
                self.view["askedToStop"] = True
                self.dirty = True
            if name == "SIGTERM":
                if self.agreed.holds():
                    continue
                self.end_by(self.grace)
            signal_trainer(self.pid, self.command, number)

    def end_by(self, grace):
        wanted = time.monotonic() + grace
        self.kill_at = wanted if self.kill_at is None else min(self.kill_at, wanted)

    def read_agreed(self):
        """A step at which it is to save and end; and a SIGTERM that waited for it."""
        if self.running():
            if self.agreed.hears(self.mailbox.news("trainer.stop"), self.view["attempt"]):
                self.view["askedToStop"] = self.dirty = True
            for number in self.agreed.due():
                signal_trainer(self.pid, self.command, number)

    def read_stop(self):
        stop = self.mailbox.news("stop.json")
        if stop is None:
            return
        attempt = int(stop.get("attempt", 0))
        grace = stop.get("graceSeconds")
        self.stopped = max(self.stopped, attempt)
        self.dirty = True
        if self.running() and self.view["attempt"] <= attempt:
            self.view["askedToStop"] = True
            if grace is None:
                self.end_by(0)
            else:
                self.end_by(float(grace))
                self.agreed.is_overtaken()
                signal_trainer(self.pid, self.command, signal.SIGTERM)

    def read_unhealthy(self):
        """A liveness probe ran out of patience with this very trainer."""
        word = self.mailbox.news("unhealthy.json")
        if word is None or not self.running():
            return
        if word.get("trainer") == [self.view["attempt"], self.view["startedAt"]]:
            self.give_up(str(word.get("message")), word.get("graceSeconds"))

    def give_up(self, why, grace):
        """End the trainer as the kubelet would end its container."""
        self.view.update(unhealthy=why, askedToStop=True)
        self.dirty = True
        self.end_by(self.grace if grace is None else float(grace))
        self.agreed.is_overtaken()
        signal_trainer(self.pid, self.command, signal.SIGTERM)

    def read_go(self):
        # After stop.json, so that a stop that is already there cancels an older go.
        go = self.mailbox.news("go.json")
        if go is not None:
            self.go = go

    def try_save(self):
        """The user's probe of a restored save, which never meets a trainer."""
        wish = self.mailbox.news("trial.json")
        if wish is not None:
            self.trials.ask(wish)
        may_run = not self.running() and not self.lingering and self.term_at is None
        if self.trials.step(may_run and self.go is None, self.stopped):
            self.dirty = True

    def look_into(self):
        """The sidecar asks what the trainer's processes are doing just now."""
        wish = self.mailbox.news("look.json")
        if wish is not None and self.running():
            self.stacks.ask(wish, descendants(os.getpid(), processes()))
            self.flights.ask()
        if self.stacks.news() or self.flights.news():
            self.dirty = True

    def enforce(self):
        ends = [end for end in (self.kill_at, self.agreed.kill_at) if end is not None]
        if self.running() and ends and time.monotonic() >= min(ends):
            kill({self.pid} | descendants(os.getpid(), processes()), signal.SIGKILL)
            self.kill_at = time.monotonic() + 0.05  # again, for what was forked meanwhile
        if self.lingering and not self.running():
            self.clear(0.0, everything=self.go is not None)

    def clear(self, patience, everything):
        """Kill what the trainer left behind and wait up to `patience` seconds until it is gone."""
        deadline = time.monotonic() + patience
        while True:
            found = processes()
            left = descendants(os.getpid(), found)
            if everything:
                left |= container_members(found)
            if left:
                kill(left, signal.SIGKILL)
                self.reap()
            if len(left) != self.lingering:
                self.lingering = len(left)
                self.dirty = True
            if not left or time.monotonic() >= deadline:
                return
            time.sleep(0.001)

    def start(self):
        go = self.go
        if go is None or self.running() or self.trials.running():
            return
        attempt = int(go.get("attempt", 0))
        if attempt <= self.started or attempt <= self.stopped or self.term_at is not None:
            self.go = None
            return
        self.clear(0.01, everything=True)
        if self.lingering:
            return
        record = {"attempt": attempt, "startedAt": time.time()}
        if not self.journal.begin(record):
            return
        self.go = None
        self.started = attempt
        self.kill_at = None
        self.agreed.begin()
        self.kernel_kills, self.limit_hits = oom_kills(), limit_hits()
        self.log.begin()
        forget_errors(self.run_dir)
        self.view = dict(record, state="running")
        self.spawn(go, record)
        self.dirty = True

    def spawn(self, go, record):
        env = environment_of(go, errors=error_file(self.run_dir, record["attempt"]))
        arguments = arguments_of(self.command, go.get("extraArgs") or [], env)
        try:
            self.pid, self.pumps = launch(arguments, env, self.log)
        except (OSError, ValueError) as error:
            self.cannot_execute(error)
            return
        seen = process(self.pid)
        self.view.update(pid=self.pid, startedAt=time.time())
        self.writers.switch(True)
        self.flights.begin(record["attempt"], env, record["startedAt"])
        self.publish()
        if self.post_start:
            self.run_hook(env)
        self.remember(dict(record, pid=self.pid, start=seen.start if seen else None))

    def run_hook(self, env):
        try:
            self.hook = launch_hook(self.post_start, env)
        except OSError as error:
            self.give_up("its postStart hook could not be run: {}".format(error), None)

    def cannot_execute(self, error):
        line = "supervise: cannot execute {!r}: {}".format(self.command[0], error)
        sys.stderr.write(line + "\n")
        code = exit_code_of(error)
        self.view.update(state="exited", endedAt=time.time(), exitCode=code, tail=[line])
        self.publish()
        self.remember({"attempt": self.view["attempt"], "ended": self.view})

    def remember(self, record):
        if not self.journal.save(record):
            self.dirty = True

    def ended(self, status):
        self.pid = None
        self.kill_at = None
        self.view.update(end_of(status), state="exited", endedAt=time.time())
        # As when a container's first process ends: what it started ends with it.
        self.clear(0.01, everything=False)
        # What it said last is the cause, so its end is not told without it; only a process that
        # does not die may hold the pipe open for ever.
        drain(self.pumps, 0.1 if self.lingering else DRAIN_SECONDS)
        self.writers.switch(False)
        self.flights.end(FLIGHT_SECONDS if self.view["exitCode"] else 0.0)
        self.departure.begin_wait()
        self.look_at_end()
        self.publish()
        if any(thread.is_alive() for thread in self.pumps):
            drain(self.pumps, 0.2)
            self.look_at_end()
            self.dirty = True
        self.remember({"attempt": self.view["attempt"], "ended": self.view})

    def look_at_end(self):
        self.count_kills()
        self.view["tail"] = self.log.lines()
        self.view["error"] = error_message(error_file(self.run_dir, self.view["attempt"]))

    def count_kills(self):
        kills = max(0, oom_kills() - self.kernel_kills)
        if kills:
            is_of_node = was_below_limit(self.limit_hits)
            self.view.update(oomKills=kills, oomOfNode=is_of_node, memoryLimitBytes=memory_limit())

    def refresh(self):
        if self.running() and time.monotonic() - self.written >= WRITERS_SECONDS:
            self.count_kills()
            self.dirty = True

    # --- the end ---

    def release(self):
        """The termination message and the exit code with which to leave now, or None."""
        if self.running() or self.lingering or self.trials.running():
            return None
        return self.departure.word()

    def publish(self):
        self.sequence += 1
        try:
            write_whole(self.at("supervisor.json"), state_of(self, time.time()))
            self.dirty = False
        except OSError:
            self.dirty = True
        self.written = time.monotonic()
