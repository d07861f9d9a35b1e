"""Who was missing in a collective operation, by the flight recorders and watchdogs of all ranks.

The rank that ends first is the one whose watchdog lost patience: a victim. Must never blame a rank
of which nothing was recorded. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from rtj_api.reasons import Reason
from rtj_api.rules import watchdog
from rtj_api.rules.flight import Missing, missing
from rtj_api.rules.origins import Origin
from rtj_api.wire import TrainerState

from rtj_operator.core.faults import BY_TRAINER, Fault, fault_at
from rtj_operator.core.gang import Gang
from rtj_operator.core.node_ledger import LIGHT

MISMATCH, TIMEOUT = "CollectiveMismatch", "CollectiveTimeout"  # names of signatures
MISSING = "MissingInCollective"
_SIGNATURES = frozenset({MISMATCH, TIMEOUT})


def missing_rank(gang: Gang) -> Missing | None:
    """By dumps of this attempt; where no rank has any, by the last lines of those that ended."""
    reports = {
        m.rank: m.report
        for m in gang.members
        if m.report is not None and m.report.trainer.attempt == gang.attempt
    }
    dumps = {rank: [view.flight for view in r.flights] for rank, r in reports.items()}
    if any(dumps.values()):
        return missing(dumps)
    ended = {
        rank: watchdog.flights(r.trainer.tail)
        for rank, r in reports.items()
        if r.trainer.state == TrainerState.EXITED
    }
    return missing(ended)


def with_missing(gang: Gang, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """The faults with the rank that was missing first, where the first of them is the end of a rank
    that had waited for it in a collective operation."""
    first = faults[0] if faults else None
    if first is None or first.order != BY_TRAINER or first.is_pod_lost:
        return faults
    if first.action is not None or first.evidence.get("signature") not in _SIGNATURES:
        return faults
    found = missing_rank(gang)
    if found is None:
        return faults
    if found.is_mismatch:
        return (as_mismatch(first, found), *faults[1:])
    if found.rank is None or found.rank == first.rank:
        return (replace(first, message=f"{first.message}; {found.why}"), *faults[1:])
    own = next((f for f in faults if f.rank == found.rank), None)
    if own is not None and (own.is_pod_lost or own.origin is Origin.NODE):
        # What took its pod or its hardware says more than that it was missing.
        own = replace(own, message=f"{own.message}; the other ranks waited for it: {found.why}")
        return (own, *(f for f in faults if f.rank != found.rank))
    culprit = fault_at(
        gang.members[found.rank],
        reason=Reason.TRAINER_HUNG,
        at=first.at,
        order=BY_TRAINER,
        is_pod_lost=False,
        message=f"the other ranks gave up waiting for it: {found.why}. {first.message}",
        alike=f"{MISSING} rank {found.rank}",
        origin=Origin.PLACE,
        against_node=LIGHT,
        evidence={**first.evidence, "missing": found.rank, "endedFirst": first.rank},
    )
    return (culprit, *(f for f in faults if f.rank != found.rank))


def as_mismatch(fault: Fault, found: Missing) -> Fault:
    """A branch that only some ranks take: the program's, wherever it runs."""
    return replace(
        fault,
        message=f"{fault.message}; {found.why}",
        alike=MISMATCH,
        origin=Origin.PROGRAM,
        evidence={**fault.evidence, "signature": MISMATCH},
    )
