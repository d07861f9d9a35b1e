"""Starts the trainer, and the user's hook beside it.

The trainer gets a session of its own, its output goes through pipes that are pumped on. Must never
change a word of the command but the variables that were promised (`$(RTJ_…)`).
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import threading

from .output import pump
from .processes import LAUNCHER

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell reports them
VARIABLE = re.compile(r"\$\((RTJ_[A-Z0-9_]+)\)")


def arguments_of(command, extra, env):
    # A command that places the arguments itself (a shell's) gets none appended.
    placed = any("$(RTJ_RESUME_ARGS)" in word for word in command)
    return [
        VARIABLE.sub(lambda match: env.get(match.group(1), match.group(0)), str(word))
        for word in command + ([] if placed else list(extra))
    ]


def environment_of(go, errors):
    """This container's, with what the go adds. `errors`: where torchelastic writes its own."""
    env = dict(os.environ)
    env.setdefault("TORCHELASTIC_ERROR_FILE", errors)
    env.update({str(name): str(value) for name, value in (go.get("env") or {}).items()})
    return env


def launch(arguments, env, log):
    """(PID, the threads that pump its output). Raises OSError, ValueError."""
    pipes = [os.pipe(), os.pipe()]
    try:
        child = subprocess.Popen(
            arguments, env=env, stdout=pipes[0][1], stderr=pipes[1][1], start_new_session=True
        )
    except (OSError, ValueError):
        for read, write in pipes:
            os.close(read)
            os.close(write)
        raise
    child.returncode = 0  # reaped by waitpid(-1): subprocess must not try
    pumps = []
    for (read, write), sink in zip(pipes, (1, 2)):  # noqa: B905 (Python 3.8)
        os.close(write)
        thread = threading.Thread(target=pump, args=(read, sink, log), daemon=True)
        thread.start()
        pumps.append(thread)
    return child.pid, pumps


def end_of(status):
    """How a process ended, by its wait status: the exit code is negative for a signal."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return {"exitCode": -number if number else os.WEXITSTATUS(status), "signal": number}


def exit_code_of(error):
    number = getattr(error, "errno", None)
    return NOT_FOUND if number in (errno.ENOENT, errno.ENOTDIR) else NOT_EXECUTABLE


def launch_hook(words, env):
    """The user's postStart: beside the trainer, as Kubernetes runs it beside a container.

    Its PID. Raises OSError.
    """
    script = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), LAUNCHER)
    command = [sys.executable, "-I", "-S", script, "probe", "--kind", "post-start"]
    child = subprocess.Popen(command + words, env=env, start_new_session=True)
    child.returncode = 0  # reaped by waitpid(-1), as the trainer is
    return child.pid
