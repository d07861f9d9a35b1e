"""The one fault path: classify, name one culprit, record a new attempt or the end. Pure."""

from __future__ import annotations

from dataclasses import replace

from rtj_api.reasons import Charge, Reason
from rtj_api.rules.blame import End
from rtj_api.rules.resume import Chosen
from rtj_api.status import RestartKind

from rtj_operator.core import (
    attempts,
    bisecting,
    budget,
    diagnosing,
    failures,
    fast_path,
    flights,
    hangs,
    holds,
    placement,
    resumption,
    stages,
    starts,
    successes,
    suspecting,
)
from rtj_operator.core.attempts import Cause
from rtj_operator.core.diagnosing import Case
from rtj_operator.core.faults import BY_SIDECAR, Fault
from rtj_operator.core.gang import Gang
from rtj_operator.core.leaving import is_heard_too_early
from rtj_operator.core.plan import Note, Plan
from rtj_operator.core.recording import notes_of, record


def _all_faults(gang: Gang) -> tuple[Fault, ...]:
    """Losses and ends, then missed deadlines; one a rank, the earliest first."""
    found = {f.rank: f for f in failures.all_faults(gang)}
    for member in gang.members:
        if member.rank not in found:
            overdue = stages.overdue_of(gang, member)
            if overdue is not None:
                found[member.rank] = overdue
    if not found and (hung := hangs.hung(gang)) is not None:
        found[hung.rank] = hung
    if not found:
        waiting = placement.overdue(gang)
        if waiting is not None:
            found[waiting.rank] = waiting
    ordered = sorted(found.values(), key=lambda f: (f.at, f.order, f.rank))
    return flights.with_missing(gang, tuple(ordered))


def _suspects(gang: Gang, first: Fault) -> list[int]:
    """Ranks that fell silent before the fault and whose nodes may yet prove lost."""
    silent = []
    for member in gang.members:
        view = member.view
        if member.rank == first.rank or view is None or view.connected or member.pod is None:
            continue
        if view.last_contact is not None and view.last_contact <= first.at:
            silent.append(member.rank)
    return silent


def fault(gang: Gang) -> Plan | None:
    """Something was lost, ended or missed its deadline: the earliest is the culprit, the rest are
    its victims and count nothing. In place if pods and nodes are well, only lost ranks anew if
    not, all anew after two in-place restarts without progress. Where it comes again alike, one
    factor is changed a restart: the node, or the save, which is suspect then. Failed when the
    budget is spent, and early when it follows the step or the program; held when an older save
    failed alike, so that no save is to blame."""
    if gang.attempt == 0 or gang.status.hold is not None:
        return None
    faults = successes.counted(gang, _all_faults(gang))
    short = successes.short_of_target(gang) if gang.status.is_started and not faults else None
    faults = faults if short is None else (short,)
    first = faults[0] if faults else None
    early = failures.early_exit(gang, first) if gang.status.is_started else None
    if early is not None:
        first = early
        faults = (early, *(f for f in faults if f.rank != early.rank))
    if first is None:
        return None
    unexplained = [f for f in faults if is_heard_too_early(gang, gang.members[f.rank])]
    if unexplained:
        return Plan(rule="fault", why=f"{unexplained[0].message}; the API server may say why")
    is_before = _is_before_any_trainer(gang, first)
    if first.reason in (holds.HOLDING if is_before else holds.ENDING):
        if first.rank == 0 and not gang.status.is_started and holds.is_answered(gang):
            return None
        return _hold(gang, first)
    if _is_refused_for_good(gang, first) or resumption.is_held_for(gang, first):
        return _hold(gang, first)
    tried = bisecting.failed(gang, first, faults)
    if tried is not None:
        return tried
    case = diagnosing.case_of(gang, first)
    faults = (case.fault, *(f for f in faults if f.rank != first.rank))
    is_own = case.fault.charge == Charge.USER and gang.status.is_started
    is_spent = is_own and budget.is_spent(gang.status.budgets, spec=gang.spec)
    if not is_spent and case.ends is None:
        return _restart(gang, case, faults)
    silent = _suspects(gang, first)
    if silent and not gang.alarm.has_passed(first.at + 2 * gang.policy.lease_stale_seconds):
        return Plan(
            rule="fault",
            why=f"{first.message}; ranks {silent} fell silent before: their nodes are judged "
            "before the job's last restart is charged",
        )
    if case.ends is End.HOLD:
        return suspecting.hold(gang, case)
    return _fail(gang, case)


def _is_before_any_trainer(gang: Gang, first: Fault) -> bool:
    """Where the pods choose by themselves, a sidecar may give up after the counted start."""
    resume = gang.status.resume
    if not gang.status.is_started or resume is None:
        return True
    report = gang.members[first.rank].report
    has_trained = report is not None and report.trainer.attempt == gang.attempt
    return resume.through_store and first.order == BY_SIDECAR and not has_trained


def _is_refused_for_good(gang: Gang, first: Fault) -> bool:
    """The restored save was refused, and no older one may be tried: this one was asked for by name,
    or the pods, which choose by themselves, have found that the probe is to blame."""
    if first.reason not in (Reason.PROBE_FAILED, Reason.REQUIRED_KEY_MISSING):
        return False
    resume = gang.status.resume
    was_asked = gang.status.is_started and resume is not None and resume.asked is not None
    return was_asked or first.evidence.get("retrying") is False


def _hold(gang: Gang, first: Fault) -> Plan:
    reason, message = first.reason, first.message
    zero = gang.rank_zero.report
    refusal = holds.refusal_of(gang, zero) if first.rank == 0 and zero is not None else None
    if refusal is not None:
        reason, message = refusal
    held = attempts.next_hold(
        gang, reason=reason, message=message, retry_seconds=holds.retry_seconds(gang, reason)
    )
    # Said when it was first held, and not at each look.
    note = Note(type="Warning", reason=reason, message=message)
    notes = (note,) if gang.status.held_since is None else ()
    return record(gang, held, rule="fault", why=message, notes=notes, evidence=first.evidence)


def _fail(gang: Gang, case: Case) -> Plan:
    first = case.fault
    if case.ends is End.FAIL:
        reason, what = Reason.DETERMINISTIC_FAILURE, first.message
    else:
        reason = Reason.RESTART_BUDGET_SPENT
        what = (
            f"{gang.status.budgets.restarts_since_progress} restarts without a newly durable step "
            f"(recovery.maxRestarts {gang.spec.max_restarts}); the last fault: {first.message}"
        )
    message = (
        f"{what}. Its saves are safe: fix the cause and apply the job anew, it goes on from the "
        "newest one"
    )
    failed = attempts.next_failed(gang, reason=reason, message=message, charge=first.charge)
    budgets = diagnosing.with_case(failed.budgets, case)
    failed = failed.model_copy(update={"budgets": budgets})
    note = Note(type="Warning", reason=reason, message=message)
    return record(gang, failed, rule="fault", why=message, notes=(note,), evidence=first.evidence)


def _may_find_more(gang: Gang, first: Fault) -> bool:
    """The sidecar of the culprit is about to find what its trainer saved last: a moment's wait,
    counted from when the end was heard, can save an interval's work."""
    member = gang.members[first.rank]
    view, report = member.view, member.report
    if first.is_pod_lost or view is None or report is None or not report.settling:
        return False
    heard_at = view.received_at if view.received_at is not None else gang.now
    return not gang.alarm.has_passed(heard_at + gang.policy.settle_seconds)


def _restart(gang: Gang, case: Case, faults: tuple[Fault, ...]) -> Plan:
    first, budgets = case.fault, gang.status.budgets
    tired = (
        case.diagnosis.vary is None
        and first.charge == Charge.USER
        and gang.status.is_started
        and budgets.in_place_failures >= gang.policy.in_place_limit
    )
    cause = Cause(
        reason=first.reason,
        charge=first.charge,
        message=first.message,
        fault=first,
        recreate=tired or first.reason == Reason.PLACEMENT_TIMEOUT,
        case=case,
    )
    seen = suspecting.without_suspicion(gang) if case.diagnosis.withdrawn else gang
    status = attempts.next_attempt(seen, cause, faults)
    if gang.status.is_started and _may_find_more(gang, first):
        return Plan(
            rule="fault",
            why=f"{first.message}; its sidecar looks for what the trainer saved last",
        )
    suspicions = {"suspicions": status.suspicions}
    seen = replace(seen, status=seen.status.model_copy(update=suspicions))
    seen = fast_path.as_it_starts(seen, status)
    chosen = starts.choose_for(seen) if gang.status.is_started else None
    slow = fast_path.why_not_fast(gang, status, chosen) if gang.status.is_started else "not started"
    if slow is None and isinstance(chosen, Chosen):
        status = starts.next_start(gang, status, chosen, fast=True)
    current = status.current
    kind = current.kind if current is not None else RestartKind.RECREATE
    victims = [f.rank for f in faults if f.rank != first.rank]
    note = Note(
        type="Warning",
        reason=first.reason,
        message=f"{first.message}. Attempt {status.attempt}: {kind}"
        + (f", ranks {current.replaced} anew" if current is not None and current.replaced else ""),
    )
    notes: tuple[Note, ...] = (note, *suspecting.cleared(gang.status, status))
    if slow is None and isinstance(chosen, Chosen):
        notes = (*notes, *notes_of(chosen), *starts.fitness_notes(gang.status, status))
    return record(
        gang,
        status,
        rule="fault",
        why=first.message,
        notes=notes,
        evidence={
            **first.evidence,
            "culprit": first.rank,
            "victims": victims,
            "kind": str(kind),
            "alike": first.alike,
            "varied": current.varied if current is not None else None,
            "fast": slow is None,
            "notFast": slow,
        },
    )
