"""Rules of the ordinary way: choose, go, success, a changed template, converge, refresh. Pure."""

from __future__ import annotations

from rtj_api.reasons import Charge, Reason
from rtj_api.rules.resume import NoChoice
from rtj_api.status import CheckpointStatus, PendingTemplate
from rtj_api.wire import Report, SidecarPhase

from rtj_operator.core import (
    attempts,
    draining,
    failures,
    holds,
    kept_off,
    remedies,
    resumption,
    spares,
    starts,
    steering,
    storemode,
    successes,
    writers,
)
from rtj_operator.core import converge as core_converge
from rtj_operator.core import status as core_status
from rtj_operator.core.attempts import Cause
from rtj_operator.core.gang import Gang
from rtj_operator.core.plan import Note, Plan
from rtj_operator.core.recording import notes_of, record, stamped, verdict_notes


def success(gang: Gang) -> Plan | None:
    """Every rank, or rank 0 where success.ranks says so, ended by itself with exit 0 at or beyond
    success.targetStep, no pod was disrupted, and each sidecar says that all is durable: Complete.
    Then the pods are released."""
    status = gang.status
    if status.is_terminal or not (status.is_started or storemode.was_complete(gang)):
        return None
    if (
        not storemode.was_complete(gang)
        and not storemode.says_complete(gang)
        and (not successes.have_drained(gang) or successes.is_short(gang))
    ):
        return None
    complete = attempts.next_complete(gang)
    step = status.checkpoint.last_durable_step
    note = Note(
        type="Normal",
        reason=Reason.SUCCEEDED,
        message=f"{attempts.who_ended(gang)} ended with exit 0"
        + (f"; step {step} is durable" if step is not None else ""),
    )
    return record(
        gang,
        complete,
        rule="success",
        why=note.message,
        notes=(note,),
        evidence={"attempt": gang.attempt},
    )


def undrained(gang: Gang) -> Plan | None:
    """All trainers ended with exit 0, and for long their last save has not become durable: the
    job is held, never Complete, and the pods go on shipping it."""
    status = gang.status
    if not status.is_started or status.hold is not None:
        return None
    if not successes.have_finished(gang):
        return None
    done = successes.deciders(gang)
    ends = [t.ended_at for m in done if (t := m.ended_trainer(gang.attempt)) and t.ended_at]
    last = max(ends, default=gang.now)
    if not gang.alarm.has_passed(last + gang.policy.drain_stall_seconds):
        return None
    pending = [m for m in done if not m.has_reached(gang.attempt, SidecarPhase.DRAINED)]
    pending = pending or [gang.rank_zero]
    troubles = [p for m in pending if m.report is not None for p in holds.problems_of(m.report)]
    detail = remedies.worded(troubles[0], gang.spec) if troubles else "it is still being shipped"
    message = (
        f"training is done, but the last save of ranks {[m.rank for m in pending][:8]} is not "
        f"durable: {detail}. The pods keep it and go on trying"
    )
    held = attempts.next_hold(gang, reason=Reason.FINAL_CHECKPOINT_NOT_DURABLE, message=message)
    note = Note(type="Warning", reason=Reason.FINAL_CHECKPOINT_NOT_DURABLE, message=message)
    return record(gang, held, rule="undrained", why=message, notes=(note,))


def template_changed(gang: Gang) -> Plan | None:
    """Pods were made from an older template: made anew at the next durable checkpoint, at once
    while no rank trains, or with the next attempt for any reason."""
    status = gang.status
    if gang.attempt == 0 or status.hold is not None or gang.job.problem is not None:
        return None
    stale = [m.rank for m in gang.members if attempts.is_stale(gang, m)]
    if not stale and status.pending_template is not None:
        same = status.model_copy(update={"pending_template": None})
        return record(gang, same, rule="template_changed", why="spec.template is as it was again")
    if not stale or successes.have_finished(gang):
        return None  # a gang whose trainers are done has nothing to start again
    pending, wanted = status.pending_template, gang.spec.template_hash
    durable = status.checkpoint
    if status.is_started and any(failures.may_be_training(m) for m in gang.members):
        if pending is None or pending.hash != wanted:
            mark = PendingTemplate(
                hash=wanted,
                since=gang.now,
                durable_step=durable.last_durable_step,
                durable_name=durable.last_durable_name,
            )
            why = "spec.template changed: applied after the next durable checkpoint"
            note = Note(type="Normal", reason=Reason.TEMPLATE_CHANGED, message=why)
            return record(
                gang,
                status.model_copy(update={"pending_template": mark}),
                rule="template_changed",
                why=why,
                notes=(note,),
            )
        if not _is_newer(durable, pending):
            return None
    cause = Cause(
        reason=Reason.TEMPLATE_CHANGED,
        charge=Charge.INTENT,
        message="spec.template changed",
        recreate=True,
        is_paced=False,
    )
    note = Note(type="Normal", reason=Reason.TEMPLATE_CHANGED, message="pods are made anew")
    return record(
        gang,
        attempts.next_attempt(gang, cause),
        rule="template_changed",
        why=cause.message,
        notes=(note,),
        evidence={"stale": stale},
    )


def _is_newer(durable: CheckpointStatus, mark: PendingTemplate) -> bool:
    """Whether a save became durable since: by name, for the pods' clocks are not ours."""
    if durable.last_durable_name is None:
        return False
    if mark.durable_name is None and mark.durable_step is not None:  # of an older version
        return durable.last_durable_step != mark.durable_step
    return durable.last_durable_name != mark.durable_name


def choose(gang: Gang) -> Plan | None:
    """All ranks are prepared, and no pod of an older attempt may still write a directory that other
    nodes reach: the newest save that all can load is recorded with the counted start, the point of
    no return; or why there is none, as a hold."""
    status = gang.status
    if gang.attempt == 0 or status.is_started or status.hold is not None or gang.through_store:
        return None
    if not all(m.has_reached(gang.attempt, SidecarPhase.PREPARED) for m in gang.members):
        return None
    if any(m.pod is None or not m.pod.ip for m in gang.members):
        return None
    not_before = status.current.not_before if status.current is not None else None
    if not_before is not None and not gang.alarm.has_passed(not_before):
        return None
    if draining.draining_until(gang) is not None or writers.awaited(gang) is not None:
        return None
    zero = gang.rank_zero.report
    if zero is None:
        return None
    refusal = holds.refusal_of(gang, zero)
    if refusal is not None:
        return _hold(gang, NoChoice(*refusal), zero)
    existing = steering.existing_run(gang, zero)
    if existing is not None:
        return _hold(gang, existing, zero)
    chosen = starts.choose_for(gang)
    if isinstance(chosen, NoChoice) and chosen.reason == Reason.PREPARING:
        return None
    if isinstance(chosen, NoChoice):
        return _hold(gang, chosen, zero)
    started = starts.next_start(gang, status, chosen, fast=False)
    return record(
        gang,
        started,
        rule="choose",
        why=chosen.why,
        notes=(
            *steering.continued(gang, zero),
            *notes_of(chosen),
            *starts.fitness_notes(status, started),
        ),
        evidence={
            "resume": chosen.resume.dump(),
            "passedOver": [p.name for p in chosen.passed_over],
            "fence": zero.fence,
        },
    )


def _hold(gang: Gang, refused: NoChoice, zero: Report) -> Plan:
    reason, message = refused.reason, refused.message
    trouble = holds.store_trouble(zero) if reason == Reason.STORE_UNREACHABLE else None
    if trouble is not None:
        reason, message = (
            Reason(trouble.reason),
            f"{remedies.worded(trouble, gang.spec)}. {message}",
        )
    held = attempts.next_hold(
        gang, reason=reason, message=message, retry_seconds=holds.retry_seconds(gang, reason)
    )
    note = Note(type="Warning", reason=reason, message=message)
    was_said = gang.status.held_since is not None
    return record(
        gang,
        held,
        rule="choose",
        why=message,
        notes=() if was_said else (note,),
        evidence={"passedOver": [p.name for p in refused.passed_over]},
    )


def converge(gang: Gang) -> Plan | None:
    """The world is not as recorded: surplus pods are ended (by force on a lost node), missing
    ones are made, and each sidecar is told what to do next, all in one pass."""
    if gang.attempt == 0:
        return None
    actions = (
        core_converge.surplus_removals(gang)
        + core_converge.missing_creations(gang)
        + core_converge.directive_patches(gang)
        + spares.creations(gang)
    )
    if not actions:
        return None
    kinds: dict[str, int] = {}
    for action in actions:
        kinds[type(action).__name__] = kinds.get(type(action).__name__, 0) + 1
    return Plan(
        rule="converge",
        why=f"attempt {gang.attempt}: " + ", ".join(f"{n} {k}" for k, n in sorted(kinds.items())),
        actions=tuple(actions),
        notes=kept_off.told(gang) if "CreatePod" in kinds else (),
        evidence={"actions": kinds},
    )


def refresh(gang: Gang) -> Plan | None:
    """What status shows is old: a changed condition, a passed stage or a newly durable save at
    once, mere progress every half minute. What a recovery passes is shown once, with its first
    step, or every ten seconds of a slow one."""
    status = core_status.finished(gang)
    old = gang.job.status
    is_due, due = core_status.needs_refresh(old, status, now=gang.now, policy=gang.policy)
    if not is_due:
        if due != float("inf"):
            gang.alarm.has_passed(due)
        return None
    return Plan(
        rule="refresh",
        why="what the reports say is newer than what status shows",
        status=stamped(gang, status, before=gang.status),
        notes=(*verdict_notes(gang), *resumption.notes(old.checkpoint, status.checkpoint)),
    )
