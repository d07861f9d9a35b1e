"""Named scenarios with spares, as `kit.scenarios` without."""

from __future__ import annotations

from rtj_api.status import JobPhase

from kit.scenarios import Scenario, reaches, recovers, state, trains
from kit.simulated_operator import Operator


def spares_wait(op: Operator, *, ready: int = 1) -> None:
    """Until so many spares could take a rank."""
    op.run_until(
        lambda: (shown := state(op).spares) is not None and shown.ready == ready, within=120
    )


def spare_for_a_lost_node(op: Operator) -> None:
    trains(op, step=8)
    spares_wait(op)
    op.world.kill_node(op.world.pod_of(1).node or "")
    recovers(op, attempt=2)
    op.run(60)
    spares_wait(op)


def spare_for_the_holder(op: Operator) -> None:
    trains(op, step=8)
    spares_wait(op)
    op.world.delete_pod(op.world.pod_of(0).name, disruption="EvictionByEvictionAPI")
    recovers(op, attempt=2)
    spares_wait(op)
    op.run(10)


def spare_lost_as_it_takes_over(op: Operator) -> None:
    """The node of the spare dies before it was told of its rank: the next try does without."""
    trains(op, step=8)
    spares_wait(op)
    spare = op.world.spare()
    assert spare is not None
    op.world.delete_pod(op.world.pod_of(1).name)
    op.run_until(lambda: state(op).attempt == 2)
    op.world.kill_node(spare.node or "")
    recovers(op, attempt=3)
    spares_wait(op)
    op.run(10)


def spare_lost_once_told(op: Operator) -> None:
    """All were told to train at once, and the spare's node dies before its trainer has begun."""
    trains(op, step=8)
    spares_wait(op)
    spare = op.world.spare()
    assert spare is not None
    op.world.kill_node(op.world.pod_of(1).node or "")
    op.run_until(lambda: spare.directive is not None)
    op.world.kill_node(spare.node or "")
    recovers(op, attempt=3)
    op.run(10)


def two_lost_and_one_spare(op: Operator) -> None:
    """One rank is taken, the other gets a new pod."""
    trains(op, step=8)
    spares_wait(op)
    for rank in (0, 1):
        op.world.delete_pod(op.world.pod_of(rank).name)
    recovers(op, attempt=2)
    spares_wait(op)
    op.run(10)


def stand_in_lost_in_turn(op: Operator) -> None:
    """The pod that was a spare is lost like any other, and the next spare takes its rank."""
    for attempt in (2, 3):
        trains(op, step=4 * attempt)
        spares_wait(op)
        op.world.delete_pod(op.world.pod_of(1).name)
        recovers(op, attempt=attempt)
    spares_wait(op)
    op.run(10)


def spare_gives_way(op: Operator) -> None:
    """A spare that cannot take the lost rank holds the only node that its new pod could have."""
    trains(op, step=8)
    spares_wait(op)
    spare = op.world.spare()
    assert spare is not None
    used = {pod.node for pod in op.world.pods.values()}
    (free,) = set(op.world.nodes) - used
    op.world.kill_node(free)
    spare.sidecar_down_until = op.world.now + 300
    op.world.touch(spare)
    op.run(20)
    op.world.kill_node(op.world.pod_of(1).node or "")
    recovers(op, attempt=2, within=600)
    op.run(60)


def finished_with_a_spare(op: Operator) -> None:
    """Nothing is left of a job that is over."""
    spares_wait(op)
    reaches(op, JobPhase.SUCCEEDED)
    op.run(60)


SPARES = {
    s.name: s
    for s in (
        Scenario("spare_for_a_lost_node", spare_for_a_lost_node, spec={"spares": 1}),
        Scenario("spare_for_the_holder", spare_for_the_holder, spec={"spares": 1}),
        Scenario("spare_lost_as_it_takes_over", spare_lost_as_it_takes_over, spec={"spares": 1}),
        Scenario("spare_lost_once_told", spare_lost_once_told, spec={"spares": 1}),
        Scenario("two_lost_and_one_spare", two_lost_and_one_spare, spec={"spares": 1}),
        Scenario("stand_in_lost_in_turn", stand_in_lost_in_turn, spec={"spares": 1}),
        Scenario("spare_gives_way", spare_gives_way, spec={"spares": 1}),
        Scenario(
            "finished_with_a_spare",
            finished_with_a_spare,
            world={"total_steps": 12},
            spec={"spares": 1},
        ),
    )
}
