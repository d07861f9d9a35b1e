"""PID 1 of the trainer's container: starts the trainer when told, and tells how it ended.

Standard library only, Python >= 3.8, one file: it is copied into the pod and runs on whatever
Python the trainer's image has. It must never start a trainer twice for one attempt, never exit
while the pod's saves are not safe (unless nobody is left to save them), never signal a process
outside its own container, and never change what the trainer prints.

    supervise -- COMMAND ARGS        wait for go.json, run the command, wait for release.json
    supervise probe -- COMMAND ARGS  exit 0 while no trainer runs, else run the probe; also
    supervise probe --http URL [--header "NAME: VALUE"]… | --tcp HOST:PORT  [--timeout SECONDS]

It talks through files in `../run` (names in rtj_api.contract, forms in rtj_api.wire), each written
whole and renamed. Reads go.json, stop.json, release.json, supervise.json, the mtime of
sidecar.beat; writes supervisor.json, supervisor.journal, trainer.log.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import uuid

VERSION = 1
TICK_SECONDS = 0.015
IDLE_WRITE_SECONDS = 5.0
TAIL_BYTES = 64 * 1024
VIEW_BYTES = 16 * 1024
VIEW_LINES = 100
LOG_BYTES = 4 * 1024 * 1024
BEAT_TIMEOUT_SECONDS = 300.0
WRITERS_SECONDS = 1.0
DEFAULT_GRACE_SECONDS = 30.0
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell reports them
FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")
NO_WISH = ("SIGWINCH", "SIGCONT")  # forwarded, but nobody's wish to end the trainer
SHELLS = ("sh", "bash", "dash", "ash", "zsh")
VARIABLE = re.compile(r"\$\((RTJ_[A-Z0-9_]+)\)")


# --- small files ----------------------------------------------------------------------------------


def write_whole(path, data):
    """Write JSON so that a reader sees the old or the new content, never a part."""
    temporary = "{}.{}.tmp".format(path, os.getpid())
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(data, file)
    os.chmod(temporary, 0o666)
    os.rename(temporary, path)


def read_json(path):
    """The object in a file, or None where there is none or it is not one."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def identity(path):
    """Changes whenever the file is replaced; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


# --- processes ------------------------------------------------------------------------------------


class Proc:
    """One line of /proc/<pid>/stat."""

    __slots__ = ("pid", "ppid", "session", "start", "state")

    def __init__(self, pid, text):
        # The name is in parentheses and may itself hold spaces and parentheses.
        fields = text[text.rindex(")") + 2 :].split()
        self.pid = pid
        self.state = fields[0]
        self.ppid = int(fields[1])
        self.session = int(fields[3])
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
    if me == 1:
        return alive
    mine = cgroup_text(me)
    return {pid for pid in alive if mine is not None and cgroup_text(pid) == mine}


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


def oom_kills():
    """Processes killed for memory in this container's cgroup since it was made, 0 if unknown.

    cgroup v2: memory.events; v1: memory.oom_control. Both have a line `oom_kill N`.
    """
    places = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"]
    for line in (cgroup_text("self") or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if path.startswith("/.."):
            continue
        if number == "0" and not controllers:
            places.insert(0, "/sys/fs/cgroup" + path.rstrip("/") + "/memory.events")
        elif "memory" in controllers.split(","):
            places.insert(0, "/sys/fs/cgroup/memory" + path.rstrip("/") + "/memory.oom_control")
    for place in places:
        try:
            with open(place, encoding="utf-8") as file:
                for line in file:
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return 0


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


# --- output ---------------------------------------------------------------------------------------


class Log:
    """A bounded tail of the trainer's output: in memory, and in trainer.log and trainer.log.1."""

    def __init__(self, path):
        self.path = path
        self.lock = threading.Lock()
        self.tail = bytearray()
        self.descriptor = None
        self.size = 0

    def begin(self):
        """A new trainer has its own tail; the file goes on."""
        with self.lock:
            self.tail = bytearray()

    def add(self, chunk):
        with self.lock:
            self.tail += chunk
            if len(self.tail) > 2 * TAIL_BYTES:
                del self.tail[:-TAIL_BYTES]
            try:
                if self.descriptor is None:
                    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                    self.descriptor = os.open(self.path, flags, 0o644)
                    self.size = os.fstat(self.descriptor).st_size
                self.size += os.write(self.descriptor, chunk)
                if self.size >= LOG_BYTES:
                    os.rename(self.path, self.path + ".1")
                    self._close()
            except OSError:
                self._close()  # A full disk must not stop the trainer's output.

    def _close(self):
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def lines(self):
        with self.lock:
            return last_lines(bytes(self.tail[-TAIL_BYTES:]))


def last_lines(content):
    """The last lines of some output, bounded; a carriage return ends a line too."""
    text = content[-VIEW_BYTES:].decode("utf-8", "replace")
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()][-VIEW_LINES:]


def log_lines(path):
    """What an earlier run of this container left in the log."""
    content = b""
    for name in (path + ".1", path):
        try:
            with open(name, "rb") as file:
                file.seek(max(0, os.path.getsize(name) - TAIL_BYTES))
                content += file.read()
        except OSError:
            continue
    return last_lines(content)


def pump(source, sink, log):
    """Pass bytes from the trainer's pipe on as they come, until its last writer is gone."""
    try:
        while True:
            try:
                chunk = os.read(source, 65536)
            except OSError as error:
                if error.errno == errno.EINTR:
                    continue
                break
            if not chunk:
                break
            log.add(chunk)
            while chunk and sink is not None:
                try:
                    chunk = chunk[os.write(sink, chunk) :]
                except OSError as error:
                    if error.errno == errno.EAGAIN:
                        select.select([], [sink], [], 1.0)
                    else:
                        sink = None  # Nobody reads: go on draining, for the trainer's sake.
    finally:
        os.close(source)


def error_message(path):
    """The message of a torchelastic error file, bounded, or None.

    Form: {"message": text} or {"message": {"message": text, "extraInfo": …}}
    (torch.distributed.elastic.multiprocessing.errors.ErrorHandler).
    """
    found = (read_json(path) or {}).get("message")
    if isinstance(found, dict):
        found = found.get("message")
    return found[-4000:] if isinstance(found, str) else None


class Writers(threading.Thread):
    """Looks about once a second which files of the checkpoint directory are open for writing."""

    def __init__(self, root):
        super().__init__(daemon=True)
        self.root = root
        self.lock = threading.Lock()
        self.wake = threading.Event()
        self.generation = 0
        self.active = False
        self.paths = []

    def switch(self, active):
        with self.lock:
            self.generation += 1
            self.active = active
            self.paths = []
        self.wake.set()

    def run(self):
        while True:
            with self.lock:
                active, generation = self.active, self.generation
            spent = 0.0
            if active:
                begun = time.monotonic()
                me = os.getpid()
                seen = processes()
                pids = descendants(me, seen) | container_members(seen)
                paths = open_for_writing(os.path.realpath(self.root), pids)
                spent = time.monotonic() - begun
                with self.lock:
                    if generation == self.generation:
                        self.paths = paths
            # Never more than two percent of a core.
            self.wake.wait(max(WRITERS_SECONDS, 50 * spent) if active else None)
            self.wake.clear()

    def now(self):
        with self.lock:
            return list(self.paths)


# --- the supervisor -------------------------------------------------------------------------------


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
        self.kernel_kills = 0
        self.beat = None
        self.quiet_since = time.monotonic()
        self.journal_failed = False
        config = read_json(self.at("supervise.json")) or {}
        self.path = config.get("path") or "/nonexistent"
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
            self.read_go()
            self.enforce()
            self.start()
            self.refresh()
            message = self.release_message()
            if message is not None:
                self.publish()
                return self.leave(message)
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
        self.save_journal(dict(record, pid=child.pid, start=seen.start if seen else None))

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
        self.view["oomKills"] = max(0, oom_kills() - self.kernel_kills)
        self.view["tail"] = self.log.lines()
        self.view["error"] = error_message(self.error_file(self.view["attempt"]))

    def refresh(self):
        if self.running() and time.monotonic() - self.written >= WRITERS_SECONDS:
            self.dirty = True

    # --- the end ---

    def release_message(self):
        """The termination message with which to leave now, or None."""
        if self.running() or self.lingering:
            return None
        release = read_json(self.at("release.json")) if identity(self.at("release.json")) else None
        if release is not None:
            return str(release.get("message") or "released")
        beat = identity(self.at("sidecar.beat"))
        if beat != self.beat:
            self.beat = beat
            self.quiet_since = time.monotonic()
        if time.monotonic() - self.quiet_since > BEAT_TIMEOUT_SECONDS:
            return "abandoned"
        return None

    def leave(self, message):
        path = os.environ.get("RTJ_TERMINATION_LOG", "/dev/termination-log")
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(message)
        except OSError as error:
            sys.stderr.write("supervise: cannot write {}: {}\n".format(path, error))
            return 1  # Without its message an exit 0 would look like success.
        return 0

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


def probe(words, run):
    """Exit code of a probe: 0 while no trainer runs, else what the probe says."""
    state = read_json(os.path.join(run, "supervisor.json")) or {}
    if (state.get("trainer") or {}).get("state") != "running":
        return 0
    options, headers = {}, []
    while words and words[0] != "--":
        name, value = words[0], words[1] if len(words) > 1 else ""
        if name == "--header":
            headers.append(value)
        elif name in ("--http", "--tcp", "--timeout"):
            options[name] = value
        else:
            sys.stderr.write("supervise probe: unknown option {}\n".format(name))
            return 2
        words = words[2:]
    timeout = float(options.get("--timeout") or 1)
    if "--http" in options:
        return http_probe(options["--http"], headers, timeout)
    if "--tcp" in options:
        return tcp_probe(options["--tcp"], timeout)
    return execute(words[1:])


def execute(command):
    if not command:
        sys.stderr.write("supervise probe: no command after --\n")
        return 2
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write("supervise: cannot execute {!r}: {}\n".format(command[0], error))
    return NOT_FOUND


def http_probe(url, headers, timeout):
    """As the kubelet does: any status from 200 to 399 is success, certificates are not checked."""
    import ssl
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url)
    for header in headers:
        name, _, value = header.partition(":")
        request.add_header(name.strip(), value.strip())
    handlers = [urllib.request.ProxyHandler({})]
    if url.startswith("https:"):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        handlers.append(urllib.request.HTTPSHandler(context=context))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
            return 0 if 200 <= answer.status < 400 else 1
    except urllib.error.HTTPError as error:
        sys.stderr.write("HTTP status {}\n".format(error.code))
    except (OSError, ValueError) as error:
        sys.stderr.write("{}\n".format(error))
    return 1


def tcp_probe(address, timeout):
    import socket

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout).close()
        return 0
    except (OSError, ValueError) as error:
        sys.stderr.write("{}\n".format(error))
        return 1


def main(arguments):
    run = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "run")
    probing = arguments[:1] == ["probe"]
    if probing:
        return probe(arguments[1:], run)
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command:
        sys.stderr.write("usage: supervise [probe] -- COMMAND [ARGS…]\n")
        return 2
    if not os.path.isdir(run):
        sys.stderr.write("supervise: {} is missing: the sidecar makes it\n".format(run))
        return 1
    supervisor = Supervisor(command, run)
    supervisor.prepare()
    return supervisor.loop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
