"""Who of an elastic gang finds no place, for how long, and which smaller gang could go on.

Also what status says while it is smaller than wanted, or stays as it is for a reason. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtj_api.reasons import Reason
from rtj_api.rules.elastic import size_for, why_fixed
from rtj_api.status import ElasticStatus, format_time

from rtj_operator.core import pending, rejections, steering
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.undurable import may_have_undurable

_REMEDY = (
    "Save in a layout that can be split anew (docs/elastic.md), free or add capacity, or remove "
    "spec.elastic"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """`room`: pods that have a place. `size`: of the gang that can go on now; None: none can,
    `why_not` says why. `why`: what keeps the lowest waiting rank from a place."""

    waiting: tuple[Member, ...]
    since: float
    limit: float
    room: int
    why: str
    size: int | None = None
    why_not: str | None = None


def _has_place(member: Member) -> bool:
    pod = member.pod
    placed = pod is not None and pod.node is not None
    return placed and pod is not None and not pod.is_terminal and pod.deleting_since is None


def _waits_since(gang: Gang, member: Member) -> float | None:
    """Since when this rank has found no place; None where nobody has said so."""
    pod, current = member.pod, gang.status.current
    if pod is None:
        refused = gang.observed.rejections.get(member.name)
        if refused is None or rejections.reason_of(refused.message) != Reason.QUOTA_EXCEEDED:
            return None
        if current is None:
            return refused.at
        return max(current.recorded_at, current.not_before or 0.0)
    if pod.deleting_since is not None or pod.is_terminal or pod.is_gated:
        return None
    if pod.node is not None or pod.scheduled is not False:
        return None
    since = max(pod.created_at, pod.unschedulable_since or pod.created_at)
    before = current.fault_at if current is not None else None
    # Made anew only to keep off no node: it has waited since its pod before was made.
    is_same = current is not None and current.cause == Reason.UNSCHEDULABLE
    return min(since, before) if is_same and before is not None else since


def _frees_a_place(gang: Gang) -> bool:
    """Some pod that is on its way out still has one: what waits may come to it yet."""
    return any(p.node is not None and not p.is_terminal for p in (*gang.surplus, *gang.spares))


def shortage_of(gang: Gang) -> Shortage | None:
    """Of an attempt that is not started; None while everybody may still find a place in time."""
    wish, current = gang.spec.elastic, gang.status.current
    if wish is None or current is None or gang.status.is_started or gang.status.hold is not None:
        return None
    if current.not_before is not None and not gang.alarm.has_passed(current.not_before):
        return None
    waiting = tuple(m for m in gang.members if not _has_place(m))
    room = len(gang.members) - len(waiting)
    moments = [_waits_since(gang, m) for m in waiting]
    known = [moment for moment in moments if moment is not None]
    if not room or not known or len(known) < len(waiting) or _frees_a_place(gang):
        return None
    shown = gang.status.elastic
    is_new = shown is not None and shown.unproved is not None
    limit = 0.0 if is_new else wish.scale_down_after  # it was well with fewer a moment ago
    if not gang.alarm.has_passed(max(known) + limit):
        return None
    short = Shortage(
        waiting=waiting,
        since=max(known),
        limit=limit,
        room=room,
        why=next((t for m in waiting if (t := pending.words(gang, m))), "no node fits"),
    )
    size = size_for([n for n in wish.sizes if n < len(gang.members)], room=room)
    why_not = _why_not(gang, short, size)
    return Shortage(
        **{name: getattr(short, name) for name in ("waiting", "since", "limit", "room", "why")},
        size=None if why_not is not None else size,
        why_not=why_not,
    )


def _why_not(gang: Gang, short: Shortage, size: int | None) -> str | None:
    wish, fixed = gang.spec.elastic, gang.status.checkpoint.fixed_size
    if size is None and wish is not None:
        allowed = ", ".join(map(str, wish.sizes))
        return (
            f"only {short.room} of {len(gang.members)} pods have a place, and the allowed sizes "
            f"are {allowed}. Free or add capacity, or lower elastic.minReplicas"
        )
    if fixed is not None and gang.status.ever_durable:
        return f"the newest save keeps the gang at its size: {fixed}. {_REMEDY}"
    dropped = [m.rank for m in gang.members if _has_place(m) and m.rank >= (size or 0)]
    if not _has_place(gang.rank_zero):
        return None  # nobody can commit it before; an ending pod still ships what it has
    if _may_have_older(gang):
        return (
            "rank 0's sidecar has not listed the run's saves yet, which may be of an older job and "
            "fit its number of ranks only"
        )
    if (unsuited := _unsuited(gang)) is not None:
        return unsuited
    if any(may_have_undurable(gang, gang.members[rank]) for rank in dropped):
        return f"ranks {dropped} have a save that is not in the store yet; it is waited for"
    return None


def _may_have_older(gang: Gang) -> bool:
    """Before its first start a job does not know what its run has, until the store was listed."""
    report = gang.rank_zero.report
    is_new = gang.status.starts == 0 and gang.spec.has_store and not gang.through_store
    return is_new and (report is None or not report.listed)


def _unsuited(gang: Gang) -> str | None:
    """Why what a person asked to begin from may not be loaded by fewer ranks."""
    wish, report = steering.wanted(gang), gang.rank_zero.report
    if wish is None or wish.value is None or gang.through_store:
        return None
    found = report.found if report is not None else None
    if found is None or found.asked != wish.asked or found.save is None:
        return f"{wish.value}, which it is to begin from, was not found yet"
    fixed = why_fixed(layout=found.save.layout, writers=found.save.needs)
    return None if fixed is None else f"it is to begin from {wish.value}: {fixed}. {_REMEDY}"


def troubles(gang: Gang) -> list[tuple[str, str]]:
    """For the condition Degraded."""
    found: list[tuple[str, str]] = []
    short, shown = shortage_of(gang), gang.status.elastic
    if short is not None and short.why_not is not None:
        ranks = [m.rank for m in short.waiting][:8]
        text = f"ranks {ranks} find no place, and no smaller gang can go on: {short.why_not}"
        found.append((Reason.CANNOT_SCALE_DOWN, text))
    if gang.attempt and gang.status.hold is None and len(gang.members) < gang.spec.replicas:
        text = f"{len(gang.members)} of {gang.spec.replicas} pods train. "
        found.append((Reason.SCALED_DOWN, text + _outlook(gang, shown)))
    return found


def _outlook(gang: Gang, shown: ElasticStatus | None) -> str:
    wish = gang.spec.elastic
    if wish is None or shown is None:
        return "spec.elastic was removed: the next restart is with all of them"
    why = f"{shown.message}. " if shown.message else ""
    fixed = gang.status.checkpoint.fixed_size
    if fixed is not None:
        return f"{why}It does not grow: {fixed}. {_REMEDY}"
    if not wish.grows:
        return f"{why}elastic.growWhen is Never: suspend and resume the job to have all of them"
    if shown.growing is not None:
        return f"There is room for {shown.growing.size} again: the next save is awaited"
    if shown.not_before is not None and not gang.alarm.has_passed(shown.not_before):
        when = format_time(round(shown.not_before))
        return f"{why}The last growth failed: it is tried again after {when}"
    return f"{why}It grows when there is room: status.spares says what is waited for"
