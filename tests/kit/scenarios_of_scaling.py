"""Named scenarios of an elastic gang, as `kit.scenarios` of one that has one size."""

from __future__ import annotations

from typing import Any

from rtj_api.reasons import Reason
from rtj_api.rules.elastic import Batch, Elastic
from rtj_api.status import ConditionType, JobPhase

from kit.scenarios import Scenario, reaches, recovers, state, trains
from kit.simulated_operator import Operator

SMALL = Elastic(
    full=3,
    sizes=(2, 3),
    scale_down_after=5.0,
    grows=True,
    batch=Batch(whole=12, micro=2, procs=1),
)


def only(op: Operator, nodes: int) -> None:
    """The cluster has so many nodes: the others take no pod."""
    for number, node in enumerate(op.world.nodes.values()):
        node.taints = () if number < nodes else ("away:NoSchedule",)
    op.world.hint = True


def has_size(op: Operator, size: int, *, within: float = 600.0) -> None:
    """Until a gang of that size trains and has made a step."""

    def trains_so() -> bool:
        shown, current = state(op).elastic, state(op).current
        has_begun = current is not None and current.first_step_at is not None
        return shown is not None and shown.size == size and has_begun

    op.run_until(lambda: trains_so() and state(op).phase == JobPhase.RUNNING, within=within)


def take_away(op: Operator, rank: int) -> str:
    """The place of that rank is somebody else's from now on."""
    pod = op.world.pod_of(rank)
    op.world.nodes[pod.node or ""].taints = ("away:NoSchedule",)
    op.world.delete_pod(pod.name)
    return pod.node or ""


def give_back(op: Operator, node: str) -> None:
    op.world.nodes[node].taints = ()
    op.world.hint = True


def saved_since(op: Operator) -> None:
    """Until a step beyond the present one is durable."""
    step = state(op).progress.step or 0
    op.run_until(lambda: (state(op).checkpoint.last_durable_step or 0) > step, within=120)


def shrinks_and_grows(op: Operator) -> None:
    only(op, 3)
    trains(op, step=4)
    node = take_away(op, 2)
    has_size(op, 2)
    saved_since(op)
    give_back(op, node)
    has_size(op, 3)
    saved_since(op)
    op.run(3)


def loses_rank_zero(op: Operator) -> None:
    """The lost rank is below the new size: it gets the place of the one above."""
    only(op, 3)
    trains(op, step=4)
    node = op.world.pod_of(0).node or ""
    op.world.kill_node(node)
    has_size(op, 2)
    op.world.heal_node(node)
    has_size(op, 3)
    saved_since(op)
    op.run(3)


def begins_small(op: Operator) -> None:
    """There never was room for all."""
    only(op, 2)
    has_size(op, 2)
    only(op, 3)
    has_size(op, 3)
    saved_since(op)
    op.run(3)


def growth_fails(op: Operator) -> None:
    """What came back goes away again as the gang grows onto it: small at once, and patient."""
    only(op, 3)
    trains(op, step=4)
    node = take_away(op, 2)
    has_size(op, 2)
    give_back(op, node)
    op.run_until(lambda: (shown := state(op).elastic) is not None and shown.size == 3)
    take_away(op, 2)
    has_size(op, 2)
    give_back(op, node)
    has_size(op, 3)
    saved_since(op)
    op.run(3)


def grows_at_a_step(op: Operator) -> None:
    """Saves are far apart, and the trainers obey a stop step: one is asked for."""
    only(op, 3)
    trains(op, step=20)
    node = take_away(op, 2)
    has_size(op, 2)
    give_back(op, node)
    has_size(op, 3)
    op.run(3)


def suspended_while_small(op: Operator) -> None:
    """It comes back whole where there is room."""
    only(op, 3)
    trains(op, step=4)
    node = take_away(op, 2)
    has_size(op, 2)
    op.world.change_spec(suspend=True)
    reaches(op, JobPhase.SUSPENDED)
    op.run_until(lambda: not op.world.pods)
    give_back(op, node)
    op.world.change_spec(suspend=False)
    has_size(op, 3)
    op.run(3)


def crashes_while_small(op: Operator) -> None:
    """A small gang restarts as every gang does, and stays small."""
    only(op, 3)
    trains(op, step=4)
    take_away(op, 1)
    has_size(op, 2)
    saved_since(op)
    attempt = state(op).attempt
    op.world.kill_trainer(1, code=-9)
    recovers(op, attempt=attempt + 1)
    op.run(3)


def cannot_shrink(op: Operator) -> None:
    """The newest save fits three ranks only: it waits, says so, and goes on with all."""
    only(op, 3)
    trains(op, step=4)
    node = take_away(op, 2)

    def is_told() -> bool:
        degraded = state(op).condition(ConditionType.DEGRADED)
        return degraded is not None and degraded.reason == Reason.CANNOT_SCALE_DOWN

    op.run_until(is_told)
    op.run(10)
    give_back(op, node)
    recovers(op, attempt=state(op).attempt)
    op.run(3)


_ELASTIC: dict[str, Any] = {"replicas": 3, "elastic": SMALL}
SCALINGS = {
    s.name: s
    for s in (
        Scenario("shrinks_and_grows", shrinks_and_grows, spec=_ELASTIC),
        Scenario("loses_rank_zero", loses_rank_zero, spec=_ELASTIC),
        Scenario("begins_small", begins_small, spec=_ELASTIC),
        Scenario("growth_fails", growth_fails, spec=_ELASTIC),
        Scenario(
            "grows_at_a_step",
            grows_at_a_step,
            spec={**_ELASTIC, "obeys_stop": True},
            world={"save_every": 20},
        ),
        Scenario("suspended_while_small", suspended_while_small, spec=_ELASTIC),
        Scenario("crashes_while_small", crashes_while_small, spec=_ELASTIC),
        Scenario("cannot_shrink", cannot_shrink, spec=_ELASTIC, world={"layout": "deepspeed"}),
    )
}
