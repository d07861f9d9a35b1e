"""Named scenarios of pods and nodes that are about to go, with trainers that obey a stop step."""

from __future__ import annotations

from rtj_api.status import JobPhase

from kit.scenarios import Scenario, reaches, recovers, state, trains
from kit.simulated_operator import Operator

SPOT = "cloud.google.com/impending-node-termination:NoSchedule"


def drained_at_a_step(op: Operator) -> None:
    """A node is drained: all ranks save at one step, nothing is made twice."""
    trains(op, step=8)
    op.world.delete_pod(op.world.pod_of(1).name, disruption="EvictionByEvictionAPI")
    recovers(op, attempt=2)
    op.run(10)


def spot_notice(op: Operator) -> None:
    """A spot node gives 30 s of notice, and is gone then."""
    trains(op, step=8)
    node = op.world.pod_of(0).node or ""
    op.world.nodes[node].taints = (SPOT,)
    op.world.hint = True
    op.run(30)
    op.world.kill_node(node)
    recovers(op, attempt=2)
    op.run(30)


def suspended_at_a_step(op: Operator) -> None:
    """Saves are far apart; a suspend does not wait for the next one, but asks for one."""
    trains(op, step=50)
    op.run(10)
    op.world.change_spec(suspend=True)
    reaches(op, JobPhase.SUSPENDED)
    op.run_until(lambda: not op.world.pods)
    op.world.change_spec(suspend=False)
    recovers(op, attempt=state(op).attempt + 1)
    op.run(10)


_OBEYS = {"obeys_stop": True}
LEAVINGS = {
    s.name: s
    for s in (
        Scenario("drained_at_a_step", drained_at_a_step, spec=_OBEYS),
        Scenario("spot_notice", spot_notice, spec=_OBEYS),
        Scenario(
            "suspended_at_a_step",
            suspended_at_a_step,
            spec={**_OBEYS, "suspend_wait_seconds": 60},
            world={"save_every": 50},
        ),
    )
}
