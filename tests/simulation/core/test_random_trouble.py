"""Trouble that comes again, in bad weather: the job ends early, is held, or finds its way; and once
the cause is gone, a held one goes on with every save it had.

The world checks the laws at every write and every start.
"""

from __future__ import annotations

import random

import pytest
from kit.schedules import drive
from kit.simulated import World
from kit.simulated_operator import Operator
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType, JobPhase
from rtj_operator.core.observed import JobSpec

KINDS = ("saves", "steps", "nodes", "program")


def troubled(world: World, *, seed: int) -> str:
    """Puts one trouble into the world; its name."""
    draw = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    trouble = world.trouble
    trouble.steps_after = draw.choice([1, 2, 6, 30])
    trouble.code = draw.choice([1, 3, -11])
    if kind == "steps":
        trouble.steps.add(draw.randrange(10, 60))
    elif kind == "nodes":
        trouble.nodes.add("node1")
    elif kind == "saves":
        trouble.saves |= {f"f0000000{f}-n000000{s:02d}-s{s}" for f in (1, 2) for s in (8, 12)}
    else:
        trouble.program = True
    return kind


@pytest.mark.parametrize("seed", range(4))
def test_trouble_comes_to_an_end_and_eats_no_history(seed: int) -> None:
    world = World(spec=JobSpec(replicas=3, run_id="ns/gpt", template_hash="h", max_restarts=1000))
    kind = troubled(world, seed=seed)
    operator, weather = drive(world, seed=seed, storm=120, quiet=1200)
    tail = f"{kind}\n" + "\n".join(weather.said + operator.log[-40:])
    ended = world.state.condition(ConditionType.FAILED)
    if ended is not None and ended.status == "True":
        assert ended.reason == Reason.DETERMINISTIC_FAILURE, tail
        assert kind in ("steps", "program"), tail
        return
    if world.state.phase == JobPhase.HELD:
        assert world.state.hold is not None
        assert world.state.hold.reason == Reason.DETERMINISTIC_FAILURE, tail
        best = world.store.newest()
        cured(world, operator)
        assert best is None or (world.state.resume is not None and not world.state.resume.scratch)
    assert world.state.phase == JobPhase.RUNNING, tail


def cured(world: World, operator: Operator) -> None:
    """The cause is gone and the spec is applied anew: training goes on."""
    world.trouble.program = False
    world.trouble.saves.clear()
    world.trouble.steps.clear()
    world.trouble.nodes.clear()
    world.change_spec(template_hash="cured")
    operator.run_until(
        lambda: world.state.phase == JobPhase.RUNNING and world.state.progress.step is not None,
        within=600,
    )
