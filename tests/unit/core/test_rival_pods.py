"""Public reports about pods and nodes that were lost, lingered or never came, as tests of ours."""

from __future__ import annotations

from kit.observations import (
    applied,
    new_job,
    pod_of,
    running,
    started,
    with_pod,
)
from kit.scenarios import SCENARIOS, recovers
from kit.simulated_operator import Operator
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType, JobPhase
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import ContainerEnd, ContainerView, PodView
from rtj_operator.core.plan import CreatePod, DeletePod


def test_a_pod_stuck_on_a_dead_node_is_forced_away() -> None:
    """kubeflow/trainer#2072, kubernetes-sigs/kueue#6489: Terminating for ever."""
    world = new_job()
    operator = started(world)
    operator.run_until(lambda: (world.state.checkpoint.last_durable_step or 0) >= 4)
    stuck = world.pod_of(1)
    world.kill_node(stuck.node or "")
    world.delete_pod(stuck.name)
    recovers(operator, attempt=2)
    operator.run(120)
    assert stuck.name not in world.pods
    assert world.state.attempt == 2


def test_node_shutdown_uses_no_budget() -> None:
    """kubeflow/trainer#1570: a graceful shutdown failed the whole job."""
    seen = with_pod(
        running(max_restarts=0),
        1,
        phase="Failed",
        reason="Terminated",
        disruption="TerminationByKubelet",
        trainer=ContainerView(
            name="trainer", ended=ContainerEnd(exit_code=137, reason="Error", finished_at=1009.0)
        ),
    )
    plan = decide(seen)
    assert plan.status is not None
    assert not plan.status.is_terminal
    assert plan.status.budgets.restarts_since_progress == 0


def test_a_lost_pod_restarts_the_gang_with_one_attempt_number() -> None:
    """kubernetes-sigs/jobset#574: the pod was replaced alone and the gang hung."""
    operator = SCENARIOS["pod_deleted"].run()
    attempts = {p.trainer.attempt for p in operator.world.pods.values() if p.trainer}
    assert attempts == {2}


def test_a_failed_pod_that_lingers_blocks_nothing() -> None:
    """kubernetes-sigs/jobset PR#1276: a terminal pod with a finalizer was still counted."""
    seen = with_pod(running(), 0, phase="Failed", reason="Evicted", message="low on memory")
    after = applied(seen, decide(seen))
    actions = decide(after).actions
    assert any(isinstance(a, CreatePod) and a.rank == 0 for a in actions)
    assert any(isinstance(a, DeletePod) and a.name == pod_of(seen, 0).name for a in actions)


def test_a_replacement_keeps_off_the_node_that_was_lost() -> None:
    """kubernetes-sigs/kueue#14092: it landed on the failed node again."""
    operator = SCENARIOS["node_dies"].run()
    world = operator.world
    assert world.state.attempt == 2
    assert world.nodes[world.pod_of(1).node or ""].alive


def test_an_eviction_seen_twice_is_one_cause_and_free() -> None:
    """volcano-sh/volcano#2560, #5885: Failed update and Deleted event each used a retry."""
    world = new_job()
    operator = started(world)
    operator.run_until(lambda: (world.state.checkpoint.last_durable_step or 0) >= 4)
    pod = world.pod_of(1)
    pod.phase, pod.disruption = "Failed", "EvictionByEvictionAPI"
    world.touch(pod)
    operator.run(0.25)
    world.delete_pod(pod.name, disruption="EvictionByEvictionAPI")
    recovers(operator, attempt=2)
    operator.run(30)
    assert world.state.attempt == 2
    assert world.state.budgets.restarts_since_progress == 0


def test_one_pending_pod_does_not_time_the_others_out() -> None:
    """dlrover#1175: one Pending pod made all others time out; nothing may train meanwhile."""
    world = new_job()
    for node in list(world.nodes.values())[1:]:
        node.gpus = 0
    operator = Operator(world)
    operator.run(120)
    assert world.state.starts == 0
    running_condition = world.state.condition(ConditionType.RUNNING)
    assert running_condition is not None
    assert running_condition.reason == Reason.UNSCHEDULABLE
    for node in world.nodes.values():
        node.gpus = 1
    recovers(operator, attempt=1)


def test_half_a_gang_lets_go_of_its_nodes() -> None:
    """Two half-placed gangs would block each other for ever."""
    world = new_job()
    for node in list(world.nodes.values())[1:]:
        node.gpus = 0
    operator = Operator(world)
    operator.run_until(lambda: world.state.attempt == 2, within=900)
    operator.run(5)
    assert world.state.current is not None
    assert world.state.current.cause == Reason.PLACEMENT_TIMEOUT
    assert not world.pods, "all are released while it waits"


def test_a_first_attempt_waits_for_pods_of_an_older_job_of_its_name() -> None:
    """A deleted and re-applied job must not overlap with its own past."""
    world = new_job()
    world.older = [
        PodView(
            name="gpt-0-3-ffff",
            uid="old",
            resource_version="1",
            rank=0,
            made_in=3,
            created_at=900.0,
            phase="Running",
        )
    ]
    operator = Operator(world)
    operator.run(20)
    assert world.state.attempt == 0
    assert world.state.phase == JobPhase.PENDING
    world.older = []
    recovers(operator, attempt=1)
