"""A hang where the operator hears nobody: rank 0 judges what the ranks' records say.

By the operator's own rule (`rules.hang`). Must never take a rank whose record is old, or missing,
for one that hangs, nor one clock for another.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rtj_api.rules.flight import Missing, missing
from rtj_api.rules.hang import Hang, Pace, Stall, hanging

from rtj_sidecar.runs.records import ReadyRecord

FRESH_SECONDS = 60.0  # a rank that stalls writes its record anew every twenty
SHOWN_LINES = 4


@dataclass(frozen=True, slots=True)
class _Heard:
    """A record as it was first read: its own time, and ours, wall and monotonic."""

    written_at: float
    at: float
    since: float


@dataclass
class SilentGang:
    """Fed with what the ranks have said, every few seconds while rank 0 itself gives no sign."""

    _heard: dict[int, _Heard] = field(default_factory=dict)

    def hang(
        self,
        said: Mapping[int, ReadyRecord],
        *,
        world_size: int,
        now: float,
        timeout: float | None = None,
        monotonic: float | None = None,
    ) -> str | None:
        """What to say of a hang that has lasted long enough; None where the gang can go on, or
        nobody can say. `now`: Unix time."""
        tick = time.monotonic() if monotonic is None else monotonic
        stalls: dict[int, Stall | None] = {}
        for rank in range(world_size):
            record = said.get(rank)
            if record is None:
                return None
            known = self._heard.get(rank)
            if known is None or known.written_at != record.written_at:
                known = self._heard[rank] = _Heard(record.written_at, now, tick)
            if tick - known.since > FRESH_SECONDS:
                return None
            stalls[rank] = _stall(record, ahead=known.at - record.written_at)
        found = hanging(stalls, timeout=timeout)
        if found is None or now < found.since + found.limit:
            return None
        told = missing({r: [view.flight for view in said[r].flights] for r in stalls})
        return _text(found, told, said)


def _stall(record: ReadyRecord, *, ahead: float) -> Stall | None:
    """By rank 0's clock: that of another pod may be ahead or behind."""
    told = record.stall
    if told is None:
        return None
    return Stall(
        standing=told.standing,
        since=told.since + ahead,
        pace=Pace(usual=told.pace.usual, longest=told.pace.longest, survived=told.pace.survived),
        fell_at=told.fell_at + ahead if told.fell_at is not None else None,
        stacks=tuple(told.stacks),
    )


def _text(hang: Hang, told: Missing | None, said: Mapping[int, ReadyRecord]) -> str:
    if told is not None and told.rank is not None:
        hang = replace(hang, rank=told.rank, why=told.why)
    stall = said[hang.rank].stall if hang.rank in said else None
    lines = stall.stacks[:SHOWN_LINES] if stall is not None else []
    doing = "; ".join(line.strip() for line in lines)
    return (
        f"rank {hang.rank} hung: no step, no line and no moving save of any rank for "
        f"{hang.limit:.0f} s; {hang.why}" + (f". What it was doing: {doing}" if doing else "")
    )
