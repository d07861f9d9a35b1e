"""Which nodes an attempt's new pods keep off, how strictly, and the words for it.

Strictly those that are lost or blamed for this job's own fault; by the job's wish those that the
node ledger warns of. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from rtj_api.reasons import Reason
from rtj_api.v1alpha1 import AvoidNodes

from rtj_operator.core.faults import Fault
from rtj_operator.core.gang import Gang
from rtj_operator.core.node_ledger import Advice
from rtj_operator.core.plan import Note

_MAX_LOST = 16
_MAX_NAMED = 8


def avoided(
    gang: Gang, faults: Iterable[Fault], *, blamed: str | None, cause: Reason, is_any_new: bool
) -> list[str]:
    """Nodes found lost now, the one that is blamed, those of the tries before that never started,
    and those of the node ledger where the spec requires it.

    The scheduler believes in a silent node for up to a minute more, and the forced deletion has
    just made room on it. When no other node has room, the fault is Unschedulable and the next
    try keeps off nothing.
    """
    current = gang.status.current
    nodes = {
        f.node
        for f in faults
        if f.node is not None and f.reason in (Reason.NODE_LOST, Reason.NODE_NOT_READY)
    }
    if blamed is not None:
        nodes.add(blamed)
    before: set[str] = set()
    if current is not None and not gang.status.is_started and cause != Reason.UNSCHEDULABLE:
        before = set(current.avoid_nodes) - nodes
    kept = sorted([*sorted(nodes), *sorted(before)][:_MAX_LOST])
    if gang.spec.avoid_nodes != AvoidNodes.REQUIRED or cause == Reason.UNSCHEDULABLE:
        return kept
    if not is_any_new:
        return kept
    return [*kept, *(a.node for a in gang.observed.node_advice if a.node not in kept)]


def shunned(gang: Gang) -> tuple[Advice, ...]:
    """Nodes that new pods would rather not be placed on, by the node ledger."""
    if gang.spec.avoid_nodes != AvoidNodes.PREFERRED:
        return ()
    current = gang.status.current
    required = current.avoid_nodes if current is not None else []
    return tuple(a for a in gang.observed.node_advice if a.node not in required)


def told(gang: Gang) -> tuple[Note, ...]:
    """An event with the nodes that new pods keep off by the node ledger, and why."""
    current, wishes = gang.status.current, shunned(gang)
    required = current.avoid_nodes if current is not None else []
    named = [a for a in gang.observed.node_advice if a.node in required or a in wishes]
    if not named:
        return ()
    words = "; ".join(f"{a.node} ({a.why})" for a in named[:_MAX_NAMED])
    more = len(named) - _MAX_NAMED
    text = f"new pods keep off nodes {words}" + (f" and {more} others" if more > 0 else "")
    return (Note(type="Normal", reason=Reason.NODES_AVOIDED, message=text),)
