"""What the trainer's processes are about: which files of the checkpoint directory they have open
for writing, and whether they do anything at all."""

from __future__ import annotations

import os
import threading
import time

from .processes import container_members, descendants, open_for_writing, processes
from .stillness import Stillness

WRITERS_SECONDS = 1.0


class Writers(threading.Thread):
    """Looks about once a second. `ours` gives processes that the supervisor has started for itself:
    what they do is no work of the trainer's."""

    def __init__(self, root, ours=frozenset):
        super().__init__(daemon=True)
        self.root = root
        self.ours = ours
        self.lock = threading.Lock()
        self.wake = threading.Event()
        self.generation = 0
        self.active = False
        self.paths = []
        self.stillness = Stillness()
        self.still = None

    def switch(self, active):
        with self.lock:
            self.generation += 1
            self.active = active
            self.paths, self.still = [], None
        self.wake.set()

    def run(self):
        wait = WRITERS_SECONDS
        while True:
            with self.lock:
                active, generation = self.active, self.generation
            spent = 0.0
            if not active:
                self.stillness.reset()
            if active:
                begun = time.monotonic()
                me = os.getpid()
                seen = processes()
                pids = descendants(me, seen)
                self.stillness.look(seen, pids - self.ours(), apart=wait)
                pids |= container_members(seen)
                paths = open_for_writing(os.path.realpath(self.root), pids)
                spent = time.monotonic() - begun
                with self.lock:
                    if generation == self.generation:
                        self.paths, self.still = paths, self.stillness.view
            # Never more than two percent of a core.
            wait = max(WRITERS_SECONDS, 50 * spent)
            self.wake.wait(wait if active else None)
            self.wake.clear()

    def now(self):
        with self.lock:
            return list(self.paths)

    def stillness_now(self):
        with self.lock:
            return self.still
