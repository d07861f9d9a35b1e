"""What a save costs the trainer, as it can be told from outside: how late the next step comes.

A save begins and ends by what its files tell. From the last sign of a step before it to the first
one after it, the usual time of the steps in between is work; the rest is the stall. That holds for
a trainer that stands still while it saves and for one that saves beside its steps. Must never
guess: where the steps are not told or begin anew, nothing is measured. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

KEPT = 2048  # signs: at two a second, a quarter of an hour
SAVES_KEPT = 64
WAITING = 8
LEAST = 3  # gaps without a save from which the usual step is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A save as its files tell of it, Unix seconds; `step` is the one that it holds."""

    begun: float
    ended: float
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Of one attempt. Grows by `with_…`; `stall` is the sum over `stalls` saves, in seconds."""

    signs: tuple[tuple[float, int], ...] = ()  # (when, step), oldest first
    saves: tuple[Saved, ...] = ()
    waiting: tuple[Saved, ...] = ()  # no step has followed yet
    measured_until: float = float("-inf")
    stall: float = 0.0
    stalls: int = 0

    def with_sign(self, step: int, *, at: float) -> Pace:
        """The newest step is `step`, told at `at`. One that was told before is no sign."""
        if self.signs and (step == self.signs[-1][1] or at <= self.signs[-1][0]):
            return self
        return replace(self, signs=(*self.signs, (at, step))[-KEPT:])._measured()

    def with_save(self, save: Saved) -> Pace:
        """That save is finished; it may be known of only after later steps."""
        known = replace(
            self,
            saves=(*self.saves, save)[-SAVES_KEPT:],
            waiting=(*self.waiting, save)[-WAITING:],
        )
        return known._measured()

    def _measured(self) -> Pace:
        newest = self.signs[-1][0] if self.signs else float("-inf")
        followed = [save for save in self.waiting if save.ended <= newest]
        usual = self.usual_step() if followed else None
        if usual is None:
            return self
        pace = self
        for save in followed:
            pace = pace._with_stall(save, usual=usual)
        return replace(pace, waiting=tuple(s for s in self.waiting if s not in followed))

    def usual_step(self) -> float | None:
        """Seconds of a step in gaps without a save; None while too few are known."""
        gaps = [
            (after[0] - before[0]) / (after[1] - before[1])
            for before, after in pairwise(self.signs)
            if after[1] > before[1]
            and not any(s.begun < after[0] and s.ended > before[0] for s in self.saves)
        ]
        return median(gaps) if len(gaps) >= LEAST else None

    def _with_stall(self, save: Saved, *, usual: float) -> Pace:
        times = [at for at, _ in self.signs]
        last = bisect_left(times, save.ended)
        first = min(bisect_right(times, save.begun) - 1, self._told_before(save))
        first = max(first, bisect_left(times, self.measured_until))
        if first >= last:
            counted = bool(self.stalls) and times[last] <= self.measured_until
            return replace(self, stalls=self.stalls + 1) if counted else self
        if first < 0 or self.signs[last][1] <= self.signs[first][1]:
            return self
        steps = self.signs[last][1] - self.signs[first][1]
        late = times[last] - times[first] - usual * steps
        return replace(
            self,
            stall=self.stall + late,
            stalls=self.stalls + 1,
            measured_until=times[last],
        )

    def _told_before(self, save: Saved) -> int:
        """The last sign before that of the save's own step: a copy of the state may be taken
        there, long before anything is written. Only among signs after the save before."""
        after = max((s.ended for s in self.saves if s.ended < save.begun), default=float("-inf"))
        count = len(self.signs)
        if save.step is None:
            return count
        for index in range(1, count):
            at, step = self.signs[index]
            earlier_at, earlier = self.signs[index - 1]
            if earlier < save.step <= step and earlier_at >= after and at <= save.begun:
                return index - 1
        return count


def usual_spacing(ends: Sequence[tuple[int | None, float]]) -> float | None:
    """Seconds between saves, given (step, finished at) of each; None below two. Several files or
    directories of one step are one save; the median, since a last save comes when it comes."""
    found: list[tuple[int | None, float]] = []
    for step, at in sorted(ends, key=lambda end: end[1]):
        if not found or step is None or step != found[-1][0]:
            found.append((step, at))
    gaps = [after[1] - before[1] for before, after in pairwise(found)]
    return round(median(gaps), 3) if gaps else None
