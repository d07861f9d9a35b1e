"""Times in status that another operator's clock has written, brought back to this one's.

Every status write bears its own moment. One that lies ahead of now was written by a clock ahead of
ours (another node leads, a clock was set back), and so was everything else in it: a back-off would
last for longer than it may, a limit would never come. Times of pods and nodes are not ours to move.
A clock that was behind cannot be told from an operator that was away: waits end early then, which
costs a try and nobody's budget. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from rtj_api.status import ElasticStatus, Status, StatusModel, Straggling

from rtj_operator.core.gang import Gang
from rtj_operator.core.plan import Plan
from rtj_operator.core.recording import record

M = TypeVar("M", bound=StatusModel | None)

TOLERANCE = 2.0  # seconds: clocks that are kept in time step back by less
_OF_ATTEMPT = (
    "fault_at",
    "detected_at",
    "recorded_at",
    "not_before",
    "admitted_at",
    "scheduled_at",
    "prepared_at",
    "restored_at",
)
_OF_STATUS = ("held_since", "last_start_time")


def clock(gang: Gang) -> Plan | None:
    """The last write bears a time that is still to come, by another operator's clock: the times
    that waits count from are brought back by as much."""
    status = gang.job.status
    ahead = (status.shown_at or 0.0) - gang.now
    if ahead <= TOLERANCE or status.is_terminal:
        return None
    why = f"status was written by a clock {ahead:.0f} s ahead of this one: its times are corrected"
    return record(gang, brought_back(gang.status, ahead, now=gang.now), rule="clock", why=why)


def brought_back(status: Status, seconds: float, *, now: float) -> Status:
    resumed = status.resumed_at
    parts = {
        "current": _moved(status.current, _OF_ATTEMPT, seconds),
        "resume": _moved(status.resume, ("at",), seconds),
        "hold": _moved(status.hold, ("since", "checked_at", "retry_at"), seconds),
        "pending_template": _moved(status.pending_template, ("since",), seconds),
        "pending_suspend": _moved(status.pending_suspend, ("since",), seconds),
        "stop": _moved(status.stop, ("since", "until"), seconds),
        "left_nodes": [_moved(one, ("at",), seconds) for one in status.left_nodes],
        "elastic": _elastic(status.elastic, seconds),
        "straggling": _straggling(status.straggling, seconds),
        # A deadline that comes early ends the job for good: what may be right is left.
        "resumed_at": resumed - seconds if resumed is not None and resumed > now else resumed,
    }
    return _moved(status.model_copy(update=parts), _OF_STATUS, seconds)


def _elastic(part: ElasticStatus | None, seconds: float) -> ElasticStatus | None:
    found = _moved(part, ("since", "not_before"), seconds)
    if found is None:
        return None
    return found.model_copy(update={"growing": _moved(found.growing, ("since",), seconds)})


def _straggling(part: Straggling | None, seconds: float) -> Straggling | None:
    if part is None:
        return None
    update = {
        "slow": _moved(part.slow, ("since",), seconds),
        "moved": _moved(part.moved, ("at",), seconds),
    }
    return part.model_copy(update=update)


def _moved(part: M, names: Iterable[str], seconds: float) -> M:
    """`part` (or None) with these times earlier; absent ones stay absent."""
    if part is None:
        return part
    times = {name: getattr(part, name) for name in names}
    return part.model_copy(
        update={name: round(at - seconds, 6) for name, at in times.items() if at is not None}
    )
