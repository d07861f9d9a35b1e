"""A fault: what went wrong at one rank, how decisive the evidence is, and whose budget it uses.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rtj_api.reasons import Charge, Reason
from rtj_api.rules.origins import Origin
from rtj_api.rules.overrides import FailureAction

from rtj_operator.core.gang import Member

# Evidence order: smaller is more decisive where two faults bear the same time.
BY_POD, BY_NODE, BY_SIDECAR, BY_TRAINER = range(4)
MAX_ALIKE = 128


CHARGES: dict[Reason, Charge] = {
    Reason.POD_DELETED: Charge.INFRASTRUCTURE,
    Reason.POD_EVICTED: Charge.INFRASTRUCTURE,
    Reason.POD_PREEMPTED: Charge.INFRASTRUCTURE,
    Reason.POD_FAILED: Charge.INFRASTRUCTURE,
    Reason.PREEMPTED_BY_QUEUE: Charge.INFRASTRUCTURE,
    Reason.NODE_OUT_OF_MEMORY: Charge.INFRASTRUCTURE,
    Reason.NODE_LOST: Charge.INFRASTRUCTURE,
    Reason.NODE_NOT_READY: Charge.INFRASTRUCTURE,
    Reason.SIDECAR_LOST: Charge.INFRASTRUCTURE,
    Reason.DIRECTIVE_NOT_SEEN: Charge.INFRASTRUCTURE,
    Reason.CANNOT_STOP: Charge.INFRASTRUCTURE,
    Reason.DIRECTORY_UNREACHABLE: Charge.INFRASTRUCTURE,
    Reason.FENCE_TAKEN: Charge.INFRASTRUCTURE,
    Reason.PREPARE_FAILED: Charge.CHECKPOINT,
    Reason.RESTORE_FAILED: Charge.CHECKPOINT,
    Reason.PROBE_FAILED: Charge.CHECKPOINT,
    Reason.REQUIRED_KEY_MISSING: Charge.CHECKPOINT,
    Reason.PROBE_NOT_RUN: Charge.CHECKPOINT,
    Reason.CHECKPOINT_IGNORED: Charge.USER,
    Reason.EARLY_EXIT: Charge.USER,
    Reason.TRAINING_DIVERGED: Charge.USER,
    Reason.TRAINER_HUNG: Charge.USER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that went wrong at one rank. `at`: when, by the best clock known.

    `is_pod_lost`: the pod must be made anew; else the fault can be healed in place. `alike`: equal
    for faults of one kind. `origin`: where it may come from by its sign; None where Kubernetes or
    the sidecar names the cause. `against_node`: what it counts against its node; None: by its
    origin or reason.
    """

    rank: int
    reason: Reason
    charge: Charge
    at: float
    order: int
    is_pod_lost: bool
    message: str
    pod: str | None = None
    node: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    alike: str = ""
    origin: Origin | None = None
    against_node: float | None = None
    action: FailureAction | None = None  # by a rule of the user's, before anything else
    evidence: dict[str, Any] = field(default_factory=dict, hash=False)


def fault_at(
    member: Member,
    *,
    reason: Reason,
    at: float,
    order: int,
    is_pod_lost: bool,
    message: str,
    charge: Charge | None = None,
    exit_code: int | None = None,
    signal: int | None = None,
    alike: str | None = None,
    origin: Origin | None = None,
    against_node: float | None = None,
    action: FailureAction | None = None,
    evidence: dict[str, Any] | None = None,
) -> Fault:
    return Fault(
        rank=member.rank,
        reason=reason,
        charge=charge if charge is not None else CHARGES.get(reason, Charge.USER),
        at=at,
        order=order,
        is_pod_lost=is_pod_lost,
        message=f"rank {member.rank}: {message}",
        pod=member.name,
        node=member.pod.node if member.pod else None,
        exit_code=exit_code,
        signal=signal,
        alike=(alike if alike is not None else str(reason))[:MAX_ALIKE],
        origin=origin,
        against_node=against_node,
        action=action,
        evidence=evidence or {},
    )
