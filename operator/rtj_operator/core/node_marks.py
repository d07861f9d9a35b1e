"""Which faults count against the node where they happened, and how much.

Written into the culprit of the attempt that a fault brings about (a slow node: into the move that
has helped), so that what is counted is what was recorded: an operator that dies before the node
ledger is written counts it when it is back.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from rtj_api.reasons import Reason
from rtj_api.rules.origins import Origin
from rtj_api.status import Culprit

from rtj_operator.core.faults import Fault
from rtj_operator.core.node_ledger import HEAVY, LIGHT, MAX_TEXT, PLAIN, Mark
from rtj_operator.core.observed import JobView

LATE_SECONDS = 3600.0
"""An older fault is not counted any more: it was, or a person has since forgiven the node."""

BY_ORIGIN: Mapping[Origin, float] = {
    Origin.NODE: HEAVY,  # the sign itself names the hardware
    Origin.PLACE: PLAIN,  # the program first, the GPU if it comes again there
    Origin.NETWORK: LIGHT,
}
BY_REASON: Mapping[Reason, float] = {
    Reason.NODE_LOST: PLAIN,
    Reason.NODE_NOT_READY: PLAIN,
    Reason.CANNOT_STOP: PLAIN,
    Reason.SIDECAR_LOST: LIGHT,
    Reason.DIRECTIVE_NOT_SEEN: LIGHT,
}


def weight_of(fault: Fault, *, is_node_tried: bool = False) -> float:
    """What the fault counts against its node; 0: nothing. `is_node_tried`: the restart moves the
    rank, to see whether the node is to blame."""
    if fault.node is None:
        return 0.0
    if fault.against_node is not None:
        return fault.against_node
    if fault.origin is not None and fault.origin in BY_ORIGIN:
        return BY_ORIGIN[fault.origin]
    return BY_REASON.get(fault.reason, LIGHT if is_node_tried else 0.0)


def marks_of(job: JobView, *, now: float) -> tuple[Mark, ...]:
    """The marks that a job's status shows: each attempt's cause is one at most."""
    status, current = job.status, job.status.current
    found = {
        r.attempt: _mark(job, r.attempt, r.culprit, cause=r.cause, at=r.recorded_at)
        for r in status.attempts
    }
    if current is not None:
        found[current.attempt] = _mark(
            job, current.attempt, current.culprit, cause=current.cause, at=current.recorded_at
        )
    moved = status.straggling.moved if status.straggling is not None else None
    if moved is not None and moved.helped and moved.node is not None:
        # The attempt may be long over, for its steps had to tell: it counts from then on.
        found[moved.attempt] = Mark(
            id=f"{job.uid}/{moved.attempt}"[:MAX_TEXT],
            node=moved.node,
            at=moved.at,
            weight=PLAIN,
            reason=Reason.STRAGGLER_REPLACED,
            job=str(job.key),
        )
    return tuple(m for m in found.values() if m is not None and now - m.at < LATE_SECONDS)


def _mark(
    job: JobView, attempt: int, culprit: Culprit | None, *, cause: str, at: float
) -> Mark | None:
    if culprit is None or culprit.node is None or not culprit.against_node:
        return None
    return Mark(
        id=f"{job.uid}/{attempt}"[:MAX_TEXT],
        node=culprit.node,
        at=at,
        weight=culprit.against_node,
        reason=culprit.signature or cause,
        job=str(job.key),
        gpu=culprit.gpu,
    )
