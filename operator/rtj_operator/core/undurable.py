"""What is finished somewhere and not in the store yet, and who must stay until it is.

A pod that holds such a save is never given up by a hold, and neither is rank 0's, whose sidecar
alone can commit what the others saved. Unreachable is not empty: what a silent pod has told last
still counts. Pure.
"""

from __future__ import annotations

from rtj_api.wire import SidecarPhase, TrainerState

from rtj_operator.core import holds, remedies
from rtj_operator.core.failures import may_be_training
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.nodes import judge_node


def has_undurable(gang: Gang, member: Member) -> bool:
    """Its sidecar has said that a finished save is not durable yet, and its node may live."""
    if member.pod is None or member.pod.is_terminal or member.report is None:
        return False
    if member.report.checkpoint.pending_saves == 0:
        return False
    return judge_node(gang, member.pod) is None


def may_have_undurable(gang: Gang, member: Member) -> bool:
    """It has such a save, or nobody could ask it yet: an operator that comes back has heard
    nothing at first, and what a pod holds is not gone for that."""
    return has_undurable(gang, member) or _is_awaited(gang, member)


def _is_awaited(gang: Gang, member: Member) -> bool:
    """Its sidecar has run, and this operator, which asks it, may still get its first report."""
    pod, view = member.pod, member.view
    if pod is None or pod.is_terminal or view is None or view.report is not None:
        return False
    sidecar = pod.sidecar
    if sidecar is None or not (sidecar.running or sidecar.ended or sidecar.last_end):
        return False
    if view.polled_since is None or judge_node(gang, pod) is not None:
        return False
    return not gang.alarm.has_passed(view.polled_since + gang.policy.first_report_seconds)


def has_stopped(gang: Gang, member: Member) -> bool:
    """Its sidecar says that it obeyed the stop, or it never had anything to stop."""
    report = member.report
    if report is None or report.trainer.state == TrainerState.NONE:
        return not may_be_training(member)
    return member.has_reached(
        gang.attempt, SidecarPhase.DRAINED, SidecarPhase.PREPARED, SidecarPhase.FAILED
    )


def stop_limit(gang: Gang, member: Member) -> float:
    """A pod that has not obeyed the stop by then is not asked any more. An operator that comes
    back may be the first to tell it."""
    hold = gang.status.hold
    since = hold.since if hold is not None else gang.now
    if member.view is not None and member.view.polled_since is not None:
        since = max(since, member.view.polled_since)
    return since + gang.spec.trainer_grace_seconds + gang.policy.stopped_seconds


def needs_holder(gang: Gang) -> bool:
    """Whether some rank other than 0 may still have a save that only rank 0 can commit."""
    for member in gang.members[1:]:
        if member.pod is None or member.pod.is_terminal:
            continue
        if may_have_undurable(gang, member):
            return True
        if not has_stopped(gang, member) and not gang.alarm.has_passed(stop_limit(gang, member)):
            return True
    return False


def open_saves(gang: Gang) -> list[str]:
    """Saves of the held fence that rank 0's sidecar has named and not yet committed or dropped."""
    zero = gang.rank_zero.report
    if zero is None or zero.fence is None:
        return []
    mine = f"f{zero.fence}-"
    return [c.name for c in zero.candidates if not c.durable and c.name.startswith(mine)]


def waited_for(gang: Gang) -> str | None:
    """Which ranks keep their pods for which save, and what stands against it; None: nothing."""
    keeping = [m for m in gang.members if has_undurable(gang, m)]
    if not keeping:
        return None
    first = keeping[0]
    report = first.report
    saves = report.checkpoint if report is not None else None
    what = "a finished save is not in the store yet"
    if saves is not None and saves.last_saved_step is not None:
        what = f"its save of step {saves.last_saved_step} is not in the store yet"
    if len(keeping) > 1:
        what += f"; nor are those of ranks {[m.rank for m in keeping[1:]][:8]}"
    zero = gang.rank_zero
    troubles = [
        remedies.worded(p, gang.spec)
        for m in (first, zero)
        if m.report is not None
        for p in holds.problems_of(m.report)
    ]
    if troubles:
        what += f": {troubles[0]}"
    elif zero.pod is None and first.rank != 0:
        what += ": rank 0's pod, which alone can commit it, is gone and is made anew"
    return f"rank {first.rank}: {what}. Its pod is kept until it is; delete the pod to give it up"
