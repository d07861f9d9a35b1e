"""Deadlines of the way from a recorded attempt to training: every wait there has its end here.

A sidecar that is heard and does not do what it was told is a fault of its pod; one that is not
heard is first the node's affair (`nodes`), and only after a long time its own. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Charge, Reason
from rtj_api.wire import Phase, SidecarPhase, TrainerState, TrialState

from rtj_operator.core.directives import desired_directive, has_accepted
from rtj_operator.core.faults import Fault
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.nodes import can_be_on, is_heard


def _stage_began(gang: Gang, member: Member) -> float:
    """The latest moment from which this member could have begun the present stage."""
    current, resume, pod = gang.status.current, gang.status.resume, member.pod
    moments = [current.recorded_at if current is not None else gang.now]
    if resume is not None and gang.status.is_started:
        moments.append(resume.at)
    if current is not None and current.restored_at is not None:
        moments.append(current.restored_at)
    if pod is not None:
        moments.append(pod.created_at)
        if pod.sidecar is not None and pod.sidecar.started_at is not None:
            moments.append(pod.sidecar.started_at)
    return max(moments)


def _overdue(member: Member, *, reason: Reason, lost: bool, at: float, message: str) -> Fault:
    return Fault(
        rank=member.rank,
        reason=reason,
        charge=Charge.INFRASTRUCTURE,
        at=at,
        order=4,
        is_pod_lost=lost,
        message=f"rank {member.rank}: {message}",
        pod=member.name,
        node=member.pod.node if member.pod is not None else None,
        evidence={"since": at},
    )


def overdue_of(gang: Gang, member: Member) -> Fault | None:
    """The deadline that this member has missed, or None."""
    pod, policy, alarm = member.pod, gang.policy, gang.alarm
    if pod is None or pod.is_terminal or pod.deleting_since is not None:
        return None
    if gang.through_store:
        return None  # the sidecars end their own waits, and say so by their containers
    if pod.sidecar is None or not pod.sidecar.running:
        return None  # blocked or starting: shown as a condition, or judged by the kubelet's word
    began = _stage_began(gang, member)
    report = member.report
    if not is_heard(gang, pod):
        view = member.view
        # An operator that has just begun has heard nobody yet: silence counts from when it asked.
        asked = view.polled_since if view is not None else None
        last = view.last_contact if view is not None else None
        since = max(began, asked or began, last or began)
        is_training = report is not None and report.trainer.attempt == gang.attempt
        if is_training or can_be_on(gang):
            return None  # the gang goes on through the store: see storemode
        if alarm.has_passed(since + policy.first_report_seconds):
            return _overdue(
                member,
                reason=Reason.REPORTS_UNREACHABLE,
                lost=True,
                at=since,
                message=f"pod {pod.name} runs but its sidecar was not heard at port "
                f"{pod.status_port} for {policy.first_report_seconds:.0f} s: check NetworkPolicies "
                "and its log",
            )
        return None
    directive = desired_directive(gang, member)
    if directive is None or report is None:
        return None
    said = pod.directive
    if said is None or (said.attempt, said.seq) != (directive.attempt, directive.seq):
        return None  # not patched yet
    if not has_accepted(member, directive):
        if alarm.has_passed(began + policy.directive_seen_seconds):
            return _overdue(
                member,
                reason=Reason.DIRECTIVE_NOT_SEEN,
                lost=True,
                at=began,
                message=f"the sidecar of pod {pod.name} answers but did not take up its directive "
                f"within {policy.directive_seen_seconds:.0f} s",
            )
        return None
    if report.attempt != gang.attempt:
        return None
    return _overdue_stage(gang, member, began=began, phase=directive.phase)


def _overdue_stage(gang: Gang, member: Member, *, began: float, phase: Phase) -> Fault | None:
    report, policy, alarm = member.report, gang.policy, gang.alarm
    if report is None:
        return None
    if report.phase == SidecarPhase.STOPPING and phase != Phase.STOP:
        limit = policy.stopped_seconds
        if phase == Phase.PREPARE:
            limit += gang.spec.trainer_grace_seconds
        if alarm.has_passed(began + limit):
            return _overdue(
                member,
                reason=Reason.CANNOT_STOP,
                lost=True,
                at=began,
                message=f"the older trainer could not be ended within {limit:.0f} s (a process in "
                "uninterruptible sleep?)",
            )
    elif report.phase == SidecarPhase.PREPARING:
        if alarm.has_passed(began + policy.prepare_seconds):
            return _overdue(
                member,
                reason=Reason.PREPARE_FAILED,
                lost=True,
                at=began,
                message=f"not prepared within {policy.prepare_seconds:.0f} s"
                + (f": {report.problem.message}" if report.problem is not None else ""),
            )
    elif report.phase == SidecarPhase.RESTORING:
        moved = member.view.received_at if member.view is not None else None
        since = began if moved is None else max(began, moved)
        trial = report.trial
        limit = policy.restore_stall_seconds
        if trial is not None and trial.state == TrialState.RUNNING:
            limit += trial.limit_seconds  # its own limit ends it first
        if alarm.has_passed(since + limit):
            return _overdue(
                member,
                reason=Reason.RESTORE_FAILED,
                lost=False,
                at=since,
                message=f"the restore did not move for {policy.restore_stall_seconds:.0f} s"
                + (f": {report.problem.message}" if report.problem is not None else ""),
            )
    elif (
        phase == Phase.GO
        and report.phase in (SidecarPhase.RESTORED, SidecarPhase.PREPARED)
        and report.trainer.state != TrainerState.RUNNING
        and alarm.has_passed(began + policy.start_seconds)
    ):
        return _overdue(
            member,
            reason=Reason.DIRECTIVE_NOT_SEEN,
            lost=True,
            at=began,
            message=f"the trainer was not started within {policy.start_seconds:.0f} s of the go",
        )
    return None
