"""Which files of the checkpoint directory the trainer has open for writing."""

from __future__ import annotations

import os
import threading
import time

from .processes import container_members, descendants, open_for_writing, processes

WRITERS_SECONDS = 1.0


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
