"""When a node is given up: three signs together, and never when the API server is to blame."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.observations import later, pod_of, running, with_view
from rtj_api.reasons import Reason
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import CreatePod, DeletePod


def silent(
    seconds: float = 25.0,
    *,
    connected: bool = False,
    lease_age: float = 25.0,
    stepped_ago: float | None = None,
    **node: Any,
) -> Observed:
    """Rank 1's node, `seconds` after its last sign, with one sign or another taken back."""
    seen = running()
    since = seen.now
    name = pod_of(seen, 1).node
    assert name is not None
    now = since + seconds
    seen = with_view(
        seen,
        1,
        connected=connected,
        last_contact=now if connected else since,
        disconnected_since=None if connected else since + 5,
    )
    seen = with_view(seen, 0, last_contact=now)
    if stepped_ago is not None:
        zero = seen.reports[pod_of(seen, 0).uid]
        assert zero.report is not None
        moved = zero.report.progress.model_copy(update={"updated_at": now - stepped_ago})
        report = zero.report.model_copy(update={"progress": moved})
        seen = with_view(seen, 0, report=report)
    lease = {"lease_renewed_at": now - lease_age}
    nodes = {**seen.nodes, name: replace(seen.nodes[name], **lease, **node)}
    return replace(later(seen, seconds), nodes=nodes)


def cause(observed: Observed) -> str | None:
    plan = decide(observed)
    if plan.rule != "fault" or plan.status is None or plan.status.current is None:
        return None
    return plan.status.current.cause


def test_silent_in_all_three_ways_is_lost() -> None:
    assert cause(silent()) == Reason.NODE_LOST


ONE_SIGN_MISSING: dict[str, dict[str, Any]] = {
    "the report connection lives": {"connected": True},
    "the Lease is renewed": {"lease_age": 3.0},
    "the gang still makes steps": {"stepped_ago": 0.5},
    "most Leases are stale": {},
}


@pytest.mark.parametrize("name", ONE_SIGN_MISSING)
def test_one_sign_missing_is_not_lost(name: str) -> None:
    observed = silent(**ONE_SIGN_MISSING[name])
    if name == "most Leases are stale":
        observed = replace(observed, stale_lease_share=0.6)
    assert cause(observed) is None
    assert decide(observed).wake_at is not None


def test_not_ready_and_not_heard_is_lost() -> None:
    observed = silent(lease_age=3.0, ready=None, not_ready_since=1030.0)
    assert cause(observed) == Reason.NODE_NOT_READY


def test_not_ready_and_still_heard_is_not_lost() -> None:
    observed = silent(connected=True, ready=False, not_ready_since=1030.0)
    assert cause(observed) is None


def test_a_node_that_is_gone_is_lost_at_once() -> None:
    assert cause(silent(1.0, connected=True, lease_age=1.0, exists=False)) == Reason.NODE_LOST


def test_out_of_service_is_proof() -> None:
    taint = ("node.kubernetes.io/out-of-service:NoExecute",)
    assert cause(silent(1.0, connected=True, lease_age=1.0, taints=taint)) == Reason.NODE_LOST


def test_the_dead_pod_is_forced_away_in_the_pass_that_makes_its_replacement() -> None:
    observed = silent()
    plan = decide(observed)
    assert plan.status is not None
    assert plan.status.current is not None
    node = pod_of(observed, 1).node
    assert plan.status.current.avoid_nodes == [node]
    assert observed.job is not None
    job = replace(observed.job, status=plan.status, resource_version="99")
    actions = decide(replace(observed, job=job)).actions
    deletes = [a for a in actions if isinstance(a, DeletePod)]
    creates = [a for a in actions if isinstance(a, CreatePod)]
    assert [(d.name, d.uid, d.force) for d in deletes] == [
        (pod_of(observed, 1).name, pod_of(observed, 1).uid, True)
    ]
    assert [(c.rank, c.made_in, c.avoid_nodes) for c in creates] == [(1, 2, (node,))]


def test_of_many_lost_nodes_the_newest_are_kept_off_whatever_their_names() -> None:
    """Tries that never start hand their lost nodes on; the list is bounded."""
    observed = silent(1.0, exists=False)
    assert observed.job is not None
    node = pod_of(observed, 1).node
    assert node is not None
    status = observed.job.status
    assert status.current is not None
    earlier = [f"a{number:02}" for number in range(20)]
    tried = status.current.model_copy(update={"avoid_nodes": earlier})
    waiting = status.model_copy(update={"current": tried, "resume": None})
    job = replace(observed.job, status=waiting)
    plan = decide(replace(observed, job=job))
    assert plan.status is not None
    assert plan.status.current is not None
    assert plan.status.current.attempt == waiting.attempt + 1
    assert node in plan.status.current.avoid_nodes
    assert len(plan.status.current.avoid_nodes) == 16
