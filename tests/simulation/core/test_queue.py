"""A gang in Kueue's queue under random preemptions, faults and crashes: then quiet, and it trains.

Beside the laws of the world: Kueue never finds a pod one too many, nothing is kept by its finalizer
for good, and what others take from the gang is never charged to the job.
"""

from __future__ import annotations

import random

import pytest
from kit.long import seeds
from kit.scenarios import state
from kit.simulated import Crash, World
from kit.simulated_operator import Operator
from kit.simulated_queue import Queue
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType, JobPhase, RestartKind
from rtj_operator.core.observed import JobSpec

SEEDS = seeds(6, many=12)
KINDS = ("preempt", "preempt", "delete", "evict", "trainer", "node", "suspend", "template", "fail")


def queued_world(*, quota: int = 2, **spec: object) -> World:
    fields = {"replicas": 2, "run_id": "ns/gpt", "template_hash": "h1", **spec}
    job = JobSpec(gang_scheduler="kueue", queue="team-a", **fields)  # type: ignore[arg-type]
    return World(spec=job, queue=Queue(quota=quota))


def is_training(op: Operator) -> bool:
    return state(op).phase == JobPhase.RUNNING and state(op).is_true(ConditionType.RUNNING)


def queue_of(world: World) -> Queue:
    assert world.queue is not None
    return world.queue


def test_a_gang_is_let_go_as_a_whole_and_trains() -> None:
    op = Operator(queued_world(quota=1))
    op.run(700)
    assert (state(op).attempt, state(op).starts) == (1, 0)
    assert all(pod.gated for pod in op.world.pods.values())
    condition = state(op).condition(ConditionType.RUNNING)
    assert condition is not None
    assert condition.reason == Reason.QUEUED
    queue_of(op.world).quota = 2
    op.run_until(lambda: is_training(op), within=60)
    ledger = state(op).ledger
    assert ledger is not None
    assert ledger.seconds.queue > 650


def test_a_preempted_gang_goes_on_from_its_save_when_there_is_room_again() -> None:
    op = Operator(queued_world())
    op.run_until(lambda: (state(op).checkpoint.last_durable_step or 0) >= 8, within=120)
    saved = state(op).checkpoint.last_durable_step
    queue_of(op.world).preempt(others=2)
    op.run_until(lambda: state(op).attempt == 2, within=20)
    op.run(900)
    current = state(op).current
    assert current is not None
    assert (state(op).attempt, current.cause) == (2, Reason.PREEMPTED_BY_QUEUE)
    assert queue_of(op.world).admitted == {}
    assert {pod.made_in for pod in op.world.pods.values()} == {2}, "the old ones are gone"
    queue_of(op.world).others = 0
    op.run_until(lambda: is_training(op), within=60)
    resume = state(op).resume
    assert resume is not None
    assert (resume.step or 0) >= (saved or 0)
    assert state(op).budgets.restarts_since_progress == 0
    assert len(queue_of(op.world).admitted) == 1


@pytest.mark.parametrize("hurt", ["delete", "node"])
def test_a_lost_rank_joins_the_group_again(hurt: str) -> None:
    op = Operator(queued_world())
    op.run_until(lambda: (state(op).checkpoint.last_durable_step or 0) >= 4, within=120)
    pod = op.world.pod_of(1)
    before = dict(queue_of(op.world).admitted)
    if hurt == "delete":
        op.world.delete_pod(pod.name)
    else:
        op.world.kill_node(pod.node or "")
    op.run_until(lambda: state(op).starts == 2 and is_training(op), within=200)
    current = state(op).current
    assert current is not None
    assert (current.kind, current.replaced) == (RestartKind.REPLACE, [1])
    assert queue_of(op.world).admitted == before, "one reservation, never given back"
    assert not [p for p in op.world.pods.values() if p.deleting_since is not None]


def test_suspended_in_the_queue_or_at_work_it_keeps_nothing() -> None:
    for quota in (1, 2):
        op = Operator(queued_world(quota=quota))
        op.run(40)
        op.world.change_spec(suspend=True)
        op.run_until(lambda op=op: state(op).phase == JobPhase.SUSPENDED, within=400)
        op.run(5)
        assert op.world.pods == {}
        assert queue_of(op.world).admitted == {}


def settled(op: Operator, *, saved: int) -> None:
    """Room again: it trains in one group, from what was saved, and nothing was charged to it."""
    queue_of(op.world).others = 0
    op.run_until(lambda: is_training(op), within=900)
    op.run(60)
    resume = state(op).resume
    assert resume is not None
    assert (resume.step or 0) >= saved
    assert state(op).budgets.restarts_since_progress == 0
    groups = {pod.group for pod in op.world.pods.values()}
    assert list(queue_of(op.world).admitted) == [*groups]
    assert not [p for p in op.world.pods.values() if p.deleting_since is not None]


def saved_some() -> tuple[Operator, int]:
    op = Operator(queued_world())
    op.run_until(lambda: (state(op).checkpoint.last_durable_step or 0) >= 8, within=120)
    return op, state(op).checkpoint.last_durable_step or 0


@pytest.mark.parametrize("after", [0.0, 0.25, 0.5, 1.0, 2.0, 5.0])
def test_put_out_while_the_gang_prepares(after: float) -> None:
    """The next attempt is recorded and has not started: nothing trains, nothing is counted."""
    op, saved = saved_some()
    op.world.delete_pod(op.world.pod_of(1).name)
    op.run_until(lambda: state(op).attempt == 2 and not state(op).is_started, within=30)
    op.run(after)
    queue_of(op.world).preempt(others=2)
    op.world.hint = True
    op.run(60)
    assert queue_of(op.world).admitted == {}
    assert not is_training(op)
    settled(op, saved=saved)


@pytest.mark.parametrize("after", [0.0, 1.0, 20.0, 45.0, 120.0])
@pytest.mark.parametrize("first", ["node", "queue"])
def test_a_node_is_lost_beside_a_preemption(first: str, after: float) -> None:
    op, saved = saved_some()
    node = op.world.pod_of(1).node or ""
    acts = [lambda: op.world.kill_node(node), lambda: queue_of(op.world).preempt(others=2)]
    for act in acts if first == "node" else reversed(acts):
        act()
        op.world.hint = True
        op.run(after)
    op.run(120)
    settled(op, saved=saved)
    assert is_training(op)


@pytest.mark.parametrize("write", range(8))
@pytest.mark.parametrize("dies", [False, True])
def test_admission_is_withdrawn_between_a_decision_and_its_effect(write: int, dies: bool) -> None:
    """Just before the n-th write of a replacement the queue puts the gang out; the operator may
    die there, too."""
    op, saved = saved_some()
    op.world.delete_pod(op.world.pod_of(1).name)
    left = write

    def gate(what: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            op.world.gate = lambda _: None
            queue_of(op.world).preempt(others=2)
            if dies:
                raise Crash(what)

    op.world.gate = gate
    op.run(200)
    assert left < 0
    settled(op, saved=saved)


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"active_deadline_seconds": 60.0}, Reason.DEADLINE_EXCEEDED),
        ({"start_deadline_seconds": 60.0}, Reason.START_DEADLINE_EXCEEDED),
    ],
)
def test_a_deadline_counts_in_the_queue_and_leaves_nothing_there(
    limit: dict[str, float], reason: Reason
) -> None:
    op = Operator(queued_world(quota=1, **limit))
    op.run_until(lambda: state(op).phase == JobPhase.FAILED, within=90)
    failed = state(op).condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.reason == reason
    op.run(30)
    assert op.world.pods == {}
    queue_of(op.world).quota = 2
    op.run(30)
    assert queue_of(op.world).admitted == {}


def strike(op: Operator, draw: random.Random, heal: dict[str, float]) -> None:
    world, queue = op.world, queue_of(op.world)
    running = [p for p in world.pods.values() if p.phase == "Running" and p.node]
    kind = draw.choice(KINDS)
    if kind == "preempt":
        queue.preempt(others=draw.choice([1, 2]))
        heal["queue"] = world.now + draw.uniform(5, 200)
    elif kind == "suspend":
        world.change_spec(suspend=True)
        heal["suspend"] = world.now + draw.uniform(1, 60)
    elif kind == "template":
        world.change_spec(template_hash=f"h{draw.random()}")
    elif not running:
        return
    elif kind in ("delete", "evict"):
        pod = draw.choice([*world.pods.values()])
        world.delete_pod(pod.name, disruption="EvictionByEvictionAPI" if kind == "evict" else None)
    elif kind == "trainer":
        world.kill_trainer(draw.choice(running).rank)
    elif kind == "fail":
        pod = draw.choice(running)
        pod.phase, pod.reason, pod.message = "Failed", "Evicted", "node was low on memory"
        world.touch(pod)
    elif kind == "node" and not [n for n in heal if n.startswith("node")]:
        node = draw.choice(running).node or ""
        (world.kill_node if draw.random() < 0.5 else world.cut_node)(node)
        heal[node] = world.now + draw.uniform(2, 120)


def healed(world: World, heal: dict[str, float], *, everything: bool = False) -> None:
    for what, at in list(heal.items()):
        if not everything and world.now < at:
            continue
        del heal[what]
        if what == "queue":
            queue_of(world).others = 0
        elif what == "suspend":
            world.change_spec(suspend=False)
        else:
            world.heal_node(what)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_any_weather_it_trains_in_one_group(seed: int) -> None:
    draw = random.Random(seed)
    world = queued_world(max_restarts=1_000)
    op = Operator(world, stale=lambda: draw.random() < 0.05)

    def gate(what: str) -> None:
        if draw.random() < 0.02:
            raise Crash(what)

    world.gate = gate
    heal: dict[str, float] = {}
    end = world.now + 1500
    while world.now < end:
        healed(world, heal)
        if draw.random() < 0.012:
            strike(op, draw, heal)
        op.tick()
    world.gate = lambda _: None
    op.stale = lambda: False
    healed(world, heal, everything=True)
    op.run_until(lambda: is_training(op), within=900)
    op.run(400)
    assert is_training(op), "\n".join(op.log[-30:])
    assert len({pod.group for pod in world.pods.values()}) == 1, world.pods
    assert not [p for p in world.pods.values() if p.deleting_since is not None]
    assert list(queue_of(world).admitted) == [next(iter(world.pods.values())).group]
    charged = [r for r in state(op).attempts if r.cause == Reason.PREEMPTED_BY_QUEUE]
    assert all(r.culprit is not None for r in charged)
