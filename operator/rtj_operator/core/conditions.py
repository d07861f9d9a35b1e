"""The conditions: what is so, why, and what would change it.

Messages hold nothing that changes by itself (no ages, no steps), since a changed message is a
write. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from rtj_api.reasons import Reason
from rtj_api.status import (
    Condition,
    ConditionType,
)
from rtj_api.wire import SidecarPhase, TrainerState

from rtj_operator.core import (
    governor,
    hangs,
    oom,
    pending,
    probing,
    remedies,
    resumption,
    shortage,
    slow_ranks,
    without_store,
    writers,
)
from rtj_operator.core.absorb import own_reports
from rtj_operator.core.directives import phase_for
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.nodes import is_heard
from rtj_operator.core.undurable import waited_for

_UNHEARD = (
    "attempt {} goes on through the store: its pods cannot be heard, so its steps are not known "
    "here before it ends. See the trainers' logs, and fences/ and ready/ of the run in the store"
)
# Told after whatever else is wrong, which may be why: a full disk, then the saves that it costs.
_CONSEQUENCES = {
    Reason.SAVES_VANISH,
    Reason.SAVES_TOO_RARE,
    Reason.SAVES_TOO_OFTEN,
    Reason.STORE_TOO_SLOW,
}


def with_condition(
    conditions: Iterable[Condition],
    *,
    kind: ConditionType,
    status: bool | None,
    reason: str,
    message: str,
    generation: int,
    now: float,
) -> list[Condition]:
    """Sets one condition; its transition time moves only when its status flips."""
    text = "Unknown" if status is None else str(status)
    found = list(conditions)
    old = next((c for c in found if c.type == kind), None)
    moved = now if old is None or old.status != text else old.last_transition_time
    new = Condition(
        type=kind,
        status=text,
        reason=str(reason),
        message=message,
        observed_generation=generation,
        last_transition_time=moved,
    )
    if old is None:
        return [*found, new]
    return [new if c.type == kind else c for c in found]


def is_training(gang: Gang) -> bool:
    """All ranks' trainers of this attempt have been started and none is known to have ended."""
    return gang.status.is_started and all(
        m.has_reached(gang.attempt, SidecarPhase.TRAINING)
        or (
            m.report is not None
            and m.report.trainer.attempt == gang.attempt
            and m.report.trainer.state == TrainerState.RUNNING
        )
        for m in gang.members
    )


def _store_problem(gang: Gang) -> tuple[str, str] | None:
    for member in gang.members:
        report = member.report
        if report is not None and report.attempt == gang.attempt and report.problem is not None:
            text = remedies.worded(report.problem, gang.job.spec)
            return report.problem.reason, f"rank {member.rank}: {text}"
    return None


def situation(gang: Gang) -> tuple[bool | None, str, str]:
    """Condition Running: whether the gang trains, the reason, and what to do."""
    status = gang.status
    current = status.current
    complete = status.condition(ConditionType.COMPLETE)
    if complete is not None and complete.status == "True":
        return False, complete.reason, complete.message
    failed = status.condition(ConditionType.FAILED)
    if failed is not None and failed.status == "True":
        return False, failed.reason, failed.message
    if status.hold is not None:
        return False, status.hold.reason, status.hold.message
    if current is None:
        return False, Reason.PENDING, "waiting to start"
    if status.is_started:
        if is_training(gang):
            return True, Reason.TRAINING, f"attempt {gang.attempt} trains on all ranks"
        if gang.through_store:
            return None, Reason.REPORTS_UNREACHABLE, _UNHEARD.format(gang.attempt)
        if current.training_at is not None:
            problem = _store_problem(gang)
            if problem is not None:
                return False, Reason.DRAINING, f"trainers ended; {problem[1]}"
            return False, Reason.DRAINING, "trainers end and their last saves are shipped"
        if phase_for(gang) is not None and current.restored_at is not None:
            return False, Reason.STARTING, f"attempt {gang.attempt}: trainers are being started"
        text = probing.running(gang) or "the save is being restored"
        return False, Reason.RESTORING, f"attempt {gang.attempt}: {text}"
    blocked = pending.blocked(gang)
    if blocked is not None:
        return False, blocked[0], blocked[1]
    problem = _store_problem(gang)
    if problem is not None:
        return False, problem[0], problem[1]
    if current.not_before is not None and gang.now < current.not_before:
        return False, Reason.BACKING_OFF, f"attempt {gang.attempt} waits after: {current.message}"
    if any(m.pod is None or m.pod.node is None for m in gang.members):
        return False, Reason.PENDING, f"attempt {gang.attempt}: pods are being placed"
    waiting = writers.why_waiting(gang)
    if waiting is not None:
        return False, Reason.AWAITING_OLDER_WRITER, waiting
    return False, Reason.PREPARING, f"attempt {gang.attempt}: pods prepare"


def _freshness(gang: Gang) -> tuple[bool | None, str, str]:
    """Condition CheckpointFresh: whether the work done is being made durable."""
    status = gang.status
    durable_at = status.checkpoint.last_durable_time
    zero = gang.rank_zero.pod if gang.members else None
    if gang.through_store and (zero is None or not is_heard(gang, zero)):
        return None, Reason.REPORTS_UNREACHABLE, "rank 0's sidecar, which would know, is not heard"
    if not status.ever_durable or durable_at is None:
        return None, Reason.NO_CHECKPOINT_YET, "no save of this run is durable yet"
    interval = max(
        (r.checkpoint.interval_seconds or 0.0 for r in own_reports(gang)),
        default=0.0,
    )
    began = status.current.training_at if status.current is not None else None
    if interval > 0 and began is not None and is_training(gang):
        due = max(durable_at, began) + max(3 * interval, 600.0)
        if gang.alarm.has_passed(due):
            return (
                False,
                Reason.CHECKPOINT_OVERDUE,
                "no save has become durable for three times the usual interval: check that the "
                "trainer still saves, and the sidecars' upload lag",
            )
    return True, Reason.CHECKPOINT_DURABLE, "the newest save is durable"


def _degradations(gang: Gang) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if gang.job.request_error is not None:
        found.append((Reason.INVALID_SPEC, gang.job.request_error))
    found += [(warning.reason, warning.message) for warning in gang.spec.warnings]
    found += probing.not_run(gang)
    for member in gang.members:
        report, pod = member.report, member.pod
        if report is not None:
            problems = list(report.degraded)
            if report.problem is not None and report.attempt == gang.attempt:
                problems.append(report.problem)
            found += [
                (p.reason, f"rank {member.rank}: {remedies.worded(p, gang.job.spec)}")
                for p in problems
            ]
        found += _memory(member)
        if pod is None or pod.sidecar is None or not pod.sidecar.running:
            continue
        view = gang.observed.reports.get(pod.uid)
        if view is None or view.connected:
            continue
        last = view.last_contact if view.last_contact is not None else view.polled_since
        if last is not None and gang.alarm.has_passed(
            last + gang.policy.reports_unreachable_seconds
        ):
            found.append(
                (
                    Reason.REPORTS_UNREACHABLE,
                    f"rank {member.rank}: its sidecar runs and cannot be reached at port "
                    f"{pod.status_port}: check NetworkPolicies and meshes between the operator "
                    "and the pod",
                )
            )
    found += shortage.troubles(gang)
    found += hangs.troubles(gang)
    found += slow_ranks.troubles(gang)
    found += resumption.troubles(gang.status.checkpoint)
    found += governor.troubles(gang.status, wish=gang.spec.interval)
    return sorted(found, key=lambda told: told[0] in _CONSEQUENCES)


def _memory(member: Member) -> list[tuple[str, str]]:
    """What the kernel killed for memory and what goes on nevertheless."""
    found: list[tuple[str, str]] = []
    trainer = member.report.trainer if member.report is not None else None
    if trainer is not None and trainer.state == TrainerState.RUNNING and trainer.oom_kills > 0:
        found.append(
            (
                Reason.OUT_OF_MEMORY,
                f"rank {member.rank}: {oom.victim(trainer)} and the trainer goes on without it: "
                "raise the limit, or use fewer data loader workers",
            )
        )
    sidecar = member.pod.sidecar if member.pod is not None else None
    end = sidecar.last_end if sidecar is not None else None
    if end is not None and end.reason == "OOMKilled":
        found.append(
            (
                Reason.OUT_OF_MEMORY,
                f"rank {member.rank}: the sidecar was killed for memory: raise "
                "spec.sidecar.resources.limits.memory",
            )
        )
    return found


def next_conditions(gang: Gang) -> list[Condition]:
    status, now, generation = gang.status, gang.now, gang.job.generation
    conditions: list[Condition] = list(status.conditions)

    def put(kind: ConditionType, value: bool | None, reason: str, message: str) -> None:
        nonlocal conditions
        conditions = with_condition(
            conditions,
            kind=kind,
            status=value,
            reason=reason,
            message=message,
            generation=generation,
            now=now,
        )

    problem = gang.job.problem
    if problem is None:
        can_run = "the spec can be run" if gang.spec.has_store else without_store.SURVIVES
        put(ConditionType.ACCEPTED, True, Reason.ACCEPTED, can_run)
    else:
        put(ConditionType.ACCEPTED, False, problem.reason, problem.message)
    put(ConditionType.RUNNING, *situation(gang))
    if not status.is_terminal:
        put(ConditionType.CHECKPOINT_FRESH, *_freshness(gang))
    hold = status.hold
    if hold is not None and hold.reason == Reason.SUSPENDED:
        if gang.observed.pods:
            kept = waited_for(gang)
            text = "pods are being ended" if kept is None else kept
            put(ConditionType.SUSPENDED, False, Reason.SUSPENDING, text)
        else:
            put(ConditionType.SUSPENDED, True, Reason.SUSPENDED, "spec.suspend is true; no pods")
    elif status.pending_suspend is not None:
        text = "spec.suspend is true: the next save is waited for, within suspendPolicy's limit"
        put(ConditionType.SUSPENDED, False, Reason.SUSPENDING, text)
    else:
        put(ConditionType.SUSPENDED, False, Reason.NOT_SUSPENDED, "spec.suspend is false")
    degraded = [] if status.is_terminal else _degradations(gang)
    if degraded:
        texts = list(dict.fromkeys(text for _, text in degraded))
        put(ConditionType.DEGRADED, True, degraded[0][0], "; ".join(texts[:4]))
    else:
        put(ConditionType.DEGRADED, False, Reason.NOTHING_DEGRADED, "")
    if not status.is_true(ConditionType.COMPLETE):
        put(ConditionType.COMPLETE, False, Reason.NOT_COMPLETE, "")
    if not status.is_true(ConditionType.FAILED):
        put(ConditionType.FAILED, False, Reason.NOT_FAILED, "")
    return conditions
