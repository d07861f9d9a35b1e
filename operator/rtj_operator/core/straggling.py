"""A rank that all others wait for is moved to another node, where the policy says so.

`rules.straggler` says who is slow. A rank is moved only after several windows of steps throughout
which it was slow, at a durable save, and as a trial: only a rank that is fast elsewhere speaks
against the node that it left. One that is slow there as well is slow by itself, and is not moved
again. Must never move a second rank before the first move is known to have helped, or for hours.
Pure.
"""

from __future__ import annotations

from typing import Any

from rtj_api.reasons import Charge, Reason
from rtj_api.rules.blame import Diagnosis, Factor
from rtj_api.rules.straggler import SLOW_STEPS, slowness, stragglers
from rtj_api.status import SlowMove, SlowRank, Straggling

from rtj_operator.core import attempts, slow_ranks, successes
from rtj_operator.core.attempts import Cause
from rtj_operator.core.conditions import is_training
from rtj_operator.core.diagnosing import Case
from rtj_operator.core.faults import BY_POD, fault_at
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.plan import Note, Plan
from rtj_operator.core.recording import moment_of, record

REPLACE = "Replace"  # a value of recovery.straggler.onSlow
_MOST_OWN = 64


def straggler(gang: Gang) -> Plan | None:
    """With recovery.straggler.onSlow: Replace, a rank that was slow for three windows of steps gets
    a new pod on another node after the next durable save. If it is as slow there, the node was not
    to blame and the rank is not moved again; a further rank is moved once the last move has helped,
    or hours later."""
    if not _may_act(gang):
        return None
    known, told = _known(gang), slow_ranks.step_seconds(gang)
    slow = known.slow
    now_slow = stragglers(told, known=(slow.rank,) if slow is not None else ())
    helped = _helped(gang, known, told=told, now_slow=now_slow)
    if helped is not None:
        return helped
    if slow is not None and slow.rank in told and slow.rank not in now_slow:
        why = f"rank {slow.rank} is not slow any more"
        return _recorded(gang, known, {"slow": None}, why=why)
    if slow is None:
        return _first_seen(gang, known, told=told, now_slow=now_slow)
    if slow.rank not in told or not _is_long(gang, slow.rank, step=slow.step, at=slow.since):
        return None
    return _convicted(gang, known, slow, told=told)


def _may_act(gang: Gang) -> bool:
    """All trainers run, and no other change of the gang is under way."""
    status = gang.status
    is_changing = (
        status.hold is not None
        or status.asked_stop is not None
        or status.pending_template is not None
        or status.pending_suspend is not None
        or status.bisection is not None
    )
    return (
        gang.spec.on_slow == REPLACE
        and not is_changing
        and not gang.through_store
        and is_training(gang)
        and all(m.pod is not None and not m.is_ending for m in gang.members)
        and not successes.have_finished(gang)
    )


def _known(gang: Gang) -> Straggling:
    """What is remembered and still means something: a changed spec may have changed the ranks'
    work, and a rank is followed within one attempt."""
    found = gang.status.straggling or Straggling(generation=gang.job.generation)
    if found.generation != gang.job.generation:
        found = Straggling(moved=found.moved, generation=gang.job.generation)
    if found.slow is not None and found.slow.attempt != gang.attempt:
        found = found.model_copy(update={"slow": None})
    return found


def _is_long(gang: Gang, rank: int, *, step: int, at: float) -> bool:
    """Three windows of its steps, and a minute, lie after that step and moment."""
    report = gang.members[rank].report
    made = report.progress.step if report is not None else None
    if made is None or made - step < SLOW_STEPS:
        return False
    return gang.alarm.has_passed(at + gang.policy.straggler_seconds)


def _node_of(member: Member) -> str | None:
    return member.pod.node if member.pod is not None else None


def _first_seen(
    gang: Gang, known: Straggling, *, told: dict[int, float], now_slow: tuple[int, ...]
) -> Plan | None:
    ranks = [rank for rank in now_slow if rank not in known.own]
    if not ranks:
        return None
    rank = max(ranks, key=lambda r: (slowness(told, r), -r))
    report = gang.members[rank].report
    if report is None or report.progress.step is None:
        return None
    slow = SlowRank(
        rank=rank, attempt=gang.attempt, since=moment_of(gang), step=report.progress.step
    )
    why = f"rank {rank} is slow: it is watched for {SLOW_STEPS} steps"
    return _recorded(gang, known, {"slow": slow}, why=why)


def _convicted(
    gang: Gang, known: Straggling, slow: SlowRank, *, told: dict[int, float]
) -> Plan | None:
    """It was slow all the while: the rank is so by itself, has to wait, or is moved."""
    moved, node = known.moved, _node_of(gang.members[slow.rank])
    text = (
        f"rank {slow.rank} on {node} takes {slowness(told, slow.rank):.1f} times as long for its "
        f"own part of a step as the ranks' median, for {SLOW_STEPS} steps or more"
    )
    is_trial = moved is not None and moved.helped is None and moved.rank == slow.rank
    if moved is not None and is_trial and node != moved.node:
        return _withdrawn(gang, known, moved, text=text)
    if moved is not None and moved.helped is not True:
        again_at = moved.at + gang.policy.straggler_again_seconds
        if not gang.alarm.has_passed(again_at):
            return None
    durable = gang.status.checkpoint.last_durable_name
    if not slow.is_due:
        due = slow.model_copy(update={"is_due": True, "durable_name": durable})
        why = f"{text}: its pod is moved to another node after the next durable save"
        note = Note(type="Warning", reason=Reason.RANK_SLOW, message=why)
        return _recorded(gang, known, {"slow": due}, why=why, notes=(note,))
    if durable is None or durable == slow.durable_name:
        return None
    return _moved(gang, known, slow, text=text)


def _moved(gang: Gang, known: Straggling, slow: SlowRank, *, text: str) -> Plan:
    member = gang.members[slow.rank]
    fault = fault_at(
        member,
        reason=Reason.STRAGGLER_REPLACED,
        at=gang.now,
        order=BY_POD,
        is_pod_lost=True,
        message="all others waited for it",
        against_node=0.0,  # only once the rank is fast elsewhere
    )
    diagnosis = Diagnosis(charge=Charge.INFRASTRUCTURE, vary=Factor.NODE)
    cause = Cause(
        reason=fault.reason,
        charge=diagnosis.charge,
        message=f"{text}: its pod is made anew on another node",
        fault=fault,
        is_paced=False,
        case=Case(fault=fault, diagnosis=diagnosis),
    )
    status = attempts.next_attempt(gang, cause, (fault,))
    move = SlowMove(
        rank=slow.rank,
        node=_node_of(member),
        attempt=status.attempt,
        at=moment_of(gang),
        ratio=round(slowness(slow_ranks.step_seconds(gang), slow.rank), 2),
    )
    kept = known.model_copy(update={"slow": None, "moved": move})
    note = Note(type="Normal", reason=fault.reason, message=cause.message)
    return record(
        gang,
        status.model_copy(update={"straggling": kept}),
        rule="straggler",
        why=cause.message,
        notes=(note,),
        evidence={"rank": slow.rank, "node": move.node, "ratio": move.ratio},
    )


def _withdrawn(gang: Gang, known: Straggling, moved: SlowMove, *, text: str) -> Plan:
    why = (
        f"{text}, as it was on {moved.node}: the rank is slow and not its node, which is not "
        "blamed any more. Look at this rank's share of the work and its data; it is not moved again"
    )
    changes: dict[str, Any] = {
        "slow": None,
        "own": sorted({*known.own, moved.rank})[-_MOST_OWN:],
        "moved": moved.model_copy(update={"helped": False}),
    }
    note = Note(type="Warning", reason=Reason.RANK_SLOW, message=why)
    return _recorded(gang, known, changes, why=why, notes=(note,))


def _helped(
    gang: Gang, known: Straggling, *, told: dict[int, float], now_slow: tuple[int, ...]
) -> Plan | None:
    """The rank that was moved is as fast as the others: the node that it left was to blame."""
    moved = known.moved
    if moved is None or moved.helped is not None or moved.rank >= len(gang.members):
        return None
    member, resume = gang.members[moved.rank], gang.status.resume
    node, current = _node_of(member), gang.status.current
    is_there = member.made_in == moved.attempt and node is not None and node != moved.node
    if not is_there or moved.rank not in told or moved.rank in now_slow:
        return None
    begun = current.first_step_at if current is not None else None
    step = resume.step or 0 if resume is not None else 0
    if begun is None or not _is_long(gang, moved.rank, step=step, at=begun):
        return None
    why = f"rank {moved.rank} is as fast as the others on {node}: {moved.node} was to blame"
    note = Note(type="Normal", reason=Reason.STRAGGLER_REPLACED, message=why)
    # The node's mark counts from now on: `node_marks`.
    proved = moved.model_copy(update={"helped": True, "at": moment_of(gang)})
    return _recorded(gang, known, {"moved": proved}, why=why, notes=(note,))


def _recorded(
    gang: Gang,
    known: Straggling,
    changes: dict[str, Any],
    *,
    why: str,
    notes: tuple[Note, ...] = (),
) -> Plan:
    kept = known.model_copy(update=changes)
    written = gang.status.model_copy(update={"straggling": kept})
    return record(gang, written, rule="straggler", why=why, notes=notes)
