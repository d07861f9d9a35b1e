"""The simulated world as the operator's shell would show it to `decide`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel
from rtj_api import contract
from rtj_operator.core.gangs import QUEUE_GATE
from rtj_operator.core.node_ledger import NodeFacts, advice
from rtj_operator.core.observed import (
    ContainerEnd,
    ContainerView,
    JobKey,
    JobView,
    NodeView,
    Observed,
    PodView,
    ReportView,
)

if TYPE_CHECKING:
    from kit.simulated import Node, World
    from kit.simulated_pod import Pod

M = TypeVar("M", bound=BaseModel)


def observe(world: World) -> Observed:
    if world.gone:
        return Observed(now=world.now, job=None)
    stale = [n for n in world.nodes.values() if n.exists and world.now - n.lease_at > 22]
    nodes = {
        n.name: NodeView(
            name=n.name,
            exists=n.exists,
            ready=None if n.silent_since and world.now - n.silent_since > 40 else True,
            not_ready_since=n.silent_since + 40
            if n.silent_since and world.now - n.silent_since > 40
            else None,
            lease_renewed_at=n.lease_at,
            taints=n.taints,
            tainted_at=_tainted_at(n, now=world.now),
        )
        for n in world.nodes.values()
    }
    return Observed(
        now=world.now,
        job=JobView(
            key=JobKey("ns", "gpt"),
            uid=world.job_uid,
            resource_version=str(world.job_rv),
            generation=world.generation,
            deleting=world.deleting,
            spec=world.spec,
            status=world.state,
            created_at=world.created_at,
            problem=world.problem,
            request=world.request,
        ),
        pods=tuple(_pod_view(world, p) for p in world.pods.values()),
        older_pods=tuple(world.older),
        nodes=nodes,
        reports={p.uid: _report_view(p) for p in world.pods.values() if p.ip},
        node_advice=advice(
            world.node_ledger,
            {n.name: NodeFacts(name=n.name, troubles=n.troubles) for n in world.nodes.values()},
            now=world.now,
        ),
        stale_lease_share=len(stale) / max(1, len(world.nodes)),
    )


def _tainted_at(node: Node, *, now: float) -> dict[str, float]:
    """As the shell remembers it: since the first look at which it was there."""
    node.tainted_at = {taint: node.tainted_at.get(taint, now) for taint in node.taints}
    return dict(node.tainted_at)


def shifted(said: M, *, by: float) -> M:
    """What a sidecar says whose clock is `by` seconds ahead: every moment in it is."""
    if by == 0.0:
        return said
    changed: dict[str, Any] = {}
    for name in type(said).model_fields:
        value = getattr(said, name)
        if isinstance(value, BaseModel):
            changed[name] = shifted(value, by=by)
        elif isinstance(value, float) and (name.endswith("_at") or name in ("since", "until")):
            changed[name] = value + by
    return said.model_copy(update=changed)


def _report_view(pod: Pod) -> ReportView:
    return ReportView(
        report=pod.last_report,
        received_at=pod.received_at,
        connected=pod.lost_at is None and pod.last_contact is not None,
        last_contact=pod.last_contact,
        polled_since=pod.running_since,
        disconnected_since=pod.lost_at,
    )


def _pod_view(world: World, pod: Pod) -> PodView:
    end = None
    if pod.container_exit is not None and pod.container_ended_at is not None:
        end = ContainerEnd(
            exit_code=pod.container_exit[0],
            reason=pod.container_exit[1],
            message=pod.words if pod.words_at == pod.container_ended_at else None,
            finished_at=pod.container_ended_at,
        )
    down = pod.container_down_until is not None
    running = pod.phase == "Running"
    if pod.released:
        message = pod.words if pod.passed_on and pod.words else "released"
        end = ContainerEnd(exit_code=0, reason="Completed", message=message)
    pulling = pod.phase == "Pending" and not pod.image_pullable and pod.node is not None
    trainer = ContainerView(
        name="trainer",
        running=running and not down and not pod.released,
        ended=end if down or pod.released else None,
        last_end=None if down else end,
        restarts=pod.container_restarts,
        waiting_reason="ImagePullBackOff" if pulling else None,
    )
    sidecar_end = None
    if pod.sidecar_down_until is not None:
        sidecar_end = ContainerEnd(exit_code=1, finished_at=world.now)
    sidecar = ContainerView(
        name=contract.CONTAINER_SIDECAR,
        running=pod.sidecar_up,
        started_at=pod.running_since,
        ended=sidecar_end,
        restarts=pod.sidecar_restarts,
    )
    return PodView(
        name=pod.name,
        uid=pod.uid,
        resource_version=str(pod.rv),
        rank=_labelled(pod),
        spare=pod.spare,
        made_in=pod.made_in,
        created_at=pod.created_at,
        node=pod.node,
        ip=pod.ip,
        status_port=contract.PORT_STATUS,
        phase=pod.phase,
        reason=pod.reason,
        message=pod.message,
        deleting_since=pod.deleting_since,
        deletion_deadline=pod.deadline,
        disruption=pod.disruption,
        scheduled=None
        if pod.node is None and pod.unschedulable_since is None and not pod.gated
        else (pod.node is not None),
        scheduled_since=pod.scheduled_at,
        gates=(QUEUE_GATE,) if pod.gated else (),
        group=pod.group,
        is_queued=pod.group is not None,
        is_kept_by_queue=pod.kept,
        ended_by_queue=pod.ended_by_queue,
        unschedulable_message="0/4 nodes are available" if pod.unschedulable_since else None,
        unschedulable_since=pod.unschedulable_since,
        trainer=trainer if running or pod.released or pulling else None,
        sidecar=sidecar if running else None,
        directive=pod.directive,
        told_at=pod.directive_at if pod.directive is not None else None,
        template_hash=pod.template_hash,
    )


def _labelled(pod: Pod) -> int:
    """A spare's sidecar knows its rank before or after the label says so."""
    if pod.spare is None:
        return pod.rank
    return contract.NO_RANK if pod.labelled is None else pod.labelled
