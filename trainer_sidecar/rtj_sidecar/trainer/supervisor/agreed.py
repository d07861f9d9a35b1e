"""A stop step that all ranks were told of, and the SIGTERM of an ending pod that waits for it.

A trainer that ends at the signal while the others go on leaves them stuck and saves nothing; so the
signal is held back: for a moment, in which the word of a step may come, and then until that word's
time is over. Must never hold it back for longer, nor at all where nobody said that the trainer
obeys such a word.
"""

from __future__ import annotations

import signal
import time

AFTER_SECONDS = 5.0  # for a trainer that gets its SIGTERM at the end of the word's time


class Agreed:
    """Times are monotonic. `hold`: seconds, 0 where the trainer knows no stop step."""

    def __init__(self, hold, grace):
        self.hold = min(hold, grace / 3)
        self.grace = grace
        self.begin()

    def begin(self):
        """Another trainer."""
        self.word = None
        self.until = None
        self.signals = []
        self.term_due = None  # a SIGTERM came and goes to the trainer then
        self.kill_at = None  # … and that is its end

    def holds(self):
        """Whether a SIGTERM that came just now is kept for later."""
        if not self.hold:
            return False
        now = time.monotonic()
        self.term_due = now + self.hold
        self.kill_at = now + self.grace
        self._reckon()
        return True

    def hears(self, word, attempt):
        """Whether this is the first word of a step for the trainer of that attempt."""
        if word is None or self.word is not None or int(word.get("attempt", 0)) != attempt:
            return False
        self.word = word
        until = word.get("until")
        if until is not None:
            self.until = time.monotonic() + max(0.0, float(until) - time.time())
        if word.get("signal"):
            self.signals.append(int(word["signal"]))
        self._reckon()
        return True

    def _reckon(self):
        if self.term_due is not None and self.until is not None:
            self.term_due = self.until
            self.kill_at = self.until + min(self.grace, AFTER_SECONDS)

    def due(self):
        """The signals that the trainer is to be sent now, each once."""
        if self.term_due is not None and time.monotonic() >= self.term_due:
            self.term_due = None
            self.signals.append(signal.SIGTERM)
        found, self.signals = self.signals, []
        return found
