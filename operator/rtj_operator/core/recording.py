"""A decision as a plan: the status that records it, and what people are told once it is written.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtj_api.reasons import Reason
from rtj_api.rules.resume import Chosen
from rtj_api.status import Status

from rtj_operator.core import governor, spares, time_ledger
from rtj_operator.core import status as core_status
from rtj_operator.core.absorb import new_verdicts
from rtj_operator.core.gang import Gang, gather
from rtj_operator.core.plan import Note, Plan


def record(
    gang: Gang,
    status: Status,
    *,
    rule: str,
    why: str,
    notes: tuple[Note, ...] = (),
    evidence: Mapping[str, Any] | None = None,
) -> Plan:
    """A plan that writes `status`, with conditions and phase made to agree with it."""
    before = gang.status
    gang = gather(gang.observed, policy=gang.policy, alarm=gang.alarm, status=status)
    final = stamped(gang, core_status.finished(gang), before=before)
    notes = (*notes, *spares.told(before, final), *verdict_notes(gang))
    return Plan(rule=rule, why=why, status=final, notes=notes, evidence=evidence or {})


def stamped(gang: Gang, status: Status, *, before: Status) -> Status:
    """`status` as it is written now: with this moment, the time up to it entered in the ledger,
    and what that says of the saves' interval. `before` is the status with all that reports say,
    and without this decision."""
    now = moment_of(gang)
    spent = time_ledger.settled(before, status, now=now, created_at=gang.job.created_at)
    written = status.model_copy(update={"shown_at": now, "ledger": spent})
    return written.model_copy(update={"interval": governor.advised(gang, written)})


def moment_of(gang: Gang) -> float:
    """This moment with the precision that JSON keeps."""
    return round(gang.now * 1e6) / 1e6


def verdict_notes(gang: Gang) -> tuple[Note, ...]:
    """An event for each save found bad since the last write."""
    notes = []
    for verdict in new_verdicts(gang, told=gang.job.status.checkpoint.last_verdict_time)[-5:]:
        try:
            reason = Reason(verdict.reason)
        except ValueError:
            reason = Reason.CHECKPOINT_CORRUPT
        notes.append(Note(type="Warning", reason=reason, message=verdict.message))
    return tuple(notes)


def notes_of(chosen: Chosen) -> tuple[Note, ...]:
    """The events of a choice: each newer save that was passed over, and what is resumed."""
    notes = [
        Note(
            type="Warning",
            reason=Reason.CHECKPOINT_FALLBACK,
            message=f"passed over {p.name}"
            + (f" (step {p.step})" if p.step is not None else "")
            + f": {p.why}",
        )
        for p in chosen.passed_over[:5]
    ]
    if chosen.resume.scratch:
        kind = "Warning" if chosen.passed_over else "Normal"
        notes.append(Note(type=kind, reason=Reason.STARTED_FROM_SCRATCH, message=chosen.why))
    else:
        notes.append(Note(type="Normal", reason=Reason.RESUMED, message=chosen.why))
    return tuple(notes)
