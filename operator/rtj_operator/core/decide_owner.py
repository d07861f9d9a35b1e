"""Rules about whose run it is, and about beginnings that were asked for. Pure."""

from __future__ import annotations

from rtj_api.reasons import Charge, Reason
from rtj_api.wire import Report

from rtj_operator.core import attempts, steering
from rtj_operator.core.attempts import Cause
from rtj_operator.core.gang import Gang
from rtj_operator.core.plan import Note, Plan
from rtj_operator.core.recording import record


def _may_claim(gang: Gang, report: Report) -> tuple[str, bool] | None:
    """Why the run may be claimed over its last holder, and whether a person said so."""
    owner, spec = report.fence_owner, gang.spec
    if owner is None:
        return None
    if report.run_complete:
        if steering.wanted(gang) is None:
            return None
        return f"{owner} has finished the run, and another beginning was asked for", False
    person_only = report.holder is not None and report.holder.person_only
    if gang.observed.owner_lives.get(owner) is False and not person_only:
        return f"the run's last holder {owner} no longer exists", False
    if spec.take_over and spec.take_over in (owner, owner.rpartition("/")[2]):
        return f"checkpoint.takeOver names its last holder {owner}", True
    return None


def permit(gang: Gang) -> Plan | None:
    """Rank 0's sidecar found another job's fence. Where that job is seen to be gone, has finished,
    or is named in takeOver, the same attempt may claim over it, and over no other."""
    current, status = gang.status.current, gang.status
    if current is None or status.is_started or status.hold is not None or not gang.members:
        return None
    report = gang.rank_zero.report
    if report is None or report.attempt != gang.attempt or report.fence_owner is None:
        return None
    if current.may_claim:
        return None
    allowed = _may_claim(gang, report)
    if allowed is None:
        return None
    why, by_a_person = allowed
    permitted = current.model_copy(update={"may_claim": True, "claim_over": report.fence_owner})
    notes: tuple[Note, ...] = ()
    if by_a_person:
        notes = (Note(type="Warning", reason=Reason.RUN_TAKEN_OVER, message=why),)
    return record(
        gang,
        status.model_copy(update={"current": permitted}),
        rule="permit",
        why=why,
        notes=notes,
        evidence={"owner": report.fence_owner},
    )


def steer(gang: Gang) -> Plan | None:
    """checkpoint.resumeFrom has a value that this run has not begun from yet: a new attempt, in
    which rank 0's sidecar looks for it."""
    status = gang.status
    if gang.attempt == 0 or status.hold is not None or gang.job.problem is not None:
        return None
    why = steering.why_steered(gang)
    if why is None:
        return None
    cause = Cause(
        reason=Reason.BEGINNING_CHANGED, charge=Charge.INTENT, message=why, is_paced=False
    )
    note = Note(type="Normal", reason=Reason.BEGINNING_CHANGED, message=why)
    return record(gang, attempts.next_attempt(gang, cause), rule="steer", why=why, notes=(note,))
