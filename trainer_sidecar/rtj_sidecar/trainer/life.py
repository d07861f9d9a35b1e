"""Signs of life of one rank's trainer, and its pace: what a stall is measured by. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rtj_api.rules.hang import (
    KEPT,
    LEAST,
    LONGEST_TIMES,
    SURVIVED_TIMES,
    Pace,
    Standing,
    p99,
)

UNSEEN_SECONDS = 10.0  # between two looks: the pod was paused, or its clock was set
TELL_STILL_SECONDS, TELL_WORKING_SECONDS = 5.0, 60.0
STOPPED_LINES_SECONDS = 5.0  # in which lines of before the signal may still be read
TELL_TIMES = 1.2  # of what ended by itself before: a trainer that often rests is not told of each

# What a watchdog prints while it waits is no sign of its trainer's life, nor is a dump of stacks
# for which we have asked.
_NO_SIGN = re.compile(
    r"\[(?:PG|ProcessGroup)[^\]]*\]|ProcessGroup(?:NCCL|Gloo)|HeartbeatMonitor|watchdog|"
    r"still waiting|waiting for (?:all )?(?:ranks|workers|peers)|NCCL (?:WARN|INFO)|"
    r"^(?:Current thread|Thread) 0x|^ +File \".*\", line \d+ in |^Stack \(most recent call first\)",
    re.I,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Of the running attempt; the pace goes from attempt to attempt. Times are Unix seconds."""

    gaps: tuple[float, ...] = ()  # between signs of a step, saves apart
    longest: float = 0.0
    survived: float = 0.0
    step: int | None = None
    step_at: float | None = None
    sign_at: float | None = None
    looked_at: float | None = None
    saved: bool = False  # since that step
    fell_at: float | None = None  # the stillness that goes on now began
    is_stopped: bool = False  # by a signal: nothing is learnt from that

    @property
    def pace(self) -> Pace:
        known = len(self.gaps) >= LEAST
        return Pace(
            usual=p99(self.gaps) if known else None, longest=self.longest, survived=self.survived
        )

    def begun(self, *, now: float) -> Life:
        """A new attempt: its first step comes when it comes.

        A stillness or a silence that a restart ended may have ended by itself, as a last upload
        or an evaluation does: the next one is given twice the time, so that no restart after
        another cuts the same wait short.
        """
        survived, longest = self.survived, self.longest
        if self.looked_at is not None and self.sign_at is not None and not self.is_stopped:
            silent = self.looked_at - self.sign_at
            longest = max(longest, SURVIVED_TIMES / LONGEST_TIMES * silent)
        if self.fell_at is not None and not self.is_stopped:
            survived = max(survived, now - self.fell_at)
        return replace(
            self,
            longest=longest,
            survived=survived,
            step=None,
            step_at=None,
            sign_at=now,
            looked_at=None,
            saved=False,
            fell_at=None,
            is_stopped=False,
        )

    def with_look(self, *, now: float) -> Life:
        """Somebody looks. In time that nobody watched a sign may have been missed, and from it
        nothing is learnt."""
        known = replace(self, looked_at=now)
        if self.looked_at is None or 0 <= now - self.looked_at <= UNSEEN_SECONDS:
            return known
        return replace(known, step_at=None, sign_at=now, fell_at=None, is_stopped=False)

    def goes_on_without(self, stopped_at: float) -> bool:
        """Whether the trainer made steps long after some process of it was stopped by a signal: a
        helper that its own program has paused. A save of before may be found late."""
        return self.step_at is not None and self.step_at > stopped_at + STOPPED_LINES_SECONDS

    def with_step(self, step: int | None, *, now: float) -> Life:
        if step is None or step == self.step:
            return self
        gaps, longest = self.gaps, self.longest
        if self.step_at is not None:
            gap = now - self.step_at
            longest = max(longest, gap)
            gaps = gaps if self.saved else (*gaps, gap)[-KEPT:]
        return replace(
            self,
            gaps=gaps,
            longest=longest,
            step=step,
            step_at=now,
            sign_at=now,
            saved=False,
        )

    def with_lines(self, lines: Sequence[str], *, now: float) -> Life:
        if all(_NO_SIGN.search(line) for line in lines):
            return self
        return replace(self, sign_at=now)

    def with_sign(self, *, at: float) -> Life:
        return (
            self if self.sign_at is not None and at <= self.sign_at else replace(self, sign_at=at)
        )

    def with_saving(self, *, now: float, moves: bool) -> Life:
        """A save is being written; it is a sign while it moves."""
        return replace(self, saved=True, sign_at=now if moves else self.sign_at)

    def with_stillness(self, since: float | None, *, now: float, is_stopped: bool = False) -> Life:
        """`since`: its processes do nothing since then; None where they do."""
        if since is not None:
            return replace(self, fell_at=since, is_stopped=is_stopped)
        if self.fell_at is None:
            return self
        survived = self.survived if self.is_stopped else max(self.survived, now - self.fell_at)
        return replace(self, fell_at=None, is_stopped=False, survived=survived)


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Long enough to be told: the operator waits for the rest of the limit."""

    standing: Standing
    since: float


def silence(
    life: Life, *, standing: Standing, now: float, timeout: float | None = None
) -> Silence | None:
    """None where a sign came lately. `timeout`: a person's own limit, of which half is waited."""
    since = life.sign_at if life.sign_at is not None else now
    if standing is not Standing.WORKING and life.fell_at is not None:
        since = max(since, life.fell_at)
    if standing is Standing.STOPPED:
        wait = 0.0
    elif standing is Standing.STILL:
        wait = max(TELL_STILL_SECONDS, TELL_TIMES * life.survived)
    else:
        wait = max(TELL_WORKING_SECONDS, TELL_TIMES * life.longest)
    if timeout is not None:
        wait = min(wait, timeout / 2)
    return Silence(standing=standing, since=since) if now >= since + wait else None
