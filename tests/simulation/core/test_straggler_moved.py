"""A rank for which all others wait: moved once, at a durable save, and only if that may help."""

from __future__ import annotations

import pytest
from kit.scenarios import recovers, state, trains
from kit.simulated import World
from kit.simulated_operator import Operator
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType, RestartKind
from rtj_operator.core.observed import JobSpec
from rtj_operator.core.policy import Policy


def operator(*, on_slow: str = "Replace", replicas: int = 4, **spec: object) -> Operator:
    fields: dict[str, object] = {"on_slow": on_slow, **spec}
    job = JobSpec(replicas=replicas, run_id="ns/gpt", template_hash="h1", **fields)  # type: ignore[arg-type]
    op = Operator(World(spec=job, save_every=10), policy=Policy(straggler_again_seconds=300.0))
    op.world.trouble.tells_work = True
    return op


def slow_node(op: Operator, rank: int) -> str:
    """The rank's node, on which everything takes twice as long from now on."""
    node = op.world.pod_of(rank).node
    assert node is not None
    op.world.trouble.slow_nodes.add(node)
    return node


def moved(op: Operator, *, attempt: int) -> None:
    recovers(op, attempt=attempt, within=900)


def told(op: Operator, word: str) -> list[str]:
    return [line for line in op.log if "event" in line and word in line]


def test_a_slow_node_is_left_at_a_durable_save_free_of_charge() -> None:
    op = operator()
    trains(op, step=10)
    node = slow_node(op, 2)
    others = {rank: op.world.pod_of(rank).uid for rank in (0, 1, 3)}
    moved(op, attempt=2)
    now = state(op)
    assert now.current.cause == Reason.STRAGGLER_REPLACED
    assert (now.current.kind, now.current.replaced) == (RestartKind.REPLACE, [2])
    assert now.current.avoid_nodes == [node]
    assert op.world.pod_of(2).node != node
    assert {rank: op.world.pod_of(rank).uid for rank in others} == others
    assert (now.budgets.restarts_since_progress, now.failures) == (0, 0)
    begun = op.log.index(
        next(line for line in op.log if " straggler:" in line and "attempt=2" in line)
    )
    assert now.resume is not None
    assert any("after the next durable save" in line for line in op.log[:begun])
    assert now.resume.step >= 96, "three windows of steps came first"


def test_a_node_is_counted_against_only_once_the_move_has_helped() -> None:
    op = operator()
    trains(op, step=10)
    node = slow_node(op, 2)
    moved(op, attempt=2)
    assert node not in op.world.node_ledger.marks
    op.run_until(lambda: state(op).straggling.moved.helped is True, within=900)
    assert [m.reason for m in op.world.node_ledger.marks[node]] == [Reason.STRAGGLER_REPLACED]
    op.run(60)
    assert state(op).attempt == 2


def test_a_rank_that_is_slow_wherever_it_is_is_moved_once() -> None:
    op = operator()
    trains(op, step=10)
    op.world.trouble.slow_ranks.add(2)
    moved(op, attempt=2)
    op.run_until(lambda: 2 in state(op).straggling.own, within=900)
    assert state(op).straggling.moved.helped is False
    assert len(told(op, "is not moved again")) == 1
    assert op.world.node_ledger.marks == {}, "the node's blame is withdrawn"
    op.run(300)
    assert state(op).attempt == 2
    shown = state(op).condition(ConditionType.DEGRADED)
    assert (shown.status, shown.reason) == ("True", Reason.RANK_SLOW)


def test_after_a_move_that_did_not_help_another_rank_waits() -> None:
    op = operator()
    trains(op, step=10)
    op.world.trouble.slow_ranks.add(2)
    moved(op, attempt=2)
    op.run_until(lambda: 2 in state(op).straggling.own, within=900)
    at = state(op).straggling.moved.at
    op.world.trouble.slow_ranks.clear()
    slow_node(op, 1)
    moved_again = state(op).attempt + 1
    op.run_until(lambda: state(op).attempt == moved_again, within=900)
    assert state(op).straggling.moved.rank == 1
    assert state(op).straggling.moved.at - at >= op.policy.straggler_again_seconds


def test_after_a_move_that_helped_another_slow_node_is_left_at_once() -> None:
    op = operator()
    trains(op, step=10)
    slow_node(op, 2)
    moved(op, attempt=2)
    op.run_until(lambda: state(op).straggling.moved.helped is True, within=900)
    slow_node(op, 1)
    moved(op, attempt=3)
    assert state(op).straggling.moved.rank == 1


@pytest.mark.parametrize("seconds", [30, 90])
def test_slow_for_a_while_is_forgiven(seconds: float) -> None:
    op = operator()
    trains(op, step=10)
    node = slow_node(op, 2)
    op.run(seconds)
    op.world.trouble.slow_nodes.discard(node)
    op.run(150)
    assert state(op).attempt == 1
    assert state(op).straggling.slow is None


def test_by_default_it_is_only_told() -> None:
    op = operator(on_slow="Report")
    trains(op, step=10)
    slow_node(op, 2)
    op.run(150)
    assert state(op).attempt == 1
    shown = state(op).condition(ConditionType.DEGRADED)
    assert (shown.status, shown.reason) == ("True", Reason.RANK_SLOW)


def test_of_two_ranks_none_is_moved() -> None:
    op = operator(replicas=2)
    trains(op, step=10)
    slow_node(op, 1)
    op.run(150)
    assert state(op).attempt == 1
    assert state(op).straggling is None


def test_a_spare_takes_the_rank() -> None:
    op = operator(spares=1)
    trains(op, step=10)
    op.run_until(lambda: (s := state(op).spares) is not None and s.ready == 1, within=120)
    slow_node(op, 2)
    moved(op, attempt=2)
    assert state(op).current.taken_over == [2]
