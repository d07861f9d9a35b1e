"""Recording: the only places where attempt, starts, restarts, budgets and holds change.

Each function returns the next status for one decision; the guarded write makes it happen exactly
once. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtj_api.reasons import Charge, Reason
from rtj_api.rules.blame import Factor
from rtj_api.status import (
    ConditionType,
    Culprit,
    CurrentAttempt,
    Hold,
    RestartKind,
    Status,
)

from rtj_operator.core import (
    budget,
    diagnosing,
    kept_off,
    ledger,
    node_marks,
    queueing,
    sizes,
    spares,
    steering,
    writers,
)
from rtj_operator.core.conditions import with_condition
from rtj_operator.core.diagnosing import Case
from rtj_operator.core.faults import Fault
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.nodes import stays_on


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a new attempt is made."""

    reason: Reason
    charge: Charge
    message: str
    fault: Fault | None = None
    recreate: bool = False  # all pods anew
    only_missing: bool = False  # pods anew only where there is none, whatever became of the rest
    claim_over: str | None = None  # the job's name whose fence may be claimed over
    is_paced: bool = True  # waits a back-off; a hold that ends has waited already
    case: Case | None = None  # what was found out about the fault
    size: int | None = None  # pods of the gang from now on, where that changes
    is_by_itself: bool = False  # nobody has changed anything: what was found out is kept


def lost_ranks(gang: Gang, faults: tuple[Fault, ...]) -> frozenset[int]:
    """Ranks whose pods cannot serve another attempt."""
    lost = {f.rank for f in faults if f.is_pod_lost}
    if any(f.reason == Reason.UNSCHEDULABLE for f in faults):
        lost |= {m.rank for m in gang.members if m.pod is not None and m.pod.node is None}
    for member in gang.members:
        pod = member.pod
        if (
            pod is None
            or pod.deleting_since is not None
            or pod.is_terminal
            or is_stale(gang, member)
        ):
            lost.add(member.rank)
    return frozenset(lost)


def _without_pod(gang: Gang) -> frozenset[int]:
    return frozenset(m.rank for m in gang.members if m.pod is None)


def is_stale(gang: Gang, member: Member) -> bool:
    """Its pod was made from an older template of the user's."""
    pod = member.pod
    return (
        pod is not None
        and pod.template_hash is not None
        and pod.template_hash != gang.spec.template_hash
    )


def culprit_of(fault: Fault | None, *, is_node_tried: bool = False) -> Culprit | None:
    if fault is None:
        return None
    weight = node_marks.weight_of(fault, is_node_tried=is_node_tried)
    return Culprit(
        rank=fault.rank,
        pod=fault.pod,
        node=fault.node,
        exit_code=fault.exit_code,
        signal=fault.signal,
        signature=fault.evidence.get("signature"),
        against_node=weight or None,
        gpu=fault.evidence.get("gpu"),
        message=fault.message,
    )


def _detected_at(gang: Gang, fault: Fault | None) -> float:
    """When the operator heard of it: the arrival of the culprit's report, else this pass. A silence
    that is reported is no hang before its limit has passed."""
    if fault is None or fault.reason == Reason.TRAINER_HUNG:
        return gang.now
    view = gang.members[fault.rank].view
    report = view.report if view is not None else None
    if (
        view is not None
        and report is not None
        and view.received_at is not None
        and not fault.is_pod_lost
        and fault.at <= view.received_at <= gang.now
    ):
        return view.received_at
    return gang.now


def _jitter(gang: Gang) -> float:
    """0..1, the same for the same job and attempt: jobs that wait for one another part ways."""
    seed = f"{gang.job.uid}/{gang.attempt}".encode()
    value = 2166136261
    for byte in seed:
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return (value % 1000) / 1000.0


def placement_seconds(gang: Gang) -> float:
    """recovery.placementTimeoutSeconds, else the operator's."""
    stated = gang.spec.placement_seconds
    return gang.policy.placement_seconds if stated is None else stated


def next_attempt(gang: Gang, cause: Cause, faults: tuple[Fault, ...] = ()) -> Status:
    """Records attempt N+1 with its cause, restart kind and back-off; its start comes later."""
    status, now = gang.status, gang.now
    number = status.attempt + 1
    world = _next_size(gang, cause)
    lost = _without_pod(gang) if cause.only_missing else lost_ranks(gang, faults)
    lost = frozenset({r for r in lost if r < world} | {*range(len(status.placements), world)})
    # A rank 0 that is made alone to commit what others hold must leave those where they are.
    is_over = not cause.only_missing and queueing.is_over(gang, lost, faults)
    if cause.recreate or is_over or len(lost) >= world:
        kind, replaced = RestartKind.RECREATE, list(range(world))
    elif lost:
        kind, replaced = RestartKind.REPLACE, sorted(lost)
    else:
        kind, replaced = RestartKind.IN_PLACE, []
    if status.attempt == 0:
        kind = RestartKind.FIRST
    placements = [number if r in replaced else status.placements[r] for r in range(world)]
    delay, budgets = 0.0, status.budgets
    if cause.is_paced and number > 1:
        delay = budget.delay_for(
            cause.charge,
            budgets=budgets,
            spec=gang.spec,
            started=status.is_started,
            jitter=_jitter(gang),
        )
        if not status.is_started and cause.charge != Charge.INTENT:
            budgets = budget.next_budgets_at_try(budgets)
    if cause.charge == Charge.INTENT and not cause.is_by_itself:
        forgotten = {"incidents": [], "believed": 0}  # something was changed
        budgets = budgets.model_copy(update=forgotten)
    elif cause.case is not None:
        budgets = diagnosing.with_case(budgets, cause.case)
        status = status.model_copy(
            update={"suspicions": diagnosing.next_suspicions(status, cause.case)}
        )
    if cause.reason == Reason.PLACEMENT_TIMEOUT:
        delay += placement_seconds(gang) * _jitter(gang)
    ended = ledger.with_end(status, at=now, by=cause.reason)
    avoid = kept_off.avoided(
        gang, faults, blamed=_blamed(cause), cause=cause.reason, is_any_new=bool(replaced)
    )
    taken = (
        spares.taken(gang, replaced, avoid=avoid)
        if status.attempt > 0 and not cause.recreate and not cause.only_missing
        else ()
    )
    kept = (s for s in status.stand_ins if s.rank < world and s.rank not in replaced)
    current = CurrentAttempt(
        attempt=number,
        kind=kind,
        cause=cause.reason,
        message=cause.message,
        charge=_charge(gang, cause),
        culprit=culprit_of(cause.fault, is_node_tried=_varied(gang, cause) == Factor.NODE),
        replaced=replaced,
        may_claim=cause.claim_over is not None,
        claim_over=cause.claim_over,
        wanted=steering.wanted(gang),
        varied=_varied(gang, cause),
        fault_at=min(cause.fault.at, now) if cause.fault is not None else None,
        detected_at=_detected_at(gang, cause.fault) if cause.fault is not None else None,
        recorded_at=now,
        not_before=now + delay if delay > 0 else None,
        taken_over=sorted(s.rank for s in taken),
        scheduled_at=now if len(taken) == len(replaced) else None,
        group_since=queueing.group_since(gang, replaced=replaced, attempt=number),
        avoid_nodes=avoid,
        through_store=stays_on(gang),
    )
    return ended.model_copy(
        update={
            "attempt": number,
            "current": current,
            "placements": placements,
            "stand_ins": [*kept, *taken],
            "older_writers": writers.next_older_writers(
                gang, [*replaced, *range(world, len(status.placements))]
            ),
            "elastic": sizes.next_elastic(
                gang, size=world, reason=cause.reason, message=cause.message
            ),
            "budgets": budgets,
            "hold": None,
            "pending_template": None,
            "pending_suspend": None,
            "stop": None,
        }
    )


def _next_size(gang: Gang, cause: Cause) -> int:
    """Pods of the attempt that is being recorded. A gang that comes back from a suspension without
    any pod begins whole, if what it has saved can be loaded so."""
    if cause.size is not None:
        return cause.size
    is_back = cause.reason == Reason.RESUMED_BY_USER and not any(m.pod for m in gang.members)
    is_free = gang.status.checkpoint.fixed_size is None
    return gang.spec.replicas if is_back and is_free else sizes.size_of(gang.spec, gang.status)


def _varied(gang: Gang, cause: Cause) -> str | None:
    """What this attempt does otherwise; a try that never started hands it on."""
    if cause.case is not None and cause.case.diagnosis.vary is not None:
        return cause.case.diagnosis.vary
    current = gang.status.current
    if gang.status.is_started or current is None or cause.charge == Charge.INTENT:
        return None
    return current.varied


def _blamed(cause: Cause) -> str | None:
    """The node that the restart moves the rank away from."""
    is_blamed = cause.case is not None and cause.case.diagnosis.vary == Factor.NODE
    return cause.fault.node if is_blamed and cause.fault is not None else None


def _charge(gang: Gang, cause: Cause) -> str:
    """Whose budget the coming start uses.

    A try that never started hands the charge of the fault before it on; unless the fault that
    ended the try shows a lost node elsewhere: then what was seen first was its victim.
    """
    current = gang.status.current
    if gang.status.is_started or current is None or current.charge == Charge.NONE:
        return cause.charge
    fault, first = cause.fault, current.culprit
    elsewhere = fault is not None and (first is None or first.rank != fault.rank)
    if (
        current.charge == Charge.USER
        and cause.reason in (Reason.NODE_LOST, Reason.NODE_NOT_READY)
        and elsewhere
    ):
        return Charge.INFRASTRUCTURE
    return current.charge


def next_hold(
    gang: Gang, *, reason: str, message: str, retry_seconds: float | None = None
) -> Status:
    """No attempt may run until this is left."""
    status, now = gang.status, gang.now
    since = status.held_since if status.held_since is not None else now
    hold = Hold(
        reason=str(reason),
        message=message,
        since=now,
        checked_at=now,
        retry_at=now + retry_seconds if retry_seconds is not None else None,
        generation=gang.job.generation,
    )
    return status.model_copy(update={"hold": hold, "held_since": since, "pending_suspend": None})


def next_failed(gang: Gang, *, reason: str, message: str, charge: Charge) -> Status:
    """The end without success. Absorbs everything after it."""
    status, now = gang.status, gang.now
    ended = ledger.with_end(ledger.with_record(status), at=now, by=reason)
    return ended.model_copy(
        update={
            "failures": status.failures + (1 if charge == Charge.USER else 0),
            "completion_time": now,
            "hold": None,
            "conditions": with_condition(
                status.conditions,
                kind=ConditionType.FAILED,
                status=True,
                reason=reason,
                message=message,
                generation=gang.job.generation,
                now=now,
            ),
        }
    )


def who_ended(gang: Gang) -> str:
    """Whose exit with 0 is the job's success."""
    return "rank 0" if gang.spec.rank_zero_decides else "all ranks"


def next_complete(gang: Gang) -> Status:
    """Success: the ranks that decide ended with 0 and everything they made is durable."""
    status, now = gang.status, gang.now
    ended = ledger.with_end(ledger.with_record(status), at=now, by=Reason.SUCCEEDED)
    return ended.model_copy(
        update={
            "completions": status.completions + 1,
            "completion_time": now,
            "hold": None,
            "conditions": with_condition(
                status.conditions,
                kind=ConditionType.COMPLETE,
                status=True,
                reason=Reason.SUCCEEDED,
                message=f"{who_ended(gang)} ended with exit 0 and the last save is durable",
                generation=gang.job.generation,
                now=now,
            ),
        }
    )
