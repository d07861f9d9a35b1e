"""The supervisor itself: one loop over small files, signals and children."""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import uuid

from .files import identity, read_json, write_text, write_whole
from .memory import memory_limit, oom_kills
from .output import Log, error_message, log_lines, pump
from .processes import (
    LAUNCHER,
    adopt_orphans,
    container_members,
    descendants,
    kill,
    process,
    processes,
)
from .writers import WRITERS_SECONDS, Writers

VERSION = 1
TICK_SECONDS = 0.015
IDLE_WRITE_SECONDS = 5.0
BEAT_TIMEOUT_SECONDS = 300.0
DEFAULT_GRACE_SECONDS = 30.0
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell reports them
FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")
NO_WISH = ("SIGWINCH", "SIGCONT")  # forwarded, but nobody's wish to end the trainer
SHELLS = ("sh", "bash", "dash", "ash", "zsh")
VARIABLE = re.compile(r"\$\((RTJ_[A-Z0-9_]+)\)")


class Supervisor:
    """One loop; every method is called from it."""

    def __init__(self, command, run):
        self.command = command
        self.run_dir = run
        self.signals = collections.deque()
        self.wake_read, self.wake_write = os.pipe()
        self.log = Log(self.at("trainer.log"))
        self.boot = uuid.uuid4().hex
        self.sequence = 0
        self.dirty = True
        self.written = 0.0
        self.term_at = None
        self.stopped = 0  # no trainer of an attempt up to this runs or will be started
        self.lingering = 0
        self.seen = {}
        self.go = None
        self.pid = None
        self.pumps = []
        self.kill_at = None  # monotonic
        self.hook = None  # PID of the postStart hook of the running trainer
        self.kernel_kills = 0
        self.beat = None
        self.quiet_since = time.monotonic()
        self.journal_failed = False
        config = read_json(self.at("supervise.json")) or {}
        self.path = config.get("path") or "/nonexistent"
        self.post_start = [str(word) for word in config.get("postStart") or []]
        self.grace = float(config.get("trainerGraceSeconds") or DEFAULT_GRACE_SECONDS)
        self.view = {"state": "none", "attempt": 0}
        self.started = 0
        self.writers = Writers(self.path)

    def at(self, name):
        return os.path.join(self.run_dir, name)

    # --- start of this process ---

    def prepare(self):
        """Signals, reaping, and what an earlier run of this container had started."""
        for number in (self.wake_read, self.wake_write):
            os.set_blocking(number, False)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        for name in FORWARDED:
            signal.signal(getattr(signal, name), lambda number, _: self.signals.append(number))
        signal.signal(signal.SIGCHLD, lambda number, _: None)
        adopt_orphans()
        with contextlib.suppress(OSError):
            write_text(self.at("python"), sys.executable + "\n")
        self.recover()
        self.writers.start()
        self.publish()

    def recover(self):
        """An attempt found in the journal is never started again, whatever became of it."""
        place = self.at("supervisor.journal")
        journal = read_json(place)
        if journal is None:
            if identity(place) is not None:
                # Unreadable: the only safe reading is that what was asked for was started.
                journal = {"attempt": int((read_json(self.at("go.json")) or {}).get("attempt", 0))}
            else:
                return
        self.started = int(journal.get("attempt", 0))
        if journal.get("ended"):
            self.view = journal["ended"]
        elif self.started:
            self.end_leftover(journal)
            self.view = {
                "state": "exited",
                "attempt": self.started,
                "pid": journal.get("pid"),
                "startedAt": journal.get("startedAt"),
                "endedAt": time.time(),
                "containerRestarted": True,
                "tail": log_lines(self.log.path),
                "error": error_message(self.error_file(self.started)),
            }

    def end_leftover(self, journal):
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

    def error_file(self, attempt):
        return self.at("error-{}.json".format(attempt))

    def forget_errors(self):
        for name in os.listdir(self.run_dir):
            if name.startswith("error-"):
                with contextlib.suppress(OSError):
                    os.unlink(self.at(name))

    # --- the loop ---

    def loop(self):
        while True:
            self.reap()
            self.forward()
            self.read_stop()
            self.read_unhealthy()
            self.read_go()
            self.enforce()
            self.start()
            self.refresh()
            release = self.release()
            if release is not None:
                self.publish()
                return self.leave(*release)
            if self.dirty or time.monotonic() - self.written > IDLE_WRITE_SECONDS:
                self.publish()
            select.select([self.wake_read], [], [], TICK_SECONDS)
            with contextlib.suppress(OSError):
                os.read(self.wake_read, 4096)

    def running(self):
        return self.view["state"] == "running"

    def replaced(self, name):
        """The content of a file if it is not the one looked at last."""
        now = identity(self.at(name))
        if now is None or now == self.seen.get(name):
            return None
        data = read_json(self.at(name))
        if data is not None:
            self.seen[name] = now
        return data

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
            elif pid == self.hook:
                self.hook = None
                if status and self.running():
                    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
                    self.give_up("its postStart hook failed, exit code {}".format(code), None)

    def forward(self):
        while self.signals:
            number = self.signals.popleft()
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
                self.end_by(self.grace)
            self.signal_trainer(number)

    def signal_trainer(self, number):
        # The kubelet signals a container's first process only. A shell as that process would
        # keep the signal to itself, so then its whole group hears it.
        if os.path.basename(self.command[0]) in SHELLS:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)
        else:
            kill([self.pid], number)

    def end_by(self, grace):
        wanted = time.monotonic() + grace
        self.kill_at = wanted if self.kill_at is None else min(self.kill_at, wanted)

    def read_stop(self):
        stop = self.replaced("stop.json")
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
                self.signal_trainer(signal.SIGTERM)

    def read_unhealthy(self):
        """A liveness probe ran out of patience with this very trainer."""
        word = self.replaced("unhealthy.json")
        if word is None or not self.running():
            return
        if word.get("trainer") == [self.view["attempt"], self.view["startedAt"]]:
            self.give_up(str(word.get("message")), word.get("graceSeconds"))

    def give_up(self, why, grace):
        """End the trainer as the kubelet would end its container."""
        self.view.update(unhealthy=why, askedToStop=True)
        self.dirty = True
        self.end_by(self.grace if grace is None else float(grace))
        self.signal_trainer(signal.SIGTERM)

    def read_go(self):
        # After stop.json, so that a stop that is already there cancels an older go.
        go = self.replaced("go.json")
        if go is not None:
            self.go = go

    def enforce(self):
        if self.running() and self.kill_at is not None and time.monotonic() >= self.kill_at:
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
        if go is None or self.running():
            return
        attempt = int(go.get("attempt", 0))
        if attempt <= self.started or attempt <= self.stopped or self.term_at is not None:
            self.go = None
            return
        self.clear(0.01, everything=True)
        if self.lingering:
            return
        record = {"attempt": attempt, "startedAt": time.time()}
        try:
            write_whole(self.at("supervisor.journal"), record)  # before the effect
        except OSError as error:
            if not self.journal_failed:
                sys.stderr.write("supervise: cannot write its journal, waiting: %s\n" % error)
            self.journal_failed = True
            return
        self.journal_failed = False
        self.go = None
        self.started = attempt
        self.kill_at = None
        self.kernel_kills = oom_kills()
        self.log.begin()
        self.forget_errors()
        self.view = dict(record, state="running")
        self.spawn(go, record)
        self.dirty = True

    def spawn(self, go, record):
        wanted = {str(name): str(value) for name, value in (go.get("env") or {}).items()}
        env = dict(os.environ)
        env.setdefault("TORCHELASTIC_ERROR_FILE", self.error_file(record["attempt"]))
        env.update(wanted)
        # A command that places the arguments itself (a shell's) gets none appended.
        placed = any("$(RTJ_RESUME_ARGS)" in word for word in self.command)
        arguments = [
            VARIABLE.sub(lambda match: env.get(match.group(1), match.group(0)), str(word))
            for word in self.command + ([] if placed else list(go.get("extraArgs") or []))
        ]
        pipes = [os.pipe(), os.pipe()]
        try:
            child = subprocess.Popen(
                arguments, env=env, stdout=pipes[0][1], stderr=pipes[1][1], start_new_session=True
            )
        except (OSError, ValueError) as error:
            for read, write in pipes:
                os.close(read)
                os.close(write)
            self.cannot_execute(error)
            return
        child.returncode = 0  # reaped here, by waitpid(-1): subprocess must not try
        self.pid = child.pid
        self.pumps = []
        for (read, write), sink in zip(pipes, (1, 2)):  # noqa: B905 (Python 3.8)
            os.close(write)
            thread = threading.Thread(target=pump, args=(read, sink, self.log), daemon=True)
            thread.start()
            self.pumps.append(thread)
        seen = process(child.pid)
        self.view.update(pid=child.pid, startedAt=time.time())
        self.writers.switch(True)
        self.publish()
        if self.post_start:
            self.run_hook(env)
        self.save_journal(dict(record, pid=child.pid, start=seen.start if seen else None))

    def run_hook(self, env):
        """The user's postStart: beside the trainer, as Kubernetes runs it beside a container."""
        script = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), LAUNCHER)
        command = [sys.executable, "-I", "-S", script, "probe", "--kind", "post-start"]
        try:
            child = subprocess.Popen(command + self.post_start, env=env, start_new_session=True)
        except OSError as error:
            self.give_up("its postStart hook could not be run: {}".format(error), None)
            return
        child.returncode = 0  # reaped by waitpid(-1), as the trainer is
        self.hook = child.pid

    def cannot_execute(self, error):
        number = getattr(error, "errno", None)
        code = NOT_FOUND if number in (errno.ENOENT, errno.ENOTDIR) else NOT_EXECUTABLE
        line = "supervise: cannot execute {!r}: {}".format(self.command[0], error)
        sys.stderr.write(line + "\n")
        self.view.update(state="exited", endedAt=time.time(), exitCode=code, tail=[line])
        self.publish()
        self.save_journal({"attempt": self.view["attempt"], "ended": self.view})

    def save_journal(self, record):
        """After the effect, so the flush costs the trainer nothing."""
        try:
            write_whole(self.at("supervisor.journal"), record)
            descriptor = os.open(self.at("supervisor.journal"), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            self.dirty = True

    def ended(self, status):
        self.pid = None
        self.kill_at = None
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        self.view.update(
            state="exited",
            endedAt=time.time(),
            exitCode=-number if number else os.WEXITSTATUS(status),
            signal=number,
        )
        # As when a container's first process ends: what it started ends with it.
        self.clear(0.01, everything=False)
        # Usually under a millisecond; longer only where something else holds the pipe open.
        deadline = time.monotonic() + 0.1
        for thread in self.pumps:
            thread.join(max(0.0, deadline - time.monotonic()))
        self.writers.switch(False)
        self.quiet_since = time.monotonic()
        self.look_at_end()
        self.publish()
        if any(thread.is_alive() for thread in self.pumps):
            for thread in self.pumps:
                thread.join(0.2)
            self.look_at_end()
            self.dirty = True
        self.save_journal({"attempt": self.view["attempt"], "ended": self.view})

    def look_at_end(self):
        self.count_kills()
        self.view["tail"] = self.log.lines()
        self.view["error"] = error_message(self.error_file(self.view["attempt"]))

    def count_kills(self):
        kills = max(0, oom_kills() - self.kernel_kills)
        if kills:
            self.view.update(oomKills=kills, memoryLimitBytes=memory_limit())

    def refresh(self):
        if self.running() and time.monotonic() - self.written >= WRITERS_SECONDS:
            self.count_kills()
            self.dirty = True

    # --- the end ---

    def release(self):
        """The termination message and the exit code with which to leave now, or None."""
        if self.running() or self.lingering:
            return None
        release = read_json(self.at("release.json")) if identity(self.at("release.json")) else None
        if release is not None:
            return str(release.get("message") or "released"), int(release.get("code") or 0)
        beat = identity(self.at("sidecar.beat"))
        if beat != self.beat:
            self.beat = beat
            self.quiet_since = time.monotonic()
        if time.monotonic() - self.quiet_since > BEAT_TIMEOUT_SECONDS:
            return "abandoned", 0
        return None

    def leave(self, message, code):
        if code:
            # It speaks of this end only: the container's next run must wait for its own.
            with contextlib.suppress(OSError):
                os.unlink(self.at("release.json"))
        path = os.environ.get("RTJ_TERMINATION_LOG", "/dev/termination-log")
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(message)
        except OSError as error:
            sys.stderr.write("supervise: cannot write {}: {}\n".format(path, error))
            return code or 1  # Without its message an exit 0 would look like success.
        return code

    def publish(self):
        now = time.time()
        self.sequence += 1
        state = {
            "version": VERSION,
            "bootID": self.boot,
            "sequence": self.sequence,
            "pid": os.getpid(),
            "uid": os.getuid(),
            "gid": os.getgid(),
            "python": "{}.{}.{}".format(*sys.version_info[:3]),
            "termReceivedAt": self.term_at,
            "stoppedAttempt": self.stopped,
            "lingering": self.lingering,
            "trainer": {name: value for name, value in self.view.items() if value is not None},
            "openForWriting": self.writers.now() if self.running() else [],
            "writtenAt": now,
        }
        try:
            write_whole(self.at("supervisor.json"), state)
            self.dirty = False
        except OSError:
            self.dirty = True
        self.written = time.monotonic()
