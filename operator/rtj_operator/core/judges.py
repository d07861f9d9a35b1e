"""The judges: each looks at one rank for one kind of fault, in the order of decisiveness.

A chain of small functions: what Kubernetes says of the pod and its node comes before what a
container or an exit code says. Each returns a Fault with its evidence or None. Unknown is not
failed: no judge convicts on the absence of news alone. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Charge, Reason
from rtj_api.rules import exits
from rtj_api.rules.blame import OUT_OF_MEMORY
from rtj_api.rules.origins import Origin
from rtj_api.wire import SidecarPhase

from rtj_operator.core import podends
from rtj_operator.core.faults import (
    BY_NODE,
    BY_POD,
    BY_SIDECAR,
    CHARGES,
    Fault,
    fault_at,
)
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.lastwords import left_when_done
from rtj_operator.core.nodes import judge_node
from rtj_operator.core.trainer_judges import judge_container, judge_trainer


def judge_missing(gang: Gang, member: Member) -> Fault | None:
    """The pod is gone although it had been made: since the start, or in an older attempt."""
    if member.pod is not None:
        return None
    is_to_be_made = member.made_in == gang.attempt and member.stand_in is None
    if not gang.status.is_started and is_to_be_made:
        return None  # not made yet
    return fault_at(
        member,
        reason=Reason.POD_DELETED,
        at=gang.now,
        order=BY_POD,
        is_pod_lost=True,
        message=f"pod {member.name} vanished",
        evidence={"pod": member.name, "exists": False},
    )


def judge_misplaced(gang: Gang, member: Member) -> Fault | None:
    """The spare that should play this rank was told of another one before: a write of an operator
    that has been replaced came late. A pod never changes its rank."""
    said = member.pod.directive if member.pod is not None else None
    if said is None or said.rank == member.rank:
        return None
    return fault_at(
        member,
        reason=Reason.DIRECTIVE_NOT_SEEN,
        at=gang.now,
        order=BY_POD,
        is_pod_lost=True,
        message=f"pod {member.name} plays rank {said.rank} already",
        evidence={"pod": member.name, "rank": said.rank},
    )


def judge_pod(gang: Gang, member: Member) -> Fault | None:
    """The pod was deleted, evicted, preempted or has ended."""
    pod = member.pod
    if pod is None:
        return None
    told = podends.told_end(pod)
    evidence = {
        "pod": pod.name,
        "phase": pod.phase,
        "reason": pod.reason,
        "disruption": pod.disruption,
        "deletingSince": pod.deleting_since,
    }
    if pod.deleting_since is not None:
        text = told.message if told is not None else "deleted by someone"
        return fault_at(
            member,
            reason=told.reason if told is not None else Reason.POD_DELETED,
            at=pod.deleting_since,
            order=BY_POD,
            is_pod_lost=True,
            message=f"pod {pod.name} is ending: {text}",
            charge=told.charge if told is not None else None,
            alike=told.alike if told is not None else None,
            evidence=evidence,
        )
    if not pod.is_terminal or left_when_done(pod, attempt=gang.attempt):
        return None
    end = pod.trainer.ended if pod.trainer is not None else None
    at = end.finished_at if end is not None and end.finished_at is not None else gang.now
    charge, alike, origin = None, None, None
    against_node = told.against_node if told is not None else None
    if told is not None:
        reason, text, charge, alike = told.reason, told.message, told.charge, told.alike
    elif pod.phase == "Failed" and end is not None and end.reason == "OOMKilled":
        verdict = exits.judge(exits.from_code(end.exit_code), out_of_memory=True)
        reason = Reason.OUT_OF_MEMORY
        charge, alike, origin = Charge.USER, OUT_OF_MEMORY, Origin.PROGRAM
        text = verdict.message if verdict else "out of memory"
    else:
        said = f", with the message {end.message!r}" if end is not None and end.message else ""
        code = f", exit code {end.exit_code}" if end is not None else ""
        reason, text = Reason.POD_FAILED, f"ended before its release{code}{said}"
    return fault_at(
        member,
        reason=reason,
        at=at,
        order=BY_POD,
        is_pod_lost=True,
        message=f"pod {pod.name} is {pod.phase}: {text}",
        charge=charge,
        exit_code=end.exit_code if end is not None else None,
        alike=alike,
        origin=origin,
        against_node=against_node,
        evidence=evidence,
    )


def judge_pods_node(gang: Gang, member: Member) -> Fault | None:
    """The pod's node is gone, not ready or silent."""
    if member.pod is None:
        return None
    verdict = judge_node(gang, member.pod)
    if verdict is None:
        return None
    return fault_at(
        member,
        reason=verdict.reason,
        at=verdict.at,
        order=BY_NODE,
        is_pod_lost=True,
        message=verdict.message,
        evidence=verdict.evidence,
    )


def judge_terminating(gang: Gang, member: Member) -> Fault | None:
    """The supervisor was sent SIGTERM and the API does not yet say why: the pod is being ended,
    so neither its trainer's signal nor its exit code is the trainer's own."""
    report = member.report
    if member.pod is None or report is None or not report.terminating:
        return None
    ended = report.trainer.ended_at if report.trainer.attempt == gang.attempt else None
    return fault_at(
        member,
        reason=Reason.POD_DELETED,
        at=ended if ended is not None else gang.now,
        order=BY_POD,
        is_pod_lost=True,
        message=f"pod {member.name} is being ended: its trainer's container was sent SIGTERM",
        evidence={"pod": member.name, "terminating": True},
    )


def judge_sidecar(gang: Gang, member: Member) -> Fault | None:
    """The sidecar is down for so long that the kubelet cannot be bringing it back."""
    pod = member.pod
    if pod is None or pod.sidecar is None or pod.sidecar.running or pod.trainer is None:
        return None
    end = pod.sidecar.ended or pod.sidecar.last_end
    if end is None or end.finished_at is None:
        return None
    if not gang.alarm.has_passed(end.finished_at + gang.policy.sidecar_down_seconds):
        return None
    return fault_at(
        member,
        reason=Reason.SIDECAR_LOST,
        at=end.finished_at,
        order=BY_SIDECAR,
        is_pod_lost=True,
        message=f"the sidecar of pod {pod.name} is down and not restarted for "
        f"{gang.policy.sidecar_down_seconds:.0f} s, exit code {end.exit_code}: see its log",
        exit_code=end.exit_code,
        evidence={"sidecar": end.reason, "restarts": pod.sidecar.restarts},
    )


def judge_failed_report(gang: Gang, member: Member) -> Fault | None:
    """The sidecar gave this attempt up: a restore that failed, a fence that was taken."""
    if not member.has_reached(gang.attempt, SidecarPhase.FAILED) or member.report is None:
        return None
    problem = member.report.problem
    default = Reason.RESTORE_FAILED if gang.status.is_started else Reason.PREPARE_FAILED
    try:
        reason = Reason(problem.reason) if problem is not None else default
    except ValueError:
        reason = default
    text = problem.message if problem is not None else "no reason given"
    blamed = [
        r for r in (problem.ranks if problem is not None else []) if 0 <= r < len(gang.members)
    ]
    return fault_at(
        gang.members[blamed[0]] if blamed else member,
        reason=reason,
        at=problem.since if problem is not None else gang.now,
        order=BY_SIDECAR,
        is_pod_lost=reason == Reason.POD_DELETED or bool(blamed),
        message=f"the sidecar gave attempt {gang.attempt} up: {text}",
        charge=CHARGES.get(reason, Charge.CHECKPOINT),
        origin=Origin.OPEN if reason == Reason.TRAINING_DIVERGED else None,
        evidence={
            "problem": reason,
            "retrying": problem is None or problem.retrying,
        },
    )


JUDGES = (
    judge_missing,
    judge_misplaced,
    judge_pod,
    judge_pods_node,
    judge_terminating,
    judge_sidecar,
    judge_failed_report,
    judge_trainer,
    judge_container,
)
