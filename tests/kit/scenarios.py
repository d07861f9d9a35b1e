"""Named scenarios on the simulated cluster: what happens to the job, in words a person would use.

Each takes an Operator over a fresh World, plays its story and returns when it has settled. The
golden logs and the crash tests run the same stories.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rtj_api import wire
from rtj_api.reasons import Reason
from rtj_api.rules.hang import Standing
from rtj_api.status import JobPhase, Status
from rtj_operator.core.observed import JobSpec

from kit.simulated import World
from kit.simulated_operator import Operator


@dataclass(frozen=True)
class Scenario:
    name: str
    play: Callable[[Operator], None]
    world: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)

    def run(
        self,
        *,
        gate: Callable[[str], None] = lambda what: None,
        after: Callable[[str], None] = lambda what: None,
    ) -> Operator:
        """Plays the story from the start; the operator may be killed before or after any write."""
        fields = {"replicas": 2, "run_id": "ns/gpt", "template_hash": "h1", **self.spec}
        spec = JobSpec(**fields)
        world = World(spec=spec, **self.world)
        world.gate, world.after = gate, after
        operator = Operator(world)
        self.play(operator)
        return operator


def state(op: Operator) -> Status:
    return op.world.state


def trains(op: Operator, *, step: int) -> None:
    """Until the attempt that runs now has made a step at or beyond `step`, and it is durable."""
    op.run_until(
        lambda: (
            state(op).phase == JobPhase.RUNNING
            and state(op).current is not None
            and state(op).current.first_step_at is not None
            and (state(op).checkpoint.last_durable_step or 0) >= step
        )
    )


def reaches(op: Operator, phase: JobPhase, *, within: float = 600.0) -> None:
    op.run_until(lambda: state(op).phase == phase, within=within)


def recovers(op: Operator, *, attempt: int, within: float = 300.0) -> None:
    """Until an attempt at or beyond `attempt` trains and has made a step."""
    op.run_until(
        lambda: (
            state(op).attempt >= attempt
            and state(op).phase == JobPhase.RUNNING
            and state(op).current is not None
            and state(op).current.first_step_at is not None
        ),
        within=within,
    )


def first_start(op: Operator) -> None:
    trains(op, step=4)


def crash_in_place(op: Operator) -> None:
    trains(op, step=8)
    op.world.kill_trainer(1, code=-9)
    recovers(op, attempt=2)
    op.run(10)


def hangs(op: Operator) -> None:
    """Rank 1 is stopped by a signal; later all wait for one that does nothing any more."""
    trains(op, step=8)
    op.world.hang_trainer(1)
    recovers(op, attempt=2)
    op.run(10)
    op.world.hang_trainer(0, standing=Standing.STILL)
    recovers(op, attempt=3)
    op.run(10)


def pod_deleted(op: Operator) -> None:
    trains(op, step=8)
    op.world.delete_pod(op.world.pod_of(1).name)
    recovers(op, attempt=2)
    op.run(10)


def evicted_holder(op: Operator) -> None:
    trains(op, step=8)
    op.world.delete_pod(op.world.pod_of(0).name, disruption="EvictionByEvictionAPI")
    recovers(op, attempt=2)
    op.run(10)


def node_dies(op: Operator) -> None:
    trains(op, step=8)
    op.world.kill_node(op.world.pod_of(1).node or "")
    recovers(op, attempt=2)
    op.run(90)


def node_cut_off_and_healed(op: Operator) -> None:
    """The holder is cut off with a save in flight; once healed it tries to publish it."""
    trains(op, step=8)
    node = op.world.pod_of(0).node or ""
    op.run_until(lambda: bool(op.world.pod_of(0).pending))
    op.world.cut_node(node)
    recovers(op, attempt=2)
    op.run(20)
    op.world.heal_node(node)
    op.run(30)


def newest_saves_corrupt(op: Operator) -> None:
    trains(op, step=12)
    world = op.world
    for name in [s.name for s in world.store.saves[-2:]]:
        world.corrupt(name)
    world.kill_trainer(0, code=1)
    recovers(op, attempt=2)
    op.run(10)


def none_valid_then_allowed(op: Operator) -> None:
    trains(op, step=8)
    world = op.world
    for save in list(world.store.saves):
        world.corrupt(save.name)
    for pod in world.pods.values():
        pod.pinned.clear()
    world.kill_trainer(1, code=1)
    reaches(op, JobPhase.HELD)
    op.run(60)
    world.allow_scratch = True
    world.request = wire.Request(id="1", action=wire.RequestAction.ALLOW_SCRATCH)
    world.hint = True
    op.run_until(lambda: state(op).last_request is not None)
    recovers(op, attempt=3)


def crash_loop(op: Operator) -> None:
    op.run_until(lambda: state(op).is_started)
    while not state(op).is_terminal:
        attempt = state(op).attempt
        op.run_until(
            lambda a=attempt: state(op).attempt == a and state(op).phase == JobPhase.RUNNING,
            within=600,
        )
        op.world.kill_trainer(0, code=-9)
        op.run_until(lambda a=attempt: state(op).attempt > a or state(op).is_terminal)
    op.run(400)


def runs_to_the_end(op: Operator) -> None:
    reaches(op, JobPhase.SUCCEEDED)
    op.run(60)


def suspended_and_resumed(op: Operator) -> None:
    trains(op, step=8)
    op.world.change_spec(suspend=True)
    op.run_until(lambda: state(op).phase == JobPhase.SUSPENDED and not op.world.pods)
    op.run(30)
    op.world.change_spec(suspend=False)
    recovers(op, attempt=2)


def store_down_at_restart(op: Operator) -> None:
    trains(op, step=8)
    world = op.world
    world.store.reachable = False
    world.delete_pod(world.pod_of(1).name)
    reaches(op, JobPhase.HELD)
    op.run(45)
    world.store.reachable = True
    recovers(op, attempt=3)


def store_down_at_crash(op: Operator) -> None:
    """All ranks have the newest save locally: the store is not needed."""
    trains(op, step=8)
    op.world.store.reachable = False
    op.world.kill_trainer(0, code=-9)
    recovers(op, attempt=2)
    op.world.store.reachable = True
    op.run(20)


def container_oom(op: Operator) -> None:
    trains(op, step=8)
    op.world.oom_container(1)
    recovers(op, attempt=2)
    op.run(20)


def last_save_not_durable(op: Operator) -> None:
    op.run_until(lambda: (state(op).progress.step or 0) >= 20)
    op.world.store.reachable = False
    reaches(op, JobPhase.HELD)
    assert state(op).hold is not None
    assert state(op).hold.reason == Reason.FINAL_CHECKPOINT_NOT_DURABLE
    op.run(30)
    op.world.store.reachable = True
    reaches(op, JobPhase.SUCCEEDED)
    op.run(60)


def template_changed(op: Operator) -> None:
    trains(op, step=8)
    op.world.change_spec(template_hash="h2")
    recovers(op, attempt=2)


def mute_sidecar(op: Operator) -> None:
    """Answers and takes no directive up."""
    trains(op, step=8)
    op.world.pod_of(1).mute = True
    op.world.kill_trainer(0, code=1)
    recovers(op, attempt=3)


def deadline_passed(op: Operator) -> None:
    """It has had its time, and later its time to live."""
    trains(op, step=8)
    reaches(op, JobPhase.FAILED)
    op.run_until(lambda: op.world.gone)


def part_by_part(op: Operator) -> None:
    """Each run of the script makes 12 steps and ends with 0."""
    reaches(op, JobPhase.SUCCEEDED)
    op.run(60)


def rank_zero_ends(op: Operator) -> None:
    """Rank 1 would go on for ever."""
    reaches(op, JobPhase.SUCCEEDED)
    op.run(60)


def reports_unreachable(op: Operator) -> None:
    """No sidecar is ever heard: it starts, crashes and ends through the store."""

    def all_beyond(step: int, *, attempt: int) -> bool:
        trainers = [p.trainer for p in op.world.pods.values()]
        return len(trainers) == op.world.spec.replicas and all(
            t is not None and t.attempt == attempt and t.step > step for t in trainers
        )

    op.run_until(lambda: all_beyond(8, attempt=1))
    op.world.kill_trainer(1, code=-9)
    op.run_until(lambda: all_beyond(8, attempt=2))
    reaches(op, JobPhase.SUCCEEDED)
    op.run(60)


SCENARIOS: dict[str, Scenario] = {
    s.name: s
    for s in (
        Scenario("first_start", first_start),
        Scenario("crash_in_place", crash_in_place),
        Scenario("hangs", hangs),
        Scenario("pod_deleted", pod_deleted),
        Scenario("evicted_holder", evicted_holder),
        Scenario("node_dies", node_dies),
        Scenario("node_cut_off_and_healed", node_cut_off_and_healed),
        Scenario("newest_saves_corrupt", newest_saves_corrupt),
        Scenario("none_valid_then_allowed", none_valid_then_allowed),
        Scenario("crash_loop", crash_loop, world={"save_every": 10_000}, spec={"max_restarts": 4}),
        Scenario("runs_to_the_end", runs_to_the_end, world={"total_steps": 12}),
        Scenario("suspended_and_resumed", suspended_and_resumed),
        Scenario("store_down_at_restart", store_down_at_restart),
        Scenario("store_down_at_crash", store_down_at_crash),
        Scenario("container_oom", container_oom),
        Scenario("last_save_not_durable", last_save_not_durable, world={"total_steps": 24}),
        Scenario("template_changed", template_changed),
        Scenario("mute_sidecar", mute_sidecar),
        Scenario(
            "deadline_passed",
            deadline_passed,
            spec={"active_deadline_seconds": 30, "ttl_seconds_after_finished": 60},
        ),
        Scenario("part_by_part", part_by_part, world={"chunk_steps": 12}, spec={"target_step": 20}),
        Scenario(
            "rank_zero_ends",
            rank_zero_ends,
            world={"total_steps": 12, "lasting_ranks": frozenset({1})},
            spec={"rank_zero_decides": True},
        ),
        Scenario(
            "reports_unreachable", reports_unreachable, world={"deaf": True, "total_steps": 24}
        ),
    )
}
