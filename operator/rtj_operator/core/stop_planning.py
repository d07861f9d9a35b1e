"""Whether there is time for a stop step, with the sum that it rests on: what the ranks report of
their steps and saves, put into the rule that decides.

Must never look at a clock of a pod as if it were ours. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.rules.stopping import RankPace, SaveCosts, StopVerdict, plan_stop
from rtj_api.status import PlannedStop

from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.leaving import Leaving
from rtj_operator.core.nodes import is_heard
from rtj_operator.core.plan import Note
from rtj_operator.core.recording import moment_of

_NOTES = {
    StopVerdict.AGREED: ("Normal", Reason.STOP_AGREED),
    StopVerdict.FINISH_LAST: ("Warning", Reason.LAST_SAVE_COUNTS),
    StopVerdict.TOO_LATE: ("Warning", Reason.STOP_TOO_LATE),
}


def planned_for(
    gang: Gang,
    *,
    cause: Reason,
    why: str,
    left: float,
    going: tuple[Leaving, ...] = (),
    ships: bool = True,
) -> PlannedStop:
    """What is decided, with the sum that it rests on."""
    found = plan_stop(_paces(gang), left=left, costs=_costs(gang), ships=ships)
    now = moment_of(gang)
    text = f"all ranks save and end at step {found.step}"
    if found.step is None:
        text = "no stop step is asked for"
    return PlannedStop(
        attempt=gang.attempt,
        verdict=found.verdict,
        cause=cause,
        ranks=[one.member.rank for one in going],
        step=found.step,
        since=now,
        until=None if found.last_for is None else now + round(found.last_for, 3),
        message=f"{why}; {text}: {found.why}",
    )


def note_of(planned: PlannedStop) -> Note:
    kind, reason = _NOTES[StopVerdict(planned.verdict)]
    return Note(type=kind, reason=reason, message=planned.message)


def _paces(gang: Gang) -> list[RankPace]:
    return [_pace(gang, member) for member in gang.members]


def _pace(gang: Gang, member: Member) -> RankPace:
    report, view, pod = member.report, member.view, member.pod
    if report is None or view is None or pod is None or not is_heard(gang, pod):
        return RankPace(rank=member.rank, is_reachable=False)
    progress = report.progress
    since_heard = gang.now - (view.received_at if view.received_at is not None else gang.now)
    # By the pod's clock until it was sent, by ours from then on.
    told_at = progress.updated_at if progress.updated_at is not None else report.sent_at
    return RankPace(
        rank=member.rank,
        step=progress.step if progress.source != "checkpoint" else None,
        age=max(0.0, report.sent_at - told_at) + max(0.0, since_heard),
        pace=progress.pace_seconds or None,
        is_reachable=report.can_stop and not gang.through_store,
    )


def _costs(gang: Gang) -> SaveCosts:
    views = [m.report.checkpoint for m in gang.members if m.report is not None]
    saves = [v.writing_seconds for v in views if v.writing_seconds is not None]
    saves += [v.stall_seconds / v.stalls for v in views if v.stalls]
    uploads = [v.upload_seconds for v in views if v.upload_seconds is not None]
    pending = [
        v.pending_bytes / v.upload_bytes * v.upload_seconds
        for v in views
        if v.pending_bytes and v.upload_bytes and v.upload_seconds is not None
    ]
    advice = gang.status.interval  # has the figures of the attempts before
    known_save = advice.writing_seconds if advice is not None else None
    known_upload = advice.durable_latency_seconds if advice is not None else None
    return SaveCosts(
        save=max(saves, default=known_save),
        upload=max(uploads, default=known_upload),
        pending=max(pending, default=0.0),
    )


def is_decided(gang: Gang, planned: PlannedStop) -> bool:
    """This very trouble was looked at in this attempt, nothing could be asked for, nor can it now:
    a pace that is known by now, a faster save or a rank that is heard again may change that."""
    before = gang.status.stop
    if before is None or before.attempt != gang.attempt or planned.step is not None:
        return False
    return before.cause == planned.cause and before.ranks == planned.ranks
