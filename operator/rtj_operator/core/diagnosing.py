"""Who is to blame for a gang's fault, and what the restart does about it.

Gathers what `rules.blame` asks for from the gang, and turns its answer into the fault as it is
recorded: its charge, whether the rank needs another node, which save is passed over. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rtj_api.reasons import Charge, Reason
from rtj_api.rules.blame import EVICTED, Diagnosis, End, Factor, by_rule, diagnose, doubted
from rtj_api.rules.origins import MOST_BELIEVED, Origin
from rtj_api.status import MAX_INCIDENTS, MAX_SUSPICIONS, Budgets, Incident, Status, Suspicion
from rtj_api.wire import Candidate

from rtj_operator.core import resumption
from rtj_operator.core.faults import Fault
from rtj_operator.core.gang import Gang

# Of these Kubernetes names no cause outside of the job: its own doing may bring each about.
DOUBTFUL = frozenset(
    {
        Reason.POD_FAILED,
        Reason.SIDECAR_LOST,
        Reason.DIRECTIVE_NOT_SEEN,
        Reason.CANNOT_STOP,
        Reason.DIRECTORY_UNREACHABLE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fault with what was found out about it. `incident` None: nothing worth remembering."""

    fault: Fault
    incident: Incident | None = None
    diagnosis: Diagnosis

    @property
    def ends(self) -> End | None:
        return self.diagnosis.end

    @property
    def is_believed(self) -> bool:
        """Its restart is free by nothing but a sign's word, or by our own."""
        fault = self.fault
        is_free = self.diagnosis.charge in (Charge.INFRASTRUCTURE, Charge.CHECKPOINT)
        is_ours = fault.origin is not None or fault.reason in DOUBTFUL
        return self.incident is not None and is_free and is_ours and fault.action is None


def step_of_attempt(gang: Gang, *, is_sure: bool = False) -> int | None:
    """The last step that any rank is known to have made in this attempt; `is_sure`: by more than
    a number in its log."""
    steps = [
        m.report.progress.step
        for m in gang.members
        if m.report is not None
        and m.report.trainer.attempt == gang.attempt
        and m.report.progress.step is not None
        and m.report.progress.first_step_at is not None
        and (m.report.progress.is_sure or not is_sure)
    ]
    return max(steps, default=None)


def _ran_seconds(gang: Gang, fault: Fault) -> float | None:
    trainer = gang.members[fault.rank].ended_trainer(gang.attempt)
    if trainer is None or trainer.started_at is None or trainer.ended_at is None:
        return None
    return max(0.0, trainer.ended_at - trainer.started_at)


def incident_of(gang: Gang, fault: Fault) -> Incident:
    """The fault as it is remembered and compared with others."""
    status, is_started = gang.status, gang.status.is_started
    resume = status.resume if is_started else None
    current = status.current
    return Incident(
        attempt=gang.attempt,
        alike=fault.alike,
        charge=fault.charge,
        started=is_started,
        node=fault.node,
        save=resume.name if resume is not None else None,
        from_step=resume.step if resume is not None else None,
        step=step_of_attempt(gang) if is_started else None,
        ran_seconds=_ran_seconds(gang, fault),
        varied=current.varied if current is not None else None,
        at=min(fault.at, gang.now),
    )


def case_of(gang: Gang, fault: Fault) -> Case:
    """The diagnosis of the first fault of an attempt."""
    is_eviction = fault.alike.startswith(f"{EVICTED} for ")
    if not gang.status.is_started and not is_eviction:
        return Case(fault=fault, diagnosis=Diagnosis(charge=fault.charge))
    incident = incident_of(gang, fault)
    is_told = is_eviction or fault.action is not None
    if not is_told and (fault.origin is None or gang.through_store):
        # Without reports nobody knows how far it came, so nothing can be compared.
        return _untested(gang, fault, incident)
    found = (
        by_rule(incident, fault.action, can_roll_back=_has_older(gang))
        if fault.action is not None
        else _with_evidence(gang, fault, _diagnosed(gang, fault, incident))
    )
    judged = replace(
        fault,
        charge=found.charge,
        is_pod_lost=fault.is_pod_lost or found.vary == Factor.NODE,
        message=f"{fault.message}. {found.why}" if found.why else fault.message,
    )
    known = incident.model_copy(update={"charge": str(found.charge)})
    return Case(fault=judged, incident=known, diagnosis=found)


def _untested(gang: Gang, fault: Fault, incident: Incident) -> Case:
    """Nothing is tried to find out who is to blame; but not for ever free of charge."""
    believed, found = gang.status.budgets.believed, Diagnosis(charge=fault.charge)
    is_free = fault.charge == Charge.INFRASTRUCTURE and fault.reason in DOUBTFUL
    if is_free and believed >= MOST_BELIEVED:
        found = doubted(believed)
        fault = replace(fault, charge=found.charge, message=f"{fault.message}. {found.why}")
        incident = incident.model_copy(update={"charge": str(found.charge)})
    return Case(fault=fault, incident=incident, diagnosis=found)


def _diagnosed(gang: Gang, fault: Fault, incident: Incident) -> Diagnosis:
    return diagnose(
        incident,
        origin=fault.origin or Origin.PASSING,
        before=gang.status.budgets.incidents,
        can_roll_back=_has_older(gang),
        believed=gang.status.budgets.believed,
    )


def _with_evidence(gang: Gang, fault: Fault, found: Diagnosis) -> Diagnosis:
    """A training that was seen to go wrong speaks against a save without a second try."""
    told = resumption.suspect_of(gang, fault)
    if told is None or found.end is not None or found.vary is not None:
        return found
    name, why = told
    if not _is_older_than(gang, name):
        return found
    return replace(found, vary=Factor.SAVE, suspect=name, why=f"{why}; the one before it is tried")


def _has_older(gang: Gang) -> bool:
    """A save before the one in use could be resumed instead."""
    resume = gang.status.resume
    return resume is not None and resume.name is not None and _is_older_than(gang, resume.name)


def _is_older_than(gang: Gang, name: str) -> bool:
    """Whether a save before that one could be resumed."""
    zero = gang.rank_zero.report
    names = [c.name for c in zero.candidates] if zero is not None else []
    if zero is None or name not in names:
        return False
    return any(may_serve(c) for c in zero.candidates[names.index(name) + 1 :])


def may_serve(candidate: Candidate) -> bool:
    """It is durable, whole as far as is known, and holds more than weights."""
    return candidate.durable and candidate.invalid is None and candidate.full_state is not False


def with_case(budgets: Budgets, case: Case) -> Budgets:
    """Remembered with those before it; the oldest are forgotten, but not that they were free."""
    if case.incident is None:
        return budgets
    return budgets.model_copy(
        update={
            "incidents": [*budgets.incidents, case.incident][-MAX_INCIDENTS:],
            "believed": budgets.believed + (1 if case.is_believed else 0),
        }
    )


def next_suspicions(status: Status, case: Case) -> list[Suspicion]:
    """With the save that this fault makes suspect, or without any."""
    found, incident = case.diagnosis, case.incident
    if found.withdrawn:
        return [s for s in status.suspicions if s.is_proved]
    if found.suspect is None or incident is None:
        return list(status.suspicions)
    new = Suspicion(
        name=found.suspect,
        past_step=incident.step,
        attempt=incident.attempt,
        alike=incident.alike,
    )
    kept = [s for s in status.suspicions if s.name != new.name]
    return [*kept, new][-MAX_SUSPICIONS:]
