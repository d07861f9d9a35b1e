"""Reports cannot be had: from the start, from the middle on, now and then in any weather.

The world's laws hold as ever: one trainer a rank and attempt, none before all have restored the
same save, counters that never go back. What is awaited is seen in the world, as the operator
cannot tell.
"""

from __future__ import annotations

import pytest
from kit.schedules import drive
from kit.simulated import World
from kit.simulated_operator import Operator
from kit.weather import USUAL
from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType, JobPhase
from rtj_operator.core.observed import JobSpec


def deaf_world(**fields: object) -> World:
    spec = JobSpec(replicas=2, run_id="ns/gpt", template_hash="h1")
    return World(spec=spec, deaf=True, **fields)  # type: ignore[arg-type]


def all_train(world: World, *, attempt: int, beyond: int = 0) -> bool:
    """Every rank's own trainer of that attempt or a later one has got beyond that step."""
    if not world.state.placements:
        return False
    try:
        pods = [world.pod_of(rank) for rank in range(world.spec.replicas)]
    except KeyError:
        return False
    return all(
        p.trainer is not None
        and p.trainer.state == wire.TrainerState.RUNNING
        and p.trainer.attempt >= attempt
        and p.trainer.step > beyond
        for p in pods
    )


def durable(world: World) -> int:
    newest = world.store.newest()
    return newest.step if newest is not None else 0


def test_from_the_start_to_the_end() -> None:
    world = deaf_world(total_steps=120)
    operator = Operator(world)
    operator.run_until(lambda: all_train(world, attempt=1, beyond=8))
    status = world.state
    assert status.current is not None
    assert status.current.through_store
    assert (status.attempt, status.starts, status.restarts) == (1, 1, 0)
    degraded = status.condition(ConditionType.DEGRADED)
    assert degraded is not None
    assert degraded.reason == Reason.REPORTS_UNREACHABLE

    saved = durable(world)
    world.kill_trainer(1, code=1)
    operator.run_until(lambda: all_train(world, attempt=2, beyond=saved))
    assert (world.state.starts, world.state.restarts) == (2, 1)
    assert world.state.placements == [1, 1]
    assert world.state.current is not None
    assert world.state.current.cause == Reason.TRAINER_FAILED

    operator.run(10)
    saved = durable(world)
    world.delete_pod(world.pod_of(1).name)
    operator.run_until(lambda: all_train(world, attempt=3, beyond=saved))
    assert (world.state.starts, world.state.restarts) == (3, 2)
    assert world.state.placements[0] == 1

    operator.run(10)
    saved = durable(world)
    lost = world.pod_of(0).node
    assert lost is not None
    world.kill_node(lost)
    operator.run_until(lambda: all_train(world, attempt=4, beyond=saved))
    assert (world.state.starts, world.state.restarts) == (4, 3)
    assert world.pod_of(0).node != lost

    operator.run_until(lambda: world.state.phase == JobPhase.SUCCEEDED and not world.pods)
    assert (world.state.completions, world.state.starts) == (1, 4)
    assert world.state.checkpoint.last_durable_step == 120


def test_they_vanish_while_it_trains_and_no_trainer_is_touched() -> None:
    world = deaf_world(total_steps=90)
    world.deaf = False
    operator = Operator(world)
    operator.run_until(lambda: all_train(world, attempt=1, beyond=8))
    world.deaf = True
    operator.run(40)
    assert world.state.current is not None
    assert world.state.current.through_store
    assert (world.state.attempt, world.state.starts) == (1, 1)
    operator.run_until(lambda: world.state.phase == JobPhase.SUCCEEDED and not world.pods)
    assert world.state.starts == 1
    assert world.state.checkpoint.last_durable_step == 90


@pytest.mark.parametrize("deaf", [0, 1])
def test_one_rank_that_is_not_heard_puts_all_into_it(deaf: int) -> None:
    world = deaf_world(total_steps=100)
    world.deaf, world.deaf_ranks = False, frozenset({deaf})
    operator = Operator(world)
    operator.run_until(lambda: all_train(world, attempt=1, beyond=8))
    for rank in (0, 1):
        attempt, starts = world.state.attempt, world.state.starts
        world.kill_trainer(rank, code=1)
        operator.run_until(lambda a=attempt: all_train(world, attempt=a + 1, beyond=8))  # type: ignore[misc]
        operator.run(30)
        assert (world.state.attempt, world.state.starts) == (attempt + 1, starts + 1)
        assert world.state.placements == [1, 1]
    assert world.state.current is not None
    assert world.state.current.through_store
    operator.run_until(lambda: world.state.phase == JobPhase.SUCCEEDED and not world.pods)
    assert (world.state.completions, world.state.starts) == (1, 3)


def test_they_come_back_and_the_next_attempt_is_an_ordinary_one() -> None:
    world = deaf_world()
    operator = Operator(world)
    operator.run_until(lambda: all_train(world, attempt=1, beyond=8))
    world.deaf = False
    operator.run(30)
    assert world.state.attempt == 1
    world.kill_trainer(0, code=1)
    operator.run_until(lambda: all_train(world, attempt=2))
    assert world.state.current is not None
    assert not world.state.current.through_store
    assert (world.state.starts, world.state.restarts) == (2, 1)
    assert world.state.resume is not None
    assert world.state.resume.name


def test_a_container_killed_for_memory_is_one_restart() -> None:
    world = deaf_world()
    operator = Operator(world)
    operator.run_until(lambda: all_train(world, attempt=1, beyond=8))
    world.oom_container(1)
    operator.run_until(lambda: all_train(world, attempt=2, beyond=8))
    operator.run(60)
    assert (world.state.attempt, world.state.starts, world.state.restarts) == (2, 2, 1)


def test_without_a_save_that_can_be_used_it_holds_and_goes_on_by_consent() -> None:
    world = deaf_world()
    operator = Operator(world)
    operator.run_until(lambda: all_train(world, attempt=1, beyond=8) and durable(world) > 0)
    world.deaf = False
    operator.run(5)  # ever durable is known now
    world.deaf = True
    operator.run(40)
    for save in list(world.store.saves):
        world.corrupt(save.name)
    for pod in world.pods.values():
        pod.pinned = []
    world.kill_trainer(0, code=1)
    operator.run_until(lambda: world.state.hold is not None)
    assert world.state.hold is not None
    assert world.state.hold.reason == Reason.NO_VALID_CHECKPOINT
    world.allow_scratch = True
    world.request = wire.Request(id="1", action=wire.RequestAction.ALLOW_SCRATCH)
    world.hint = True
    operator.run_until(lambda: all_train(world, attempt=2, beyond=2))


@pytest.mark.parametrize("seed", range(6))
def test_after_any_storm_a_deaf_operator_brings_it_to_work_again(seed: int) -> None:
    world = World(spec=JobSpec(replicas=3, run_id="ns/gpt", template_hash="h", max_restarts=1000))
    world.deaf = bool(seed % 2)
    # Through the store nobody hears that a trainer hangs: docs/store-mode.md.
    kinds = [kind for kind in USUAL if kind != "hang"]
    operator, weather = drive(world, seed=3000 + seed, storm=240, quiet=10, kinds=kinds)
    world.deaf = True
    operator.run(900)
    tail = "\n".join(weather.said + operator.log[-30:])
    assert all_train(world, attempt=1), tail
    attempt, step = world.state.attempt, world.pod_of(0).trainer.step  # type: ignore[union-attr]
    operator.run(120)
    assert world.state.attempt == attempt, "it does not stay:\n" + tail
    assert all_train(world, attempt=attempt, beyond=step), "it does not train:\n" + tail
