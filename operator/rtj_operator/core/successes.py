"""Whose exit with 0 makes a job complete, and what it must have reached.

Pure. Must never count a step that no save, progress file or confirmed log line has shown.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.wire import SidecarPhase

from rtj_operator.core.failures import finished_ranks
from rtj_operator.core.faults import BY_TRAINER, Fault, fault_at
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.undurable import open_saves


def deciders(gang: Gang) -> tuple[Member, ...]:
    """The ranks whose trainers have to end with 0."""
    return gang.members[:1] if gang.spec.rank_zero_decides else gang.members


def have_finished(gang: Gang) -> bool:
    """Each of them ended by itself with exit 0 in this attempt."""
    done = {m.rank for m in finished_ranks(gang)}
    return bool(gang.members) and all(m.rank in done for m in deciders(gang))


def have_drained(gang: Gang) -> bool:
    """… and everything that they made is durable; none of their pods was disrupted."""
    if not have_finished(gang):
        return False
    if open_saves(gang):
        return False  # named by rank 0's sidecar, whose own part of it is done
    return all(
        m.pod is not None
        and m.pod.disruption is None
        and m.has_reached(gang.attempt, SidecarPhase.DRAINED)
        for m in deciders(gang)
    )


def counted(gang: Gang, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Without what other trainers end with once rank 0's, which alone decides, is done."""
    if not gang.spec.rank_zero_decides or not have_finished(gang):
        return faults
    return tuple(f for f in faults if f.rank == 0 or f.order != BY_TRAINER or f.is_pod_lost)


def reached_step(gang: Gang) -> int | None:
    """The furthest step that is durable, or that a trainer of this attempt surely made."""
    steps = [
        m.report.progress.step
        for m in gang.members
        if m.report is not None
        and m.report.trainer.attempt == gang.attempt
        and m.report.progress.is_sure
    ]
    known = [s for s in (*steps, gang.status.checkpoint.last_durable_step) if s is not None]
    return max(known, default=None)


def is_short(gang: Gang) -> bool:
    """success.targetStep was not reached."""
    target = gang.spec.target_step
    return target is not None and (reached_step(gang) or 0) < target


def short_of_target(gang: Gang) -> Fault | None:
    """All is done and durable, and success.targetStep was not reached: no success, but a reason to
    go on from the newest save. In store mode rank 0's sidecar says so."""
    if gang.through_store or not is_short(gang) or not have_drained(gang):
        return None
    reached, target = reached_step(gang), gang.spec.target_step
    seen = f"step {reached}" if reached is not None else "no step that is known"
    ends = [
        t.ended_at
        for m in deciders(gang)
        if (t := m.ended_trainer(gang.attempt)) is not None and t.ended_at is not None
    ]
    return fault_at(
        gang.rank_zero,
        reason=Reason.TARGET_STEP_NOT_REACHED,
        at=max(ends, default=gang.now),
        order=BY_TRAINER,
        is_pod_lost=False,
        message=f"exit 0 at {seen}, before success.targetStep {target}",
        exit_code=0,
        evidence={"reached": reached, "target": target},
    )
