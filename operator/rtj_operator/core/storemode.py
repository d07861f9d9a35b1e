"""Store mode: the operator hears no reports, so the gang agrees through the store by itself.

Recorded per attempt before anything rests on it. The operator then only counts the start, lets
the gang go, and judges it by what the kubelet says: pods, containers, exit codes and the last
words in termination messages, nodes and their Leases. Silence is no evidence there. Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.status import CurrentAttempt, Status

from rtj_operator.core import draining, starts, writers
from rtj_operator.core.gang import Gang, Member
from rtj_operator.core.lastwords import left_when_done
from rtj_operator.core.nodes import can_be_on, is_heard
from rtj_operator.core.plan import Note, Plan
from rtj_operator.core.recording import record

LOOK_SECONDS = 2.0  # while a node's next heartbeat is awaited
HOLDER_SECONDS = 10.0  # from one rank's word that all is done to rank 0's


def unheard_since(gang: Gang, member: Member) -> float | None:
    """Since when a sidecar that runs, on a node that lives, has not been heard; None where it is
    heard, or where something else may be the cause."""
    pod, node, view = member.pod, member.node, member.view
    if pod is None or pod.is_terminal or pod.deleting_since is not None:
        return None
    if pod.sidecar is None or not pod.sidecar.running or view is None or is_heard(gang, pod):
        return None
    if node is None or not node.exists or node.ready is not True:
        return None
    last = view.last_contact if view.last_contact is not None else view.polled_since
    if last is None:
        return None
    return max(last, pod.sidecar.started_at or pod.created_at)


def _has_fresh_lease(gang: Gang, member: Member, *, since: float) -> bool:
    """Its kubelet gave a sign of life after that moment; a Lease that cannot be read proves
    nothing, either way."""
    node = member.node
    return node is None or node.lease_renewed_at is None or node.lease_renewed_at > since


def mode(gang: Gang) -> Plan | None:
    """A running pod's report cannot be had for 30 s although its node lives: from here on the
    store carries what reports would. Left before a start, when all are heard again."""
    current = gang.status.current
    if current is None or gang.status.hold is not None or not can_be_on(gang):
        return None
    if gang.through_store:
        return _leave(gang, current)
    silent: list[int] = []
    for member in gang.members:
        since = unheard_since(gang, member)
        if since is None or not gang.alarm.has_passed(
            since + gang.policy.reports_unreachable_seconds
        ):
            continue
        if not _has_fresh_lease(gang, member, since=since):
            gang.alarm.has_passed(gang.now + LOOK_SECONDS)
            continue  # it fell silent together with its node
        silent.append(member.rank)
    if not silent:
        return None
    port = next((m.pod.status_port for m in gang.members if m.pod is not None), None)
    why = (
        f"the sidecars of ranks {silent[:8]} run and cannot be reached at port {port}: the gang "
        "goes on through the store, more slowly. Let the operator reach that port (NetworkPolicy, "
        "mesh, network) to end this"
    )
    status = _with(gang.status, current, through_store=True)
    note = Note(type="Warning", reason=Reason.REPORTS_UNREACHABLE, message=why)
    return record(
        gang, status, rule="store_mode", why=why, notes=(note,), evidence={"unheard": silent}
    )


def _leave(gang: Gang, current: CurrentAttempt) -> Plan | None:
    if gang.status.is_started or any(m.pod is None for m in gang.members):
        return None
    if not all(m.pod is not None and is_heard(gang, m.pod) for m in gang.members):
        return None
    why = "all sidecars are heard again: reports carry this attempt"
    return record(
        gang, _with(gang.status, current, through_store=False), rule="store_mode", why=why
    )


def _with(status: Status, current: CurrentAttempt, *, through_store: bool) -> Status:
    changed = current.model_copy(update={"through_store": through_store})
    return status.model_copy(update={"current": changed})


def let_go(gang: Gang) -> Plan | None:
    """In store mode: every pod's containers run on nodes that gave a sign of life since the
    attempt was recorded, and no older pod is being ended that may still save. The counted start,
    the point of no return; the pods choose the save."""
    status, current = gang.status, gang.status.current
    if not gang.through_store or current is None or status.is_started or status.hold is not None:
        return None
    if current.not_before is not None and not gang.alarm.has_passed(current.not_before):
        return None
    for member in gang.members:
        pod = member.pod
        if pod is None or pod.phase != "Running" or pod.deleting_since is not None or not pod.ip:
            return None
        containers = (pod.sidecar, pod.trainer)
        if not all(container is not None and container.running for container in containers):
            return None
        if not _has_fresh_lease(gang, member, since=current.recorded_at):
            gang.alarm.has_passed(gang.now + LOOK_SECONDS)
            return None
    if draining.draining_until(gang) is not None or writers.held_back(gang):
        return None
    why = "reports cannot be had: the pods choose the newest save that all can load"
    started = starts.next_start_through_store(gang, why=why)
    return record(
        gang, started, rule="let_go", why=why, evidence={"attempt": gang.attempt, "store": True}
    )


def was_complete(gang: Gang) -> bool:
    """The run's records say that this very job finished it, before anyone could tell."""
    zero = gang.rank_zero.report if gang.members else None
    if zero is None or zero.attempt != gang.attempt or not zero.run_complete:
        return False
    return zero.completed_by is not None and zero.completed_by.endswith(f"/{gang.job.uid}")


def says_complete(gang: Gang) -> bool:
    """Some rank's container ended with 0 and the words that its gang is done: it waited until the
    fence said that every rank's trainer had ended so and all of it was durable. Rank 0, which
    knows the last save's name, is given a moment to say so too."""
    ends = {m.rank: at for m in gang.members if (at := _let_go_at(gang, m)) is not None}
    if not ends:
        return False
    zero = gang.rank_zero.pod
    is_coming = zero is not None and not zero.is_terminal and zero.deleting_since is None
    return not is_coming or gang.alarm.has_passed(min(ends.values()) + HOLDER_SECONDS)


def _let_go_at(gang: Gang, member: Member) -> float | None:
    """When this rank's container ended with 0 and the word that all is done in this attempt."""
    pod = member.pod
    if pod is None or not left_when_done(pod, attempt=gang.attempt):
        return None
    end = pod.trainer.ended if pod.trainer is not None else None
    return end.finished_at if end is not None and end.finished_at is not None else gang.now
