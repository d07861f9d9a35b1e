"""What a supervisor tells of itself, as its sidecar reads it. Must never change anything."""

from __future__ import annotations


def state_of(one, now):
    """The content of supervisor.json."""
    is_running = one.running()
    return {
        **one.about,
        "sequence": one.sequence,
        "termReceivedAt": one.term_at,
        "stoppedAttempt": one.stopped,
        "lingering": one.lingering,
        "trainer": {name: value for name, value in one.view.items() if value is not None},
        "trial": one.trials.view,
        "openForWriting": one.writers.now() if is_running else [],
        "still": one.writers.stillness_now() if is_running else None,
        "stacks": one.stacks.view,
        "flights": one.flights.view,
        "writtenAt": now,
    }
