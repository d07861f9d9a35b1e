"""Spares: which are wanted, which could take a rank now, and who takes which.

A spare is a pod without a rank. It takes one by a decision in status (`standIns`), written before
anything is done about it; its pod's name never changes, so which pod plays which rank is a function
of status alone, and one rank is never played by two. A spare that was told of a rank is that
rank's for as long as it lives. Spares are made only while the whole gang trains, and give way where
one of its own pods finds no place. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rtj_api.reasons import Reason
from rtj_api.status import SpareStatus, StandIn, Status
from rtj_api.wire import StandbyView

from rtj_operator.core import kept_off, pending, rejections, sizes
from rtj_operator.core.failures import finished_ranks
from rtj_operator.core.gang import Gang, newest_report, spare_name
from rtj_operator.core.leaving import notice_of
from rtj_operator.core.nodes import is_heard, judge_node
from rtj_operator.core.observed import PodView
from rtj_operator.core.plan import Action, CreateSpare, Note


def _standby(gang: Gang, pod: PodView) -> StandbyView | None:
    """What it says of itself; None where it was not heard, or is no spare any more."""
    report = newest_report(gang.observed, pod)
    return report.standby if report is not None and report.attempt == 0 else None


def _is_stale(gang: Gang, pod: PodView) -> bool:
    return pod.template_hash != gang.spec.template_hash


def why_not_ready(gang: Gang, pod: PodView) -> str | None:
    """What stands against its taking a rank at once; None: nothing."""
    if pod.is_terminal or pod.deleting_since is not None or pod.disruption is not None:
        return "it is ending"
    if judge_node(gang, pod) is not None:
        return f"its node {pod.node} is lost"
    node = gang.observed.nodes.get(pod.node) if pod.node is not None else None
    if node is not None and notice_of(node) is not None:
        return f"its node {pod.node} was given notice"
    stuck = pending.why(gang, pod)
    if stuck is not None:
        return stuck[1]
    has_begun = pod.trainer is not None and pod.trainer.running and pod.ip is not None
    if not has_begun or pod.sidecar is None or not pod.sidecar.running:
        return "its containers are being started"
    report = newest_report(gang.observed, pod)
    if not is_heard(gang, pod) or report is None:
        return "its sidecar is not heard"
    if _standby(gang, pod) is None:
        return "its sidecar does not say that it waits: spec.sidecar.image is of an older version"
    if report.terminating or not report.supervisor_seen:
        return "its supervisor is not there"
    return "spec.template changed since it was made" if _is_stale(gang, pod) else None


def taken(gang: Gang, ranks: Sequence[int], *, avoid: Collection[str]) -> tuple[StandIn, ...]:
    """Who takes which of the lost ranks. Those with the newest save at hand first; a rank for
    which none is left gets a new pod."""
    if gang.through_store:
        return ()
    newest = gang.status.checkpoint.last_durable_name

    def order(pod: PodView) -> tuple[bool, bool, str]:
        waits = _standby(gang, pod)
        name = waits.name if waits is not None else None
        return name is None or name != newest, name is None, pod.name

    ready = [p for p in gang.spares if p.node not in avoid and why_not_ready(gang, p) is None]
    return tuple(
        StandIn(rank=rank, spare=pod.spare or 0, made_in=pod.made_in)
        for rank, pod in zip(sorted(ranks), sorted(ready, key=order), strict=False)
    )


# --- which are there -----------------------------------------------------------------------------


def _are_for_nobody(gang: Gang) -> bool:
    """No attempt will want one: the job is over or was told to stop, or its pods are given up."""
    status, hold = gang.status, gang.status.hold
    if status.is_terminal or gang.spec.suspend:
        return True
    if hold is None:
        return False
    if hold.reason in (Reason.SUSPENDED, Reason.FINAL_CHECKPOINT_NOT_DURABLE):
        return True
    since = status.held_since if status.held_since is not None else hold.since
    return gang.alarm.has_passed(since + gang.policy.hold_keep_seconds)


def _are_in_the_way(gang: Gang) -> bool:
    """A pod of the gang itself finds no node, or no quota."""
    if gang.status.is_started or gang.status.hold is not None:
        return False
    return any(
        member.name in gang.observed.rejections
        if member.pod is None
        else member.pod.scheduled is False
        for member in gang.members
    )


def _is_over(gang: Gang, pod: PodView) -> bool:
    """It ended by itself or was evicted; kept for a while, for it would only end again."""
    again = pod.created_at + gang.policy.spare_again_seconds
    return pod.is_terminal and gang.alarm.has_passed(again)


def unwanted(gang: Gang) -> tuple[PodView, ...]:
    """Spares that are to go."""
    if _are_for_nobody(gang) or _are_in_the_way(gang):
        return gang.spares
    known: set[int] = set()
    gone, wanted = [], sizes.spares_wanted(gang)
    for pod in gang.spares:
        report = newest_report(gang.observed, pod)
        has_played = report is not None and report.attempt > 0
        if (
            pod.spare is None
            or pod.spare >= wanted
            or pod.spare in known
            or has_played
            or _is_stale(gang, pod)
            or _is_over(gang, pod)
            or pod.deleting_since is not None
            or judge_node(gang, pod) is not None
        ):
            gone.append(pod)
        else:
            known.add(pod.spare)
    return tuple(gone)


def _may_be_made(gang: Gang) -> bool:
    """The whole gang trains, as the spec has it, and goes on training."""
    status, current = gang.status, gang.status.current
    if _are_for_nobody(gang) or gang.through_store or gang.job.problem is not None:
        return False
    if not status.is_started or status.hold is not None or current is None:
        return False
    if current.training_at is None or status.pending_suspend or status.pending_template:
        return False
    hashes = {m.pod.template_hash if m.pod is not None else None for m in gang.members}
    return hashes == {gang.spec.template_hash} and not finished_ranks(gang)


def creations(gang: Gang) -> list[Action]:
    """Spares that are not there yet."""
    wanted = sizes.spares_wanted(gang)
    if not wanted or not _may_be_made(gang):
        return []
    there = {pod.spare for pod in gang.spares}
    names = {pod.name for pod in gang.observed.pods}
    # Only a wish: a spare may wait for as long as it takes, and nodes come back meanwhile.
    lost = gang.status.current.avoid_nodes if gang.status.current is not None else []
    shunned = dict.fromkeys([*lost, *(a.node for a in kept_off.shunned(gang))])
    actions: list[Action] = []
    for spare in range(wanted):
        name = spare_name(gang.job, spare=spare, made_in=gang.attempt)
        if spare in there or name in names:
            continue
        refused = gang.observed.rejections.get(name)
        wait = gang.policy.create_retry_seconds
        if refused is not None and not gang.alarm.has_passed(refused.at + wait):
            continue
        actions.append(
            CreateSpare(spare=spare, made_in=gang.attempt, name=name, shun_nodes=tuple(shunned))
        )
    return actions


# --- what is told --------------------------------------------------------------------------------


def shown(gang: Gang) -> SpareStatus | None:
    """For status: how many wait, and why not all that are wanted."""
    wanted = sizes.spares_wanted(gang)
    if not wanted or gang.status.is_terminal:
        return None
    found = {pod.name: why_not_ready(gang, pod) for pod in gang.spares}
    ready = sum(why is None for why in found.values())
    return SpareStatus(
        wanted=wanted, ready=ready, message=None if ready >= wanted else _why_fewer(gang, found)
    )


def _why_fewer(gang: Gang, found: dict[str, str | None]) -> str:
    told = next((f"{name}: {why}" for name, why in found.items() if why is not None), None)
    if told is not None:
        return told
    for spare in range(sizes.spares_wanted(gang)):
        refused = gang.observed.rejections.get(
            spare_name(gang.job, spare=spare, made_in=gang.attempt)
        )
        if refused is not None:
            return f"the API server refused its pod: {rejections.worded(refused.message)}"
    return "made when the whole gang trains"


def told(before: Status, after: Status) -> tuple[Note, ...]:
    """An event for the ranks that spares take with this decision."""
    current = after.current
    if current is None or after.attempt == before.attempt or not current.taken_over:
        return ()
    taken_now = {s.rank: s for s in after.stand_ins if s.rank in current.taken_over}
    words = ", ".join(f"spare {s.spare} rank {rank}" for rank, s in sorted(taken_now.items()))
    text = f"attempt {after.attempt}: {words}"
    return (Note(type="Normal", reason=Reason.SPARE_TOOK_OVER, message=text),)
