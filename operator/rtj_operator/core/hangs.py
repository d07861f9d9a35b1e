"""A gang that hangs: all its trainers run, and none gives a sign of life for longer than ever.

The sidecars tell how their trainers stand; `rules.hang` says what that means. A rank that is not
heard is unknown, and unknown is not hung. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from rtj_api.reasons import Reason
from rtj_api.rules.hang import Hang, Pace, Stall, hanging
from rtj_api.wire import Report, TrainerState

from rtj_operator.core import flights
from rtj_operator.core.faults import BY_TRAINER, Fault, fault_at
from rtj_operator.core.gang import Gang, Member

REPORT = "Report"  # a value of recovery.hang.onHang
_SHOWN_LINES = 4
_SHOWN_RANKS = 16


def hung(gang: Gang) -> Fault | None:
    """The culprit of a hang that is to be ended by a restart."""
    found = _found(gang) if gang.spec.on_hang != REPORT else None
    if found is None:
        return None
    hang, stalls = found
    told = flights.missing_rank(gang)
    if told is not None and not told.is_mismatch and told.rank is not None:
        hang = replace(hang, rank=told.rank, why=told.why)
    stacks = list(stalls[hang.rank].stacks) if hang.rank in stalls else []
    doing = "; ".join(line.strip() for line in stacks[:_SHOWN_LINES])
    fault = fault_at(
        gang.members[hang.rank],
        reason=Reason.TRAINER_HUNG,
        at=min(hang.since, gang.now),
        order=BY_TRAINER,
        is_pod_lost=False,
        message=_text(hang) + (f". What it was doing: {doing}" if doing else ""),
        evidence={
            "since": hang.since,
            "limitSeconds": hang.limit,
            "stacks": stacks,
            "ranks": {
                str(rank): {"standing": str(stall.standing), "since": stall.since}
                for rank, stall in sorted(stalls.items())[:_SHOWN_RANKS]
            },
        },
    )
    is_mismatch = told is not None and told.is_mismatch
    return flights.as_mismatch(fault, told) if told is not None and is_mismatch else fault


def troubles(gang: Gang) -> list[tuple[str, str]]:
    """For the condition Degraded, where a person wants a hang only told."""
    found = _found(gang) if gang.spec.on_hang == REPORT else None
    if found is None:
        return []
    return [(Reason.TRAINER_HUNG, f"rank {found[0].rank}: it hangs: {found[0].why}")]


def _text(hang: Hang) -> str:
    return (
        f"hung: no step, no line and no moving save of any rank for {hang.limit:.0f} s, which is "
        f"longer than this training ever takes; {hang.why}"
    )


def _found(gang: Gang) -> tuple[Hang, dict[int, Stall]] | None:
    status = gang.status
    if not status.is_started or status.is_terminal or status.hold is not None or gang.through_store:
        return None
    stalls: dict[int, Stall | None] = {}
    for member in gang.members:
        report = member.report
        if report is None or not _is_watched(gang, member, report):
            return None
        stalls[member.rank] = _stall(member, report)
    hang = hanging(stalls, timeout=gang.spec.hang_timeout_seconds)
    if hang is None or not gang.alarm.has_passed(hang.since + hang.limit):
        return None
    return hang, {rank: stall for rank, stall in stalls.items() if stall is not None}


def _is_watched(gang: Gang, member: Member, report: Report) -> bool:
    """Its trainer of this attempt runs, and a sign of its life would have been heard at once: not
    by an operator that was paused itself, and has not read yet what came meanwhile."""
    trainer, view = report.trainer, member.view
    return (
        trainer.attempt == gang.attempt
        and trainer.state == TrainerState.RUNNING
        and not report.terminating
        and view is not None
        and view.connected
        and view.last_contact is not None
        and gang.now - view.last_contact <= gang.policy.poll_seconds
    )


def _stall(member: Member, report: Report) -> Stall | None:
    """By the operator's clock: the pod's own may be ahead or behind."""
    told, view = report.stall, member.view
    if told is None:
        return None
    ahead = 0.0
    if view is not None and view.received_at is not None:
        ahead = view.received_at - report.sent_at
    return Stall(
        standing=told.standing,
        since=told.since + ahead,
        pace=Pace(usual=told.pace.usual, longest=told.pace.longest, survived=told.pace.survived),
        fell_at=told.fell_at + ahead if told.fell_at is not None else None,
        stacks=tuple(told.stacks),
    )
