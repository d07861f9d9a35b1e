"""Whether an attempt may start by one directive, chosen in the write that records it.

So it may where nobody has a byte to move and nobody waits for anybody: in place, and where spares
that have fetched the save take the lost ranks. The fence is then claimed late, as exactly the next
number. Must never choose an older save than the stages of the ordinary way would find. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Charge
from rtj_api.rules import resume as rules_resume
from rtj_api.status import RestartKind, Status
from rtj_api.wire import Report, Resume, SidecarPhase, TrialState

from rtj_operator.core import draining
from rtj_operator.core.gang import Gang, Member, gather


def why_not_fast(gang: Gang, status: Status, chosen: object) -> str | None:
    """None when nobody has a byte to move or a thing to wait for; else what stands against it.

    `gang` is as it was before the decision, `status` the attempt that is about to be recorded.
    """
    current = status.current
    if current is None or not (current.kind == RestartKind.IN_PLACE or _is_take_over(status)):
        return "pods are made anew"
    if 0 in current.replaced:
        return "the spare that takes rank 0 has to claim the fence first"
    if current.not_before is not None:
        return "back-off"
    if gang.through_store:
        return "the attempt before went through the store"
    if current.charge == Charge.INTENT:
        return "asked for: the older trainer is given its grace"
    if gang.spec.shared_directory:
        return "several pods write one directory"
    if not isinstance(chosen, rules_resume.Chosen) or chosen.resume.scratch:
        return "no save is at hand"
    if chosen.resume.asked is not None:
        return "another beginning was asked for"
    zero = gang.rank_zero.report
    if gang.spec.probe is not None and not _has_passed(zero, chosen.resume.name):
        return "its probe has to pass first"
    if zero is None or zero.fence is None:
        return "rank 0's sidecar holds no fence"
    staying = [m for m in gang.members if m.rank not in current.replaced]
    for member in staying:
        why = _why_member_not_fast(gang, member)
        if why is not None:
            return f"rank {member.rank}: {why}"
    pinned = gang.pinned
    missing = [m.rank for m in staying if chosen.resume.name not in pinned.get(m.rank, ())]
    if missing:
        return f"rank {missing[0]} does not have {chosen.resume.name} pinned"
    return _why_not_taken_over(as_it_starts(gang, status), chosen.resume)


def _is_take_over(status: Status) -> bool:
    """Spares take all the ranks that get another pod."""
    current = status.current
    return (
        current is not None
        and current.kind == RestartKind.REPLACE
        and current.taken_over == current.replaced
    )


def as_it_starts(gang: Gang, status: Status) -> Gang:
    """The gang that `status` records, where spares complete it; else as it is."""
    if not _is_take_over(status):
        return gang
    return gather(gang.observed, policy=gang.policy, alarm=gang.alarm, status=status)


def _why_not_taken_over(gang: Gang, resume: Resume) -> str | None:
    """Whether those that were spares have the save, and nobody may yet find or ship a newer one:
    only prepare waits for that."""
    current = gang.status.current
    taken = current.taken_over if current is not None else []
    if not taken:
        return None
    for member in (gang.members[rank] for rank in taken):
        waits = member.report.standby if member.report is not None else None
        if waits is None or waits.name != resume.name or not waits.whole:
            return f"{member.name}, which takes rank {member.rank}, has not all of {resume.name}"
    if draining.draining_until(gang) is not None:
        return "a pod that is being ended may still ship a save"
    for member in gang.members:
        report = member.report
        if report is not None and (report.settling or report.checkpoint.pending_saves > 0):
            return f"rank {member.rank} has a save that may become durable"
    zero = gang.rank_zero.report
    for candidate in zero.candidates if zero is not None else ():
        if candidate.name == resume.name:
            break
        if not candidate.durable and candidate.invalid is None:
            return f"{candidate.name} is newer and may become durable"
    return None


def _has_passed(zero: Report | None, name: str | None) -> bool:
    trial = zero.trial if zero is not None else None
    return trial is not None and trial.name == name and trial.state == TrialState.PASSED


def _why_member_not_fast(gang: Gang, member: Member) -> str | None:
    pod, view, report = member.pod, member.view, member.report
    if pod is None or pod.phase != "Running" or pod.deleting_since is not None:
        return "its pod does not run"
    if pod.trainer is None or not pod.trainer.running:
        return "its container does not run"
    if view is None or report is None or report.attempt != gang.attempt:
        return "no report of the attempt"
    fresh = view.connected or (
        view.last_contact is not None
        and gang.now - view.last_contact < gang.policy.report_fresh_seconds
    )
    if not fresh:
        return "its report is old"
    if report.terminating or not report.supervisor_seen:
        return "its supervisor is not there"
    if report.phase in (SidecarPhase.FAILED, SidecarPhase.IDLE):
        return f"its sidecar is {report.phase}"
    return None
