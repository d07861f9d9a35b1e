"""The point of no return of an attempt: what it starts from.

The choice is `rules.resume`'s; here it is given what the gang reports, and its outcome is counted.
Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Charge, Reason
from rtj_api.rules import quality
from rtj_api.rules import resume as rules_resume
from rtj_api.status import (
    CurrentAttempt,
    RestartKind,
    ResumeDecision,
    Status,
)
from rtj_api.wire import Resume

from rtj_operator.core import budget, ledger, steering, suspecting, writers
from rtj_operator.core.gang import Gang
from rtj_operator.core.plan import Note


def choose_for(gang: Gang) -> rules_resume.Chosen | rules_resume.NoChoice:
    """`rules.resume.choose` on what the gang reports now; or what a person asked for instead."""
    wish = steering.wanted(gang)
    if wish is not None:
        asked = steering.choose(gang, wish)
        if not (suspecting.is_freed(wish) and _is_lost(asked)):
            return asked or rules_resume.NoChoice(Reason.PREPARING, "rank 0's sidecar looks for it")
    report = gang.rank_zero.report
    status = gang.status
    return rules_resume.choose(
        rules_resume.Facts(
            run=gang.spec.run_id,
            world_size=len(gang.members),
            candidates=report.candidates if report is not None else (),
            listed=bool(report is not None and report.listed),
            pinned=_at_hand(gang),
            shares=gang.shares,
            urls=gang.urls,
            last_durable_step=status.checkpoint.last_durable_step,
            last_durable_name=status.checkpoint.last_durable_name,
            ever_durable=status.ever_durable,
            allow_scratch=status.allow_scratch or gang.spec.scratch_if_none_valid,
            scratch_asked=status.allow_scratch,
            suspects=suspecting.why_passed_over(status, proved=False),
            bad=suspecting.why_passed_over(status, proved=True),
        )
    )


def _is_lost(asked: rules_resume.Chosen | rules_resume.NoChoice | None) -> bool:
    """It was on disks only, and went with a pod: nobody has to be asked what to take instead."""
    if not isinstance(asked, rules_resume.NoChoice):
        return False
    return asked.reason == Reason.RESUME_FROM_UNUSABLE


def _at_hand(gang: Gang) -> dict[int, frozenset[str]]:
    pinned = gang.pinned
    if not gang.spec.shared_directory:
        return pinned
    return writers.shared_pins(pinned, ranks=[m.rank for m in gang.members])


def next_start(gang: Gang, status: Status, chosen: rules_resume.Chosen, *, fast: bool) -> Status:
    """The point of no return of status.attempt: the save it starts from, and all counters."""
    now, resume, current = gang.now, chosen.resume, status.current
    if current is None:
        raise ValueError("no attempt to start")
    reached = status.progress.step
    decision = ResumeDecision(
        attempt=status.attempt,
        scratch=resume.scratch,
        run=resume.run,
        name=resume.name,
        step=resume.step,
        durable=resume.durable,
        peers=resume.peers,
        fast=fast,
        asked=resume.asked,
        suspects=[s for s in status.suspicions if s.name != resume.name],
        at=now,
        reason=chosen.why,
    )
    checkpoint = status.checkpoint
    goes_back = (resume.scratch or resume.asked is not None) or (
        resume.durable
        and resume.step is not None
        and checkpoint.last_durable_step is not None
        and resume.step < checkpoint.last_durable_step
    )
    if goes_back:
        # The recorded, explained decision by which lastDurableStep may fall.
        checkpoint = checkpoint.model_copy(
            update={"last_durable_step": resume.step, "last_durable_name": resume.name}
        )
    checkpoint = checkpoint.model_copy(update=_fitness(gang, resume))
    ever_durable = status.ever_durable
    if resume.asked is not None:
        budgets = status.budgets.model_copy(update={"progress_step": resume.step})
        status = status.model_copy(update={"budgets": budgets})
    if resume.scratch:
        checkpoint = checkpoint.model_copy(update={"last_durable_time": None})
        # A line that begins beside older saves has none of its own: they are no loss to it.
        ever_durable = ever_durable and resume.asked is None
        budgets = status.budgets.model_copy(update={"progress_step": None})
        status = status.model_copy(update={"budgets": budgets})
    stages = {"prepared_at": now, "restored_at": now if fast else None}
    report = gang.rank_zero.report
    written = next(
        (c.written_at for c in (report.candidates if report else []) if c.name == resume.name), None
    )
    started = _counted(gang, status, current, decision).model_copy(
        update={
            "checkpoint": checkpoint,
            "ever_durable": ever_durable,
            "older_writers": [],
            "current": CurrentAttempt.model_validate({**current.model_dump(), **stages}),
        }
    )
    return ledger.with_loss(
        ledger.with_record(started),
        written_at=written,
        reached=reached if _is_automatic(current) else None,
    )


def _fitness(gang: Gang, resume: Resume) -> dict[str, str | None]:
    """What status shows of the save that is resumed; nothing where none is, or it is not known."""
    report = gang.rank_zero.report
    known = [] if report is None else list(report.candidates)
    if report is not None and report.found is not None and report.found.save is not None:
        known.append(report.found.save)
    save = next((c for c in known if c.name == resume.name), None)
    if resume.scratch or save is None:
        return {
            "resume_quality": None,
            "resume_message": None,
            "resume_loss": None,
            "resume_replay": None,
        }
    fit = quality.fitness(save, world_size=len(gang.members))
    return {
        "resume_quality": fit.quality.value,
        "resume_message": fit.message or None,
        "resume_loss": None,
        "resume_replay": None,
    }


def fitness_notes(before: Status, after: Status) -> tuple[Note, ...]:
    """An event where less than everything goes on, unless the start before said the same."""
    said, now = before.checkpoint, after.checkpoint
    if now.resume_quality in (None, quality.Quality.EXACT):
        return ()
    if (said.resume_quality, said.resume_message) == (now.resume_quality, now.resume_message):
        return ()
    message = f"resume quality {now.resume_quality}: {now.resume_message}"
    return (Note(type="Warning", reason=Reason.RESUMED_PARTIALLY, message=message),)


def next_start_through_store(gang: Gang, *, why: str) -> Status:
    """The point of no return of an attempt whose save the pods choose: the fence's record names
    it. What was durable is left as it is known."""
    status, current = gang.status, gang.status.current
    if current is None:
        raise ValueError("no attempt to start")
    decision = ResumeDecision(
        attempt=status.attempt,
        run=gang.spec.run_id,
        through_store=True,
        allow_scratch=status.allow_scratch or gang.spec.scratch_if_none_valid,
        scratch_asked=status.allow_scratch,
        ever_durable=status.ever_durable,
        at=gang.now,
        reason=why,
    )
    return ledger.with_record(_counted(gang, status, current, decision))


def _is_automatic(current: CurrentAttempt) -> bool:
    return Charge(current.charge) in (Charge.USER, Charge.INFRASTRUCTURE, Charge.CHECKPOINT)


def _counted(
    gang: Gang, status: Status, current: CurrentAttempt, decision: ResumeDecision
) -> Status:
    """All counters that a start moves, in the write that records it."""
    charge = Charge(current.charge)
    budgets = budget.next_budgets_at_start(status.budgets, charge=charge, spec=gang.spec)
    if charge == Charge.USER:
        failures = status.budgets.in_place_failures
        if current.kind == RestartKind.IN_PLACE:
            failures += 1
        elif current.kind == RestartKind.RECREATE:
            failures = 0
        budgets = budgets.model_copy(update={"in_place_failures": failures})
    return status.model_copy(
        update={
            "starts": status.starts + 1,
            "restarts": status.restarts + (1 if _is_automatic(current) else 0),
            "failures": status.failures + (1 if charge == Charge.USER else 0),
            "last_start_time": gang.now,
            "resume": decision,
            "budgets": budgets,
            "allow_scratch": False,
            "held_since": None,
        }
    )
