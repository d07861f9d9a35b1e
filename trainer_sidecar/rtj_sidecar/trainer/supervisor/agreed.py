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
        self.term_at = None  # a SIGTERM came
        self.term_due = None  # … and goes to the trainer then
        self.kill_at = None  # … and that is its end

    def holds(self):
        """Whether a SIGTERM that came just now is kept for later. One that comes again puts
        nothing off."""
        if not self.hold or (self.term_at is not None and self.term_due is None):
            return False
        if self.term_at is None:
            self.term_at = time.monotonic()
            self.term_due = self.term_at + self.hold
            self.kill_at = self.term_at + self.grace
            self._reckon()
        return True

    def is_overtaken(self):
        """The trainer is sent a SIGTERM for another reason: the one that is held back is that."""
        if self.term_at is None:
            self.term_at = time.monotonic()
        self.term_due = None

    def hears(self, word, attempt):
        """Whether this is the first word of a step for the trainer of that attempt. One that comes
        after it may only shorten its time."""
        if word is None or int(word.get("attempt", 0)) != attempt:
            return False
        until = word.get("until")
        if until is not None:
            until = time.monotonic() + max(0.0, float(until) - time.time())
        if self.word is not None:
            is_same = self.word.get("step") == word.get("step")
            if is_same and until is not None and self.until is not None and until < self.until:
                self.until = until
                self._reckon()
            return False
        self.word, self.until = word, until
        if word.get("signal"):
            self.signals.append(int(word["signal"]))
        self._reckon()
        return True

    def _reckon(self):
        if self.term_due is not None and self.until is not None:
            self.term_due = self.until
            # Never less than the template's grace: the word's time may have been over long before.
            after = self.until + min(self.grace, AFTER_SECONDS)
            self.kill_at = max(after, self.term_at + self.grace)

    def due(self):
        """The signals that the trainer is to be sent now, each once."""
        if self.term_due is not None and time.monotonic() >= self.term_due:
            self.term_due = None
            self.signals.append(signal.SIGTERM)
        found, self.signals = self.signals, []
        return found
