"""A stop step that all ranks were told of, and the SIGTERM of an ending pod that waits for it.

A trainer that ends at the signal while the others go on leaves them stuck and saves nothing; so the
signal is held back: for a moment, in which the word of a step may come, and then until that word's
time is over. Must never hold it back for longer, nor at all where nobody said that the trainer
obeys such a word.
"""

from __future__ import annotations

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

    def take(self, word, attempt):
        """The signal that the trainer is to be sent now, 0 for none; None where it is no news."""
        if int(word.get("attempt", 0)) != attempt or self.word is not None:
            return None
        self.word = word
        until = word.get("until")
        if until is not None:
            self.until = time.monotonic() + max(0.0, float(until) - time.time())
        self._reckon()
        return int(word.get("signal") or 0)

    def _reckon(self):
        if self.term_due is not None and self.until is not None:
            self.term_due = self.until
            self.kill_at = self.until + min(self.grace, AFTER_SECONDS)

    def is_due(self):
        """Once: the SIGTERM goes to the trainer now."""
        if self.term_due is None or time.monotonic() < self.term_due:
            return False
        self.term_due = None
        return True
