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

from rtj_operator.core import oom, podends, trainer_ends
from rtj_operator.core.faults import (
    BY_NODE,
    BY_POD,
    BY_SIDECAR,
    BY_TRAINER,
    CHARGES,
    Fault,
    fault_at,
)
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.lastwords import last_words_of, left_when_done
from rtj_operator.core.node_ledger import PLAIN
from rtj_operator.core.nodes import judge_node

_STOP_SIGNALS = (10, 15)  # SIGUSR1, SIGTERM: recovery.stop.by


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


def judge_container(gang: Gang, member: Member) -> Fault | None:
    """The trainer's container died under its supervisor, by the pod's status.

    An end with a time before this attempt is an old one that the kubelet shows late. One in which
    no trainer of this attempt had run lost nothing: the kubelet brings the container back, and the
    supervisor waits for the go, or tells from its journal what it had started.
    """
    pod = member.pod
    if pod is None or pod.trainer is None or pod.is_terminal:
        return None
    if pod.trainer.running and not (gang.through_store and gang.status.is_started):
        return None
    end = pod.trainer.ended
    # Without reports nobody tells of an end that the kubelet has made good within a second.
    if end is None and (pod.trainer.running or pod.trainer.waiting_reason == "CrashLoopBackOff"):
        end = pod.trainer.last_end
    if end is None or end.finished_at is None:
        return None
    if left_when_done(pod, attempt=gang.attempt):
        return None
    patience = gang.policy.container_back_seconds
    if gang.through_store:
        patience = gang.policy.container_back_store_seconds
    is_lost = not pod.trainer.running and gang.alarm.has_passed(end.finished_at + patience)
    words = last_words_of(pod)
    if words is not None and words.attempt < gang.attempt and not is_lost:
        return None
    resume = gang.status.resume
    # finishedAt is cut to whole seconds: a time at or after the start is surely after it.
    began = resume.at if resume is not None and gang.status.is_started else gang.now
    ran = member.report is None or member.report.trainer.attempt == gang.attempt
    if (end.finished_at < began or not ran) and not is_lost:
        return None
    code, killed = exits.from_code(end.exit_code), end.reason == "OOMKilled"
    verdict = exits.judge(code, out_of_memory=killed)
    text = verdict.message if verdict is not None else "exit code 0 before its release"
    state = ", and is not running again" if is_lost else ""
    reason = verdict.reason if verdict is not None else Reason.POD_FAILED
    told = trainer_ends.told(gang, code, reason=reason)
    return fault_at(
        member,
        reason=reason,
        at=end.finished_at,
        order=BY_TRAINER,
        is_pod_lost=is_lost,
        message=f"the trainer's container ended: {text}{state}{told.said}",
        exit_code=end.exit_code,
        signal=code.signal,
        alike=told.alike,
        origin=told.origin,
        action=told.action,
        evidence={
            "container": end.reason,
            "exitCode": end.exit_code,
            "restarts": pod.trainer.restarts,
        },
    )


def judge_trainer(gang: Gang, member: Member) -> Fault | None:
    """This attempt's trainer ended with anything but a clean exit 0, by its own pod's report."""
    trainer = member.ended_trainer(gang.attempt)
    if trainer is None:
        return None
    at = trainer.ended_at if trainer.ended_at is not None else gang.now
    killed = oom.was_killed_for_memory(member, trainer)
    if trainer.signal is not None:
        end = exits.from_returncode(-trainer.signal)
    else:
        # Ended and no code: whoever would have collected it was killed too.
        end = exits.from_returncode(trainer.exit_code if trainer.exit_code is not None else -9)
    verdict = exits.judge(end, out_of_memory=killed)
    if verdict is None and not trainer.asked_to_stop and not trainer.container_restarted:
        return None
    is_by_stop = verdict is None or (not killed and was_told_by(end.signal, member))
    if is_by_stop and trainer.unhealthy is None and gang.status.asked_stop is not None:
        return None  # it ended where it was asked to: `core.stopping` goes on from there
    if trainer.unhealthy is not None:
        # How it took the signal to end says nothing.
        reason, text = Reason.TRAINER_UNHEALTHY, trainer.unhealthy
    elif verdict is None:
        reason, text = (
            Reason.TRAINER_SIGNALED,
            "asked to stop by a signal from outside, exit code 0",
        )
    else:
        reason, text = verdict.reason, verdict.message
        if reason == Reason.OUT_OF_MEMORY:
            reason = Reason.NODE_OUT_OF_MEMORY if oom.is_of_node(trainer) else reason
            text = f"{text}; {oom.victim(trainer)}"
    told = trainer_ends.told(gang, end, reason=reason, trainer=trainer)
    return fault_at(
        member,
        reason=reason,
        at=at,
        order=BY_TRAINER,
        is_pod_lost=False,
        message=f"the trainer ended: {text}{told.said}",
        exit_code=end.code,
        signal=end.signal,
        alike=told.alike,
        origin=told.origin,
        against_node=PLAIN if reason == Reason.NODE_OUT_OF_MEMORY else None,
        action=told.action,
        evidence={
            "exitCode": trainer.exit_code,
            "signal": trainer.signal,
            "oomKills": trainer.oom_kills,
            "memoryLimitBytes": trainer.memory_limit_bytes,
            "unhealthy": trainer.unhealthy,
            "containerRestarted": trainer.container_restarted,
            "askedToStop": trainer.asked_to_stop,
            "endedAt": trainer.ended_at,
            "signature": told.signature,
            "gpu": told.gpu,
        },
    )


def was_told_by(number: int | None, member: Member) -> bool:
    """It ended by a signal that its own supervisor sends with, or at the end of, a stop step."""
    report = member.report
    was_told = report is not None and report.stop_step is not None and report.trainer.asked_to_stop
    return was_told and number in _STOP_SIGNALS


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
