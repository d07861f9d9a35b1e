"""What went wrong in the gang, and which of it came first.

Asks the judges rank by rank; of all faults the earliest is the culprit, the rest are victims. Also
what is no fault of one rank: some done while others cannot go on. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.wire import TrainerState

from rtj_operator.core.faults import BY_TRAINER, Fault, fault_at
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.judges import JUDGES


def fault_of(gang: Gang, member: Member) -> Fault | None:
    """The most decisive fault of one rank."""
    for judge in JUDGES:
        fault = judge(gang, member)
        if fault is not None:
            return fault
    return None


def all_faults(gang: Gang) -> tuple[Fault, ...]:
    """One fault a rank at most, the earliest first."""
    found = [fault for m in gang.members if (fault := fault_of(gang, m)) is not None]
    return tuple(sorted(found, key=lambda f: (f.at, f.order, f.rank)))


def finished_ranks(gang: Gang) -> tuple[Member, ...]:
    """Ranks whose trainer of this attempt ended by itself with exit 0."""
    return tuple(
        m
        for m in gang.members
        if (t := m.ended_trainer(gang.attempt)) is not None
        and t.exit_code == 0
        and t.signal is None
        and not t.asked_to_stop
        and not t.container_restarted
        and (m.report is None or m.report.stop_step is None)
    )


def early_exit(gang: Gang, first: Fault | None) -> Fault | None:
    """Some ranks ended with 0 and the others cannot go on: they failed, or made no step for long.

    While the others still train, they may just be finishing: nothing is wrong yet. Never where
    rank 0 alone decides.
    """
    done = finished_ranks(gang)
    if not done or len(done) == len(gang.members) or gang.spec.rank_zero_decides:
        return None
    ends = {m.rank: t.ended_at or gang.now for m in done if (t := m.ended_trainer(gang.attempt))}
    rank = min(ends, key=lambda r: (ends[r], r))
    member = gang.members[rank]
    others = len(gang.members) - len(done)
    if first is not None:
        if first.order != BY_TRAINER or first.is_pod_lost or first.at < ends[rank]:
            return None
        text = f"exit 0 while {others} other ranks still trained; then {first.message}"
    else:
        latest = max(
            [ends[rank]]
            + [
                m.report.progress.updated_at
                for m in gang.members
                if m.report is not None and m.report.progress.updated_at is not None
            ]
        )
        if not gang.alarm.has_passed(latest + gang.policy.early_exit_seconds):
            return None
        text = (
            f"exit 0, and the {others} other ranks made no step for "
            f"{gang.policy.early_exit_seconds:.0f} s after it"
        )
    return fault_at(
        member,
        reason=Reason.EARLY_EXIT,
        at=ends[rank],
        order=BY_TRAINER,
        is_pod_lost=False,
        message=text,
        exit_code=0,
        evidence={"finished": sorted(ends), "worldSize": len(gang.members)},
    )


def may_be_training(member: Member) -> bool:
    """A trainer may run in this pod, by what is known."""
    if member.pod is None or member.pod.is_terminal:
        return False
    if member.report is None:
        return member.pod.trainer is not None and member.pod.trainer.running
    return member.report.trainer.state == TrainerState.RUNNING
