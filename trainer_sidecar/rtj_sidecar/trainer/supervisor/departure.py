"""When this container may end, and with which last words.

Released by the sidecar, or abandoned where no sidecar was seen for long. Must never leave while a
trainer runs (the loop asks only then), nor look like success without its message.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from .files import identity, read_json

BEAT_TIMEOUT_SECONDS = 300.0


class Departure:
    """`run`: the directory of the small files."""

    def __init__(self, run):
        self.place = os.path.join(run, "release.json")
        self.beat_place = os.path.join(run, "sidecar.beat")
        self.beat = None
        self.quiet_since = time.monotonic()

    def begin_wait(self):
        """A trainer ended: a sidecar has its time from now on."""
        self.quiet_since = time.monotonic()

    def word(self):
        """The termination message and the exit code with which to leave now, or None."""
        release = read_json(self.place) if identity(self.place) else None
        if release is not None:
            return str(release.get("message") or "released"), int(release.get("code") or 0)
        beat = identity(self.beat_place)
        if beat != self.beat:
            self.beat = beat
            self.quiet_since = time.monotonic()
        if time.monotonic() - self.quiet_since > BEAT_TIMEOUT_SECONDS:
            return "abandoned", 0
        return None

    def leave(self, message, code):
        """Write the last words; the exit code."""
        if code:
            # It speaks of this end only: the container's next run must wait for its own.
            with contextlib.suppress(OSError):
                os.unlink(self.place)
        path = os.environ.get("RTJ_TERMINATION_LOG", "/dev/termination-log")
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(message)
        except OSError as error:
            sys.stderr.write("supervise: cannot write {}: {}\n".format(path, error))
            return code or 1  # Without its message an exit 0 would look like success.
        return code
