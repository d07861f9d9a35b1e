"""Faults at random moments, then quiet: the job must come to rest, training or finished.

The world checks the laws at every write and every start; this module adds the weather.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from kit.simulated import Crash, World
from kit.simulated_laws import own_name
from kit.simulated_operator import Operator
from rtj_api import wire
from rtj_api.rules.hang import Standing
from rtj_api.status import JobPhase
from rtj_operator.core.observed import JobSpec

SEEDS = range(20)
# Kinds that are named twice come twice as often.
KINDS = (
    *("trainer", "trainer", "delete", "delete", "evict", "failpod", "oom", "sidecar"),
    *("hang", "hang", "node", "cut", "store", "corrupt", "suspend", "template", "touch", "restart"),
)


class Weather:
    """Draws one fault now and then; all of them heal when it is over."""

    def __init__(self, world: World, *, seed: int, kinds: Sequence[str] = KINDS) -> None:
        self.world = world
        self.kinds = kinds
        self.random = random.Random(seed)
        self.heal_at: dict[str, float] = {}
        self.store_back_at: float | None = None
        self.suspended_until: float | None = None
        self.said: list[str] = []

    def tick(self) -> None:
        world, now = self.world, self.world.now
        for name, at in list(self.heal_at.items()):
            if now >= at:
                world.heal_node(name)
                del self.heal_at[name]
        if self.store_back_at is not None and now >= self.store_back_at:
            world.store.reachable, self.store_back_at = True, None
        if self.suspended_until is not None and now >= self.suspended_until:
            world.change_spec(suspend=False)
            self.suspended_until = None
        if self.random.random() < 0.015:
            self._strike()

    def _strike(self) -> None:
        world, draw = self.world, self.random
        running = [p for p in world.pods.values() if p.phase == "Running" and p.node]
        kind = draw.choice(self.kinds)
        self.said.append(f"{world.now - 1000:8.2f} {kind}")
        pod = draw.choice(running) if running else None
        if kind == "store":
            world.store.reachable = False
            self.store_back_at = world.now + draw.uniform(5, 90)
        elif kind == "suspend" and self.suspended_until is None:
            world.change_spec(suspend=True)
            self.suspended_until = world.now + draw.uniform(1, 60)
        elif kind == "template":
            world.change_spec(template_hash=f"h{draw.random()}")
        elif kind == "touch":
            world.job_rv += 1  # someone else wrote the job: our next guarded write conflicts
        elif kind == "corrupt":
            valid = world.store.valid()
            if len(valid) > 2:
                world.corrupt(valid[-1].name)
        elif kind == "restart":
            world.request = wire.Request(id=str(draw.random()), action=wire.RequestAction.RESTART)
            world.hint = True
        elif pod is None:
            return
        elif kind == "trainer" and pod.trainer is not None:
            code = draw.choice([-9, -11, 1, 2, 137])
            if pod.trainer.state == wire.TrainerState.RUNNING:
                # No two are alike: weather is not what comes again and again for one cause.
                pod.trainer.tail = ["Error: " + "".join(draw.choices("abcdefgh", k=8))]
                pod.trainer.end(now=world.now, code=code)
                pod.change()
        elif kind == "hang" and pod.trainer is not None:
            pod.trainer.hung = draw.choice([Standing.STOPPED, Standing.STILL])
        elif kind in ("delete", "evict"):
            cause = "EvictionByEvictionAPI" if kind == "evict" else None
            world.delete_pod(pod.name, disruption=cause)
        elif kind == "failpod":
            pod.phase, pod.reason, pod.message = "Failed", "Evicted", "node was low on memory"
            world.touch(pod)
        elif kind == "oom":
            pod.container_ended_at = float(int(world.now))
            pod.container_down_until = world.now + draw.choice([1.0, 3.0, 20.0])
            pod.container_exit = (137, "OOMKilled")
            world.touch(pod)
        elif kind == "sidecar":
            pod.sidecar_down_until = world.now + draw.choice([0.5, 4.0, 30.0])
            world.touch(pod)
        elif kind in ("node", "cut") and pod.node not in self.heal_at and len(self.heal_at) < 2:
            (world.kill_node if kind == "node" else world.cut_node)(pod.node)
            self.heal_at[pod.node] = world.now + draw.uniform(2, 120)

    def clear(self) -> None:
        for name in list(self.heal_at):
            self.world.heal_node(name)
        self.world.store.reachable = True
        if self.suspended_until is not None:
            self.world.change_spec(suspend=False)
        self.world.hint = True


def drive(
    world: World, *, seed: int, storm: float, quiet: float, kinds: Sequence[str] = KINDS
) -> tuple[Operator, Weather]:
    """Storm, then quiet. The operator dies before random writes and comes back with nothing."""
    weather = Weather(world, seed=seed, kinds=kinds)
    draw = weather.random
    operator = Operator(
        world,
        drop_hint=lambda: draw.random() < 0.1,
        stale=lambda: draw.random() < 0.05,
    )

    def gate(what: str) -> None:
        if draw.random() < 0.02:
            raise Crash(what)

    world.gate = gate
    end = world.now + storm
    while world.now < end:
        weather.tick()
        operator.tick()
    world.gate = lambda what: None
    weather.clear()
    operator = Operator(world, log=operator.log)
    operator.run(quiet)
    return operator, weather


@pytest.mark.parametrize(
    ("seed", "spares"), [*((s, 0) for s in SEEDS), *((s, 1 + s % 2) for s in range(2006, 2018))]
)
def test_after_any_storm_the_job_trains_again_and_stays(seed: int, spares: int) -> None:
    spec = JobSpec(replicas=3, spares=spares, run_id="ns/gpt", template_hash="h", max_restarts=1000)
    world = World(spec=spec)
    operator, weather = drive(world, seed=seed, storm=240, quiet=720)
    tail = "\n".join(weather.said + operator.log[-30:])
    assert world.state.phase == JobPhase.RUNNING, tail
    step = world.state.progress.step or 0
    attempt = world.state.attempt
    passes = len(operator.plans)
    operator.run(120)
    assert world.state.attempt == attempt, "it does not stay:\n" + tail
    assert (world.state.progress.step or 0) > step, "it does not train:\n" + tail
    own = {own_name(world, rank) for rank in range(3)}
    assert own == {p.name for p in world.pods.values() if not p.waits}, "surplus or missing pods"
    assert sum(p.waits for p in world.pods.values()) == spares, "surplus or missing spares"
    shown = world.state.spares
    assert (shown.ready if shown is not None else 0) == spares, tail
    assert len(operator.plans) - passes < 400, "too many passes at rest"


@pytest.mark.parametrize("seed", range(8))
def test_after_any_storm_the_job_finishes_and_frees_everything(seed: int) -> None:
    world = World(
        spec=JobSpec(replicas=2, run_id="ns/gpt", template_hash="h", max_restarts=1000),
        total_steps=60,
    )
    operator, weather = drive(world, seed=1000 + seed, storm=200, quiet=900)
    tail = "\n".join(weather.said + operator.log[-30:])
    assert world.state.phase == JobPhase.SUCCEEDED, tail
    assert world.state.completions == 1
    assert not world.pods, tail
    writes = world.writes
    operator.run(600)
    assert world.writes == writes, "a finished job is written to"
