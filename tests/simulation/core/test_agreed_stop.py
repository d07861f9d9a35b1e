"""One stop step for all ranks: kept where it can be, and no harm done where it cannot."""

from __future__ import annotations

import random

import pytest
from kit.long import seeds
from kit.scenarios import recovers, state, trains
from kit.scenarios_of_leaving import SPOT
from kit.simulated import Crash, World
from kit.simulated_operator import Operator
from rtj_api.reasons import Reason
from rtj_api.status import JobPhase
from rtj_operator.core.observed import JobSpec

EVICTED = "EvictionByEvictionAPI"


def operator(
    replicas: int = 2, *, spec: dict[str, object] | None = None, **world: object
) -> Operator:
    fields: dict[str, object] = {"obeys_stop": True, **(spec or {})}
    job = JobSpec(replicas=replicas, run_id="ns/gpt", template_hash="h1", **fields)  # type: ignore[arg-type]
    return Operator(World(spec=job, save_every=50, **world))  # type: ignore[arg-type]


def trained(op: Operator) -> int:
    """The furthest step that was ever made."""
    return max(p.trainer.step for p in op.world.pods.values() if p.trainer is not None)


def evict(op: Operator, rank: int) -> int:
    step = trained(op)
    op.world.delete_pod(op.world.pod_of(rank).name, disruption=EVICTED)
    return step


def resumed(op: Operator) -> int:
    resume = state(op).resume
    assert resume is not None
    return resume.step or 0


@pytest.mark.parametrize("rank", [0, 1])
def test_nothing_is_made_twice(rank: int) -> None:
    op = operator()
    trains(op, step=50)
    op.run(20)
    before = evict(op, rank)
    recovers(op, attempt=2)
    assert resumed(op) > before > 60
    assert state(op).attempt == 2
    assert state(op).stop is None
    assert state(op).current.cause == Reason.POD_EVICTED
    assert state(op).budgets.restarts_since_progress == 0


def test_without_the_users_word_all_is_as_ever() -> None:
    op = operator(spec={"obeys_stop": False})
    trains(op, step=50)
    op.run(20)
    evict(op, 1)
    recovers(op, attempt=2)
    assert resumed(op) == 50
    assert not any("stop" in line.split(":")[0] for line in op.log)


def test_a_trainer_that_does_not_obey_loses_what_it_would_have_lost_and_not_more() -> None:
    op = operator(spec={"trainer_grace_seconds": 10, "drain_seconds": 20}, ignores_stop=True)
    trains(op, step=50)
    op.run(20)
    evict(op, 1)
    recovers(op, attempt=2)
    assert resumed(op) == 50
    assert any(f"Warning {Reason.STOP_MISSED}" in line for line in op.log), "\n".join(op.log[-20:])
    assert state(op).restarts == 1
    assert state(op).budgets.restarts_since_progress == 0


def test_no_time_for_it_is_said_and_the_restart_is_at_once() -> None:
    op = operator(spec={"trainer_grace_seconds": 5, "drain_seconds": 5})
    trains(op, step=50)
    op.run(20)
    evict(op, 1)
    at = op.world.now
    op.run_until(lambda: state(op).attempt == 2, within=2)
    assert op.world.now - at <= 1
    assert any(f"Warning {Reason.LAST_SAVE_COUNTS}" in line for line in op.log)
    recovers(op, attempt=2)
    assert resumed(op) == 50


def test_an_ending_pod_that_cannot_be_told_stops_nobody() -> None:
    op = operator(deaf_to_stop=frozenset({1}))
    trains(op, step=50)
    op.run(20)
    evict(op, 1)
    zero = op.world.pod_of(0)
    op.run_until(lambda: state(op).attempt == 2, within=10)
    assert zero.trainer is not None
    assert zero.trainer.stop is None, "rank 0 would have ended alone"
    recovers(op, attempt=2)
    assert resumed(op) == 50


def test_a_rank_that_is_not_heard_makes_no_agreement() -> None:
    op = operator(3)
    trains(op, step=50)
    op.run(20)
    op.world.deaf_ranks = frozenset({2})
    op.run(12)
    evict(op, 1)
    op.run_until(lambda: state(op).attempt == 2, within=10)
    assert any("rank 2 cannot be reached now" in line for line in op.log)
    op.world.deaf_ranks = frozenset()
    recovers(op, attempt=2)


@pytest.mark.parametrize("after", [0.25, 2, 5, 7.25, 8])
def test_a_second_pod_that_goes_meanwhile(after: float) -> None:
    op = operator(3)
    trains(op, step=50)
    op.run(20)
    before = evict(op, 1)
    op.run(after)
    if 2 in {p.rank for p in op.world.pods.values() if p.deleting_since is None}:
        op.world.delete_pod(op.world.pod_of(2).name, disruption=EVICTED)
    recovers(op, attempt=2)
    op.run(60)
    assert state(op).phase == JobPhase.RUNNING
    assert min(r.step or 0 for r in [state(op).resume] if r is not None) > before
    assert state(op).restarts <= 2


@pytest.mark.parametrize("after", [0.25, 1, 4, 7, 8])
def test_a_crash_meanwhile_is_an_ordinary_crash(after: float) -> None:
    op = operator(3)
    trains(op, step=50)
    op.run(20)
    evict(op, 1)
    op.run(after)
    op.world.kill_trainer(2, code=1)
    recovers(op, attempt=2)
    op.run(60)
    assert state(op).phase == JobPhase.RUNNING
    assert state(op).restarts <= 2


def test_the_end_of_the_training_just_then_is_its_end() -> None:
    op = operator()
    trains(op, step=50)
    op.world.total_steps = trained(op) + 4
    evict(op, 1)
    op.run_until(lambda: state(op).phase == JobPhase.SUCCEEDED, within=120)
    assert resumed(op) == op.world.total_steps, "the next attempt ends at once"


def test_a_node_that_tolerates_its_own_notice_moves_its_pod_once() -> None:
    op = operator()
    trains(op, step=50)
    op.run(20)
    node = op.world.pod_of(1).node or ""
    op.world.nodes[node].taints = (SPOT.replace("NoSchedule", "PreferNoSchedule"),)
    for other in list(op.world.nodes.values()):
        if other.name not in {p.node for p in op.world.pods.values()}:
            del op.world.nodes[other.name]
    op.world.hint = True
    recovers(op, attempt=2)
    op.run(120)
    assert state(op).attempt == 2


def test_ranks_that_tolerate_the_notices_of_their_nodes_are_moved_once_each() -> None:
    """With a memory of one node only they would be moved by turns."""
    op = operator(3)
    trains(op, step=50)
    op.run(20)
    notice = ("aws-node-termination-handler/spot-itn:PreferNoSchedule",)
    noticed = [op.world.pod_of(rank).node or "" for rank in (1, 2)]
    for other in list(op.world.nodes.values()):
        if other.name not in {p.node for p in op.world.pods.values()}:
            del op.world.nodes[other.name]
    for name in noticed:
        op.world.nodes[name].taints = notice
    op.world.hint = True
    recovers(op, attempt=2)
    op.run(200)
    assert state(op).attempt == 2
    assert [one.node for one in state(op).left_nodes] == sorted(noticed)
    op.world.nodes[noticed[0]].taints = ()
    op.world.hint = True
    op.run(5)
    op.world.nodes[noticed[0]].taints = notice
    op.world.hint = True
    recovers(op, attempt=3)  # a notice of its own
    op.run(200)
    assert state(op).attempt == 3


def test_a_suspend_that_is_taken_back_goes_on_from_the_stop_step() -> None:
    op = operator(spec={"suspend_wait_seconds": 60})
    trains(op, step=50)
    op.run(20)
    op.world.change_spec(suspend=True)
    op.run(1)
    op.world.change_spec(suspend=False)
    recovers(op, attempt=2)
    op.run(20)
    assert resumed(op) > 70
    assert state(op).restarts == 0
    assert state(op).phase == JobPhase.RUNNING


@pytest.mark.parametrize("seed", seeds(10, many=24))
def test_in_any_weather_it_goes_on_and_no_save_is_lost(seed: int) -> None:
    """Evictions, notices, suspends, crashes of trainers and of the operator, at any moments."""
    draw = random.Random(seed)
    op = operator(3, spec={"suspend_wait_seconds": 20, "drain_seconds": draw.choice([5, 60, 300])})
    op.world.save_every = draw.choice([4, 20, 50])
    op.world.ignores_stop = draw.random() < 0.2
    trains(op, step=op.world.save_every)
    durable = 0
    for _ in range(8):
        what = draw.choice(["evict", "evict", "evict two", "notice", "suspend", "crash", "dies"])
        living = [p for p in op.world.pods.values() if p.phase == "Running"]
        if living and what.startswith("evict"):
            for pod in draw.sample(living, min(len(living), 2 if "two" in what else 1)):
                op.world.delete_pod(pod.name, disruption=EVICTED)
        elif living and what == "notice":
            name = draw.choice(living).node or ""
            op.world.nodes[name].taints = (SPOT,)
        elif what == "suspend":
            op.world.change_spec(suspend=not op.world.spec.suspend)
        elif what == "crash" and living:
            running = [p for p in living if p.trainer is not None]
            if running:
                running[0].trainer.end(now=op.world.now, code=draw.choice([1, -11]))
                running[0].change()
        elif what == "dies":
            left = draw.randrange(4)

            def gate(write: str) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    op.world.gate = lambda _: None
                    raise Crash(write)

            op.world.gate = gate
        op.world.hint = True
        op.run(draw.choice([0.5, 3, 8, 40]))
        for node in op.world.nodes.values():
            node.taints = ()
        newest = op.world.store.newest()
        assert newest is None or newest.step >= durable
        durable = newest.step if newest is not None else durable
    op.world.gate = lambda _: None
    if op.world.spec.suspend:
        op.world.change_spec(suspend=False)
    op.world.ignores_stop = False
    mark = durable
    op.run_until(lambda: (state(op).checkpoint.last_durable_step or 0) > mark + 50, within=1500)
    assert state(op).phase == JobPhase.RUNNING, "\n".join(op.log[-40:])
