"""Python's garbage collector, less often while a long run's records are read and ordered.

It looks through new objects after every 700 of them and through all that live whenever these have
grown by a quarter: among 10,000 saves more than half of a look's time. Records are no garbage. Must
never turn it off: a look may wait for a store for minutes, and what other threads leave in cycles
meanwhile may not grow without a bound.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

SELDOM = 50_000
"""New objects between two collections; a few MB at most."""


@contextlib.contextmanager
def many_records() -> Iterator[None]:
    """For as long as the block lasts. Several threads may be in it: the first to leave ends it for
    all, and nothing is left changed."""
    usual = gc.get_threshold()
    if not 0 < usual[0] < SELDOM:
        yield
        return
    gc.set_threshold(SELDOM, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
