"""What of a job's troubles counts against nodes, and what new pods make of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.decisions import job_of, status_of
from kit.observations import pod_of, running, with_exit, with_pod, without_pod
from kit.scenarios import recovers, state, trains
from kit.simulated import World
from kit.simulated_operator import Operator
from rtj_api.reasons import Reason
from rtj_api.status import SlowMove, Status, Straggling
from rtj_operator.core import node_records
from rtj_operator.core.decide import decide
from rtj_operator.core.node_ledger import HEAVY, LIGHT, PLAIN, Advice, Mark, with_marks
from rtj_operator.core.node_marks import LATE_SECONDS, marks_of
from rtj_operator.core.observed import JobSpec, Observed
from rtj_operator.core.plan import CreatePod

UUID = "GPU-0a1b2c3d-0000-1111-2222-0123456789ab"


def operator(*, nodes: int = 4, **spec: Any) -> Operator:
    fields = {"replicas": 2, "run_id": "ns/gpt", "template_hash": "h1", **spec}
    world = World(spec=JobSpec(**fields))
    assert len(world.nodes) == nodes
    return Operator(world)


def after(observed: Observed) -> Status:
    return status_of(decide(observed))


def marks(observed: Observed, status: Status) -> tuple[Mark, ...]:
    return marks_of(replace(job_of(observed), status=status), now=observed.now)


def said(line: str, rank: int = 1) -> Observed:
    """That rank's trainer died with this last line."""
    return with_exit(running(), rank, exit_code=1, tail=[line])


@pytest.mark.parametrize(
    ("line", "weight", "reason", "gpu"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, fallen", HEAVY, "Xid79", "0000:3b:00"),
        (f"NVRM: Xid ({UUID}): 48, DBE", HEAVY, "Xid48", UUID),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=1", PLAIN, "Xid31", "0000:3b:00"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", PLAIN, None, None),
        ("ncclSystemError: System call failed", LIGHT, "NetworkFault", None),
        ("ValueError: bad", 0.0, None, None),
        ("No space left on device", 0.0, None, None),
    ],
)
def test_a_sign_that_points_at_a_node_counts_against_it(
    line: str, weight: float, reason: str | None, gpu: str | None
) -> None:
    seen = said(line)
    found = marks(seen, after(seen))
    if not weight:
        assert found == ()
        return
    (mark,) = found
    assert (mark.node, mark.weight, mark.gpu) == (pod_of(seen, 1).node, weight, gpu)
    assert mark.reason == (reason or "IllegalMemoryAccess")
    assert (mark.job, mark.at) == ("ns/gpt", seen.now)


@pytest.mark.parametrize(
    ("refusal", "weight"),
    [
        ("UnexpectedAdmissionError", PLAIN),
        ("OutOfnvidia.com/gpu", PLAIN),
        ("InitContainerRestartPolicyForbidden", HEAVY),
        ("NodeAffinity", 0.0),
        ("NodePorts", 0.0),
    ],
)
def test_a_pod_that_its_kubelet_refused_counts_unless_the_wish_was_at_fault(
    refusal: str, weight: float
) -> None:
    seen = with_pod(running(), 1, phase="Failed", reason=refusal, message="Pod was rejected: x")
    assert [m.weight for m in marks(seen, after(seen))] == ([weight] if weight else [])


@pytest.mark.parametrize("fields", [{"disruption": "EvictionByEvictionAPI"}, {"reason": "Evicted"}])
def test_a_disruption_counts_against_nobody(fields: dict[str, str]) -> None:
    seen = with_pod(running(), 1, phase="Failed", **fields)
    assert marks(seen, after(seen)) == ()


def test_a_pod_that_vanished_counts_against_nobody() -> None:
    seen = without_pod(running(), 1)
    assert marks(seen, after(seen)) == ()


def test_what_was_counted_an_hour_ago_is_not_counted_again() -> None:
    """Else a node that a person forgave would come back with the next operator."""
    seen = said("NVRM: Xid (PCI:0000:3b:00): 79, pid=1")
    job = replace(job_of(seen), status=after(seen))
    assert marks_of(job, now=seen.now + LATE_SECONDS - 1)
    assert marks_of(job, now=seen.now + LATE_SECONDS) == ()


@pytest.mark.parametrize(("helped", "count"), [(True, 1), (False, 0), (None, 0)])
def test_a_slow_node_counts_from_when_the_move_is_known_to_have_helped(
    helped: bool | None, count: int
) -> None:
    """Long steps take more than an hour to tell, and other attempts may come in between."""
    seen = running()
    moved = SlowMove(rank=1, node="slow", attempt=0, at=seen.now, ratio=2.0, helped=helped)
    status = job_of(seen).status
    assert status.current is not None
    old = status.current.model_copy(update={"recorded_at": seen.now - 3 * LATE_SECONDS})
    straggling = Straggling(moved=moved)
    found = marks(seen, status.model_copy(update={"current": old, "straggling": straggling}))
    assert [(m.node, m.weight, m.reason) for m in found] == [
        ("slow", PLAIN, Reason.STRAGGLER_REPLACED)
    ] * count


# --- what new pods make of it ---


def warned(op: Operator, node: str, *, weight: float = HEAVY) -> None:
    """Some job, of whatever name, had trouble there."""
    mark = Mark(id="other/3", node=node, at=op.world.now, weight=weight, reason="Xid79", job="x/y")
    op.world.node_ledger = with_marks(op.world.node_ledger, [mark], now=op.world.now)


def nodes_of(op: Operator) -> set[str | None]:
    return {pod.node for pod in op.world.pods.values()}


def test_another_jobs_pods_keep_off_a_bad_node() -> None:
    op = operator()
    warned(op, "node0")
    trains(op, step=4)
    assert nodes_of(op) == {"node1", "node2"}
    told = [n.message for plan in op.plans for n in plan.notes if n.reason == Reason.NODES_AVOIDED]
    assert told == ["new pods keep off nodes node0 (Xid79)"]


def test_without_other_room_it_serves_all_the_same() -> None:
    op = operator()
    warned(op, "node0")
    for name in ("node2", "node3"):
        op.world.nodes[name].gpus = 0
    trains(op, step=4)
    assert nodes_of(op) == {"node0", "node1"}
    assert state(op).attempt == 1, "nothing was waited for"


def test_required_keeps_off_until_there_is_no_room() -> None:
    op = operator(avoid_nodes="Required")
    warned(op, "node0")
    for name in ("node2", "node3"):
        op.world.nodes[name].gpus = 0
    op.run(80)
    assert state(op).attempt == 1
    assert state(op).current.avoid_nodes == ["node0"]
    assert nodes_of(op) == {"node1", None}
    trains(op, step=4)
    assert nodes_of(op) == {"node0", "node1"}
    assert Reason.UNSCHEDULABLE in [r.cause for r in state(op).attempts]
    assert state(op).restarts == 0


def test_never_asks_the_ledger_nothing() -> None:
    op = operator(avoid_nodes="Never")
    warned(op, "node0")
    trains(op, step=4)
    assert nodes_of(op) == {"node0", "node1"}


def test_a_light_mark_alone_keeps_nobody_off() -> None:
    op = operator()
    warned(op, "node0", weight=PLAIN)
    trains(op, step=4)
    assert nodes_of(op) == {"node0", "node1"}


def test_a_node_with_a_gpu_gone_is_left_alone_by_new_pods() -> None:
    op = operator()
    op.world.nodes["node0"].troubles = ("1 of 8 nvidia.com/gpu is gone",)
    trains(op, step=4)
    assert nodes_of(op) == {"node1", "node2"}


def test_a_node_that_was_lost_for_the_second_time_this_week_gets_no_new_pod_when_it_is_back() -> (
    None
):
    op = operator()
    trains(op, step=8)
    bad = op.world.pod_of(0).node or ""
    warned(op, bad, weight=PLAIN)
    op.world.kill_node(bad)
    recovers(op, attempt=2)
    op.world.heal_node(bad)
    op.run(60)
    assert [m.reason for m in op.world.node_ledger.marks[bad]] == ["Xid79", Reason.NODE_LOST]
    op.world.delete_pod(op.world.pod_of(1).name)
    recovers(op, attempt=3)
    assert bad not in nodes_of(op), "the scheduler would have taken it first"


def test_the_pods_of_one_pass_carry_the_wish_and_no_demand() -> None:
    op = operator()
    seen = replace(op.world.observe(), node_advice=(Advice(node="node0", score=2.0, why="Xid79"),))
    status = status_of(decide(seen))
    op.world.put_status(str(op.world.job_rv), status)
    seen = replace(op.world.observe(), node_advice=seen.node_advice)
    made = [a for a in decide(seen).actions if isinstance(a, CreatePod)]
    assert [a.shun_nodes for a in made] == [("node0",), ("node0",)]
    assert [a.avoid_nodes for a in made] == [(), ()]


@pytest.mark.parametrize("at", ["1764500000000", "1e400", "-1", '"yesterday"'])
def test_a_time_that_a_person_wrote_and_nobody_can_is_said(at: str) -> None:
    """Milliseconds, for one: what is read has to be written again."""
    good = '{"marks": [{"id": "u/2", "at": "2026-01-31T12:00:00Z", "weight": 1, "reason": "x"}]}'
    bad = good.replace('"2026-01-31T12:00:00Z"', at)
    ledger, unreadable = node_records.read({"node1": bad, "node2": good})
    assert list(unreadable) == ["node1"]
    assert "at" in unreadable["node1"] or "number" in unreadable["node1"]
    assert list(node_records.written(ledger)) == ["node2"]
