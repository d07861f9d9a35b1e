"""What the trainer printed last: whole lines, and before its end is told."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from kit.supervised import Supervised, python, supervised, wait_for
from rtj_api.wire import SupervisorState, TrainerState


def test_the_end_is_not_told_without_the_last_words(tmp_path: Path) -> None:
    """Whoever takes the container's output is slow: what the trainer said last still waits in the
    pipe when it ends."""
    output = tmp_path / "output"
    os.mkfifo(output)
    taken = os.open(output, os.O_RDONLY | os.O_NONBLOCK)
    code = "import sys; sys.stdout.write(('x' * 99 + '\\n') * 1800 + 'the cause\\n')"
    with supervised(tmp_path, python(code), alone=True) as one:
        one.go(1)
        pid = one.until_running(1).trainer.pid
        wait_for(lambda: "(zombie)" in status_of(pid) or not status_of(pid), why="its end")
        seen = wait_for_exit(one, seconds=0.5)  # with nobody who takes the output
        os.set_blocking(taken, True)
        reader = threading.Thread(target=drain, args=(taken,), daemon=True)
        reader.start()
        assert "the cause" in (seen or one.until_exited(1)).trainer.tail


def status_of(pid: int | None) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def wait_for_exit(one: Supervised, *, seconds: float) -> SupervisorState | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = one.link.state()
        if state is not None and state.trainer.state is TrainerState.EXITED:
            return state
        time.sleep(0.005)
    return None


def drain(descriptor: int) -> None:
    while os.read(descriptor, 65536):
        pass


def test_two_streams_do_not_break_each_others_lines(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "for at in range(30):\n"
        "    for end, words in ((1, b'out'), (2, b'err'), (1, b' put\\n'), (2, b' or\\n')):\n"
        "        os.write(end, words)\n"
        "os.write(1, b'no end')\n"
        "os.write(2, b'none here')\n"
    )
    with supervised(tmp_path, python(code)) as one:
        one.go(1)
        tail = one.until_exited(1).trainer.tail
        assert set(tail) == {"out put", "err or", "no end", "none here"}
        assert set(tail[-2:]) == {"no end", "none here"}
