"""The judges of a rank's trainer: by its supervisor's report, else by its container's end.

See `core.judges`, which says when they are asked. Must never take an end that was asked for as a
fault of the trainer's own. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.rules import exits

from rtj_operator.core import oom, trainer_ends
from rtj_operator.core.faults import (
    BY_TRAINER,
    Fault,
    fault_at,
)
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.lastwords import last_words_of, left_when_done
from rtj_operator.core.node_ledger import PLAIN

_STOP_SIGNALS = (10, 15)  # SIGUSR1, SIGTERM: recovery.stop.by


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
