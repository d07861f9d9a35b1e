"""Rules about a job's life: bad specs, suspension, holds, the first attempt, the end.

Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Charge, Reason
from rtj_api.status import ConditionType

from rtj_operator.core import attempts, converge, endings, holds, suspending
from rtj_operator.core import status as core_status
from rtj_operator.core.attempts import Cause
from rtj_operator.core.failures import all_faults, may_be_training
from rtj_operator.core.gang import Gang
from rtj_operator.core.lastwords import is_released
from rtj_operator.core.observed import JobView
from rtj_operator.core.plan import Action, Note, Plan
from rtj_operator.core.policy import Policy
from rtj_operator.core.recording import record, stamped


def unreadable(job: JobView, *, now: float, policy: Policy) -> Plan:
    """The spec cannot be read at all: say which field and what to do, touch nothing."""
    wake_at = now + policy.look_again_seconds
    why = job.problem.message if job.problem is not None else "the spec cannot be read"
    if job.status.is_terminal:
        return Plan(rule="unreadable", why=why, wake_at=wake_at)
    status = core_status.initial_conditions(job, now=now)
    if status == job.status:
        return Plan(rule="unreadable", why=why, wake_at=wake_at)
    reason = job.problem.reason if job.problem is not None else Reason.INVALID_SPEC
    note = Note(type="Warning", reason=reason, message=why)
    return Plan(rule="unreadable", why=why, status=status, notes=(note,), wake_at=wake_at)


# --- the end -----------------------------------------------------------------------------------


def finished(gang: Gang) -> Plan | None:
    """Complete or Failed is recorded: pods are released and removed, and nothing is ever made
    again, whatever becomes of them."""
    status = gang.status
    if not status.is_terminal:
        return None
    ended = status.completion_time if status.completion_time is not None else gang.now
    is_complete = status.is_true(ConditionType.COMPLETE)
    may_wait = is_complete and not gang.alarm.has_passed(ended + gang.policy.release_seconds)
    actions: list[Action] = converge.surplus_removals(gang)
    for member in gang.members:
        pod = member.pod
        ends_itself = may_wait and not (gang.spec.rank_zero_decides and may_be_training(member))
        if pod is None or (ends_itself and not pod.is_terminal and pod.deleting_since is None):
            continue
        if endings.has_last_word(gang, member):
            continue
        removal = converge.removal(gang, pod)
        if removal is not None:
            actions.append(removal)
    if actions or is_complete or any(endings.has_last_word(gang, m) for m in gang.members):
        removed = {a.name for a in actions if hasattr(a, "name")}
        for patch in converge.directive_patches(gang):
            member_pod = getattr(patch, "pod", None)
            if member_pod not in removed:
                actions.append(patch)
    if not actions:
        return Plan(rule="finished", why="the job is over")
    released = sum(1 for m in gang.members if m.pod is not None and is_released(m.pod))
    return Plan(
        rule="finished",
        why="the job is over: its pods are released and removed",
        actions=tuple(actions),
        evidence={"pods": len(gang.observed.pods), "released": released},
    )


# --- bad specs -----------------------------------------------------------------------------------


def refused(gang: Gang) -> Plan | None:
    """The spec can be read but not run: Accepted=False names the field and the remedy. Nothing is
    started; a gang that already runs goes on, but no pod is made from that spec."""
    problem = gang.job.problem
    if problem is None or gang.status.attempt > 0:
        return None
    status = core_status.finished(gang)
    if status == gang.job.status:
        return Plan(rule="refused", why=problem.message)
    note = Note(type="Warning", reason=problem.reason, message=problem.message)
    return Plan(
        rule="refused",
        why=problem.message,
        status=stamped(gang, status, before=gang.status),
        notes=(note,),
        evidence={"reason": problem.reason},
    )


# --- suspension and holds ------------------------------------------------------------------------


def suspend(gang: Gang) -> Plan | None:
    """spec.suspend: after the next save, within suspendPolicy's limit, trainers are stopped with
    their grace, what they saved is made durable, then the pods are removed. Unset: a new attempt
    goes on from the newest save."""
    status, hold = gang.status, gang.status.hold
    is_held = hold is not None and hold.reason == Reason.SUSPENDED
    if gang.spec.suspend and not is_held:
        if suspending.should_wait(gang):
            return suspending.begin(gang)
        message = "spec.suspend is true; set it to false to go on from the newest save"
        held = attempts.next_hold(gang, reason=Reason.SUSPENDED, message=message)
        note = Note(type="Normal", reason=Reason.SUSPENDING, message="the job is being suspended")
        return record(gang, held, rule="suspend", why="spec.suspend was set", notes=(note,))
    if not gang.spec.suspend and is_held:
        if status.attempt == 0:
            free = status.model_copy(
                update={"hold": None, "held_since": None, "resumed_at": gang.now}
            )
            return record(gang, free, rule="suspend", why="spec.suspend was unset")
        cause = Cause(
            reason=Reason.RESUMED_BY_USER,
            charge=Charge.INTENT,
            message="spec.suspend was unset",
            is_paced=False,
        )
        note = Note(type="Normal", reason=Reason.RESUMED_BY_USER, message="the job goes on")
        return record(
            gang,
            attempts.next_attempt(gang, cause).model_copy(update={"resumed_at": gang.now}),
            rule="suspend",
            why="spec.suspend was unset",
            notes=(note,),
        )
    if status.pending_suspend is not None:
        free = status.model_copy(update={"pending_suspend": None})
        return record(gang, free, rule="suspend", why="spec.suspend was unset before the next save")
    if not is_held:
        return None
    return suspending.new_holder(gang) or _hold_plan(gang, rule="suspend")


def held(gang: Gang) -> Plan | None:
    """A hold: no attempt runs. Left when its cause is gone, the spec changed, a person asks, or it
    is time to look again; leaving it records a new attempt, which checks anew."""
    hold = gang.status.hold
    if hold is None or hold.reason == Reason.SUSPENDED:
        return None
    if hold.reason == Reason.FINAL_CHECKPOINT_NOT_DURABLE:
        return _held_at_the_end(gang)
    leave = holds.why_over(gang)
    if leave is not None and gang.job.problem is None:
        why, claim_over = leave
        cause = Cause(
            reason=Reason.HOLD_ENDED,
            charge=Charge.INTENT,
            message=f"hold {hold.reason} ended: {why}",
            claim_over=claim_over,
            is_paced=False,
            is_by_itself=hold.generation == gang.job.generation,
        )
        # Pods that are lost by now are made anew with the attempt that leaves the hold.
        faults = tuple(f for f in all_faults(gang) if f.is_pod_lost)
        return record(
            gang,
            attempts.next_attempt(gang, cause, faults),
            rule="held",
            why=cause.message,
            evidence={"hold": hold.reason},
        )
    return _hold_plan(gang, rule="held")


def _held_at_the_end(gang: Gang) -> Plan | None:
    """All trainers ended well and the last save is not durable: pods stay and go on trying. A pod
    that is lost meanwhile means a new attempt, since only what is durable is done."""
    faults = all_faults(gang)
    if not faults:
        return _hold_plan(gang, rule="held")
    first = faults[0]
    cause = Cause(reason=first.reason, charge=first.charge, message=first.message, fault=first)
    note = Note(type="Warning", reason=first.reason, message=first.message)
    return record(
        gang,
        attempts.next_attempt(gang, cause, faults),
        rule="held",
        why=first.message,
        notes=(note,),
        evidence=first.evidence,
    )


def _hold_plan(gang: Gang, *, rule: str) -> Plan:
    """What a hold does to the pods, then what it shows."""
    hold = gang.status.hold
    reason = hold.reason if hold is not None else ""
    actions = converge.surplus_removals(gang) + converge.hold_removals(gang)
    if hold is not None and hold.reason == Reason.SUSPENDED:
        actions += suspending.holder_creation(gang)
    removed = {getattr(a, "name", None) for a in actions}
    actions += [p for p in converge.directive_patches(gang) if getattr(p, "pod", "") not in removed]
    if actions:
        return Plan(rule=rule, why=f"held: {reason}", actions=tuple(actions))
    status = core_status.finished(gang)
    is_due, due = core_status.needs_refresh(
        gang.job.status, status, now=gang.now, policy=gang.policy
    )
    if is_due:
        status = stamped(gang, status, before=gang.status)
        notes: tuple[Note, ...] = ()
        is_suspended = status.is_true(ConditionType.SUSPENDED)
        if is_suspended and not gang.job.status.is_true(ConditionType.SUSPENDED):
            notes = (Note(type="Normal", reason=Reason.SUSPENDED, message="all pods are gone"),)
        return Plan(rule=rule, why=f"held: {reason}", status=status, notes=notes)
    gang.alarm.has_passed(due)
    return Plan(rule=rule, why=f"held: {reason}")


# --- the first attempt ------------------------------------------------------------


def first_attempt(gang: Gang) -> Plan | None:
    """Nothing was tried yet: attempt 1 is recorded as soon as no pod of an older job of the same
    name lives; until then the job is Pending."""
    if gang.status.attempt > 0:
        return None
    if freed := converge.older_frees(gang):
        why = "pods of an older job of this name are freed of the queue's finalizer"
        return Plan(rule="first_attempt", why=why, actions=tuple(freed))
    older = gang.observed.older_pods
    living = [p.name for p in older if not p.is_terminal and not converge.is_given_up(gang, p)]
    if living:
        why = f"waits for pods of an older job of this name to end: {', '.join(sorted(living)[:4])}"
        status = core_status.finished(gang)
        if status == gang.job.status:
            return Plan(rule="first_attempt", why=why)
        note = Note(type="Normal", reason=Reason.PENDING, message=why)
        status = stamped(gang, status, before=gang.status)
        return Plan(rule="first_attempt", why=why, status=status, notes=(note,))
    cause = Cause(reason=Reason.FIRST_START, charge=Charge.INTENT, message="first start")
    note = Note(type="Normal", reason=Reason.FIRST_START, message="pods are made")
    return record(
        gang,
        attempts.next_attempt(gang, cause),
        rule="first_attempt",
        why="the job is new",
        notes=(note,),
        evidence={"replicas": gang.spec.replicas},
    )
