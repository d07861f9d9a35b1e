"""Whether a fresh save is worth a copy on a disk whose rank did not write it. Pure.

`checkpoint.local.mirror`: `never`, `always` (as far as the disk has room), or `auto`, which weighs
what all the ranks that lack it would move against the time until the next save.
"""

from __future__ import annotations

from dataclasses import dataclass

SHARE = 0.5  # of the time between two saves that a mirror may take
FIRST_SECONDS = 60.0  # where nothing is known of that time yet
LEAST_SECONDS = 2.0  # so short a copy is in nobody's way
LINE_BYTES_PER_SECOND = 100e6  # of a pod, before one was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorFacts:
    """`size`: bytes that this rank lacks. `takers`: ranks that lack some of it, `sources`: those
    that have some. `rate`: bytes a second that this rank's mirrors came at. `interval`: seconds
    between two saves. `free`, `reserve`: of the disk, and what the trainer's next save may need."""

    policy: str
    size: int
    takers: int
    sources: int
    free: int
    reserve: int
    is_uploading: bool = False
    rate: float | None = None
    interval: float | None = None


@dataclass(frozen=True, slots=True)
class Weighed:
    is_worth: bool
    why: str


def weigh(facts: MirrorFacts) -> Weighed:
    """What to do with one save, and why, in words for the report."""
    if facts.policy == "never":
        return Weighed(False, "checkpoint.local.mirror is never")
    if facts.size + facts.reserve > facts.free:
        return Weighed(
            False,
            f"{facts.size:,} bytes and {facts.reserve:,} for the next save are more than the "
            f"{facts.free:,} free here",
        )
    if facts.policy == "always":
        return Weighed(True, "checkpoint.local.mirror is always")
    if facts.is_uploading:
        return Weighed(False, "its own upload goes first")
    seconds = facts.size / (facts.rate or _expected(facts))
    limit = FIRST_SECONDS if facts.interval is None else max(LEAST_SECONDS, SHARE * facts.interval)
    measured = "" if facts.rate else ", expected"
    text = f"about {seconds:.0f} s{measured} for {facts.takers} ranks to copy it"
    if seconds > limit:
        return Weighed(False, f"{text}, more than the {limit:.0f} s that saves leave for it")
    return Weighed(True, text)


def _expected(facts: MirrorFacts) -> float:
    """Bytes a second for each taker where all of them take from the same sources' lines."""
    return LINE_BYTES_PER_SECOND * min(1.0, facts.sources / max(1, facts.takers))
