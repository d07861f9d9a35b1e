"""The trainer's output: passed through byte by byte, its tail kept. Never changed."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import threading
import time

from .files import read_json

TAIL_BYTES = 64 * 1024
VIEW_BYTES = 16 * 1024
VIEW_LINES = 100
LOG_BYTES = 4 * 1024 * 1024


class Log:
    """A bounded tail of the trainer's output: in memory, and in trainer.log and trainer.log.1."""

    def __init__(self, path):
        self.path = path
        self.lock = threading.Lock()
        self.tail = bytearray()
        self.parts = {}  # by sink, the line that has not ended yet
        self.descriptor = None
        self.size = 0

    def begin(self):
        """A new trainer has its own tail; the file goes on."""
        with self.lock:
            self.tail = bytearray()
            self.parts = {}

    def add(self, chunk, sink=None):
        """`sink`: of two streams neither breaks the other's lines."""
        with self.lock:
            known = self.parts.get(sink, b"") + chunk
            end = max(known.rfind(b"\n"), known.rfind(b"\r")) + 1
            self.tail += known[:end]
            self.parts[sink] = known[end:][-TAIL_BYTES:]
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
            parts = [part for part in self.parts.values() if part]
            return last_lines(bytes(self.tail[-TAIL_BYTES:]) + b"\n".join(parts))


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


def drain(pumps, seconds):
    """Wait for what is still in the pipes: usually under a millisecond, longer where this machine
    is busy or nobody takes our own output."""
    deadline = time.monotonic() + seconds
    for thread in pumps:
        thread.join(max(0.0, deadline - time.monotonic()))


def pump(source, sink, log):
    """Pass bytes from the trainer's pipe on as they come, until its last writer is gone."""
    stream = sink
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
            log.add(chunk, stream)
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


def error_file(run, attempt):
    return os.path.join(run, "error-{}.json".format(attempt))


def forget_errors(run):
    """Those of older attempts."""
    for name in os.listdir(run):
        if name.startswith("error-"):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(run, name))
