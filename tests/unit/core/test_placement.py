"""Waiting for nodes has an end, and its words say what would change it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.scenarios import state
from kit.simulated import Node, World
from kit.simulated_operator import Operator
from rtj_api.reasons import Reason
from rtj_api.status import ConditionType, JobPhase, RestartKind, Status
from rtj_operator.core import pending
from rtj_operator.core.decide import decide
from rtj_operator.core.gang import Alarm, gather
from rtj_operator.core.observed import ContainerView, JobSpec, Observed, PodView, Rejection
from rtj_operator.core.policy import Policy

LIMIT = 100.0


def world(*, nodes: int, replicas: int = 2) -> World:
    spec = JobSpec(replicas=replicas, run_id="ns/gpt", template_hash="h1", placement_seconds=LIMIT)
    return World(spec=spec, nodes={f"n{i}": Node(name=f"n{i}", gpus=1) for i in range(nodes)})


def test_half_a_gang_gives_its_nodes_back_and_starts_when_there_is_room() -> None:
    op = Operator(world(nodes=1))
    op.run_until(lambda: any(p.node for p in op.world.pods.values()))
    first = {p.name for p in op.world.pods.values()}
    op.run_until(lambda: state(op).attempt == 2, within=LIMIT + 20)
    current = state(op).current
    assert current is not None
    assert (current.cause, current.kind) == (Reason.PLACEMENT_TIMEOUT, RestartKind.RECREATE)
    assert current.not_before is not None
    # All are given back: in the meantime others may have the node.
    op.run_until(lambda: not first & set(op.world.pods), within=20)
    assert all(p.node is None or p.made_in >= 2 for p in op.world.pods.values())
    assert (state(op).starts, state(op).restarts) == (0, 0)
    op.world.nodes["n9"] = Node(name="n9", gpus=1, lease_at=op.world.now)
    op.run_until(lambda: state(op).phase == JobPhase.RUNNING, within=3 * LIMIT)
    assert state(op).restarts == 0


def test_the_wait_between_tries_differs_from_job_to_job() -> None:
    waits = set()
    for number in range(5):
        made = world(nodes=1)
        made.job_uid = f"abcd0000-0000-0000-0000-00000000000{number}"
        op = Operator(made)
        op.run_until(lambda op=op: state(op).attempt == 2, within=LIMIT + 20)
        current = state(op).current
        assert current is not None
        assert current.not_before is not None
        waits.add(round(current.not_before - current.recorded_at, 3))
    assert len(waits) == 5


def test_a_gang_of_which_no_pod_has_a_node_stays_in_the_queue() -> None:
    op = Operator(world(nodes=0))
    op.world.nodes.clear()
    op.run(5 * LIMIT)
    assert state(op).attempt == 1
    assert len(op.world.pods) == 2


def test_a_pod_that_does_not_get_to_run_for_an_unknown_reason_is_waited_for_no_longer() -> None:
    op = Operator(world(nodes=2))
    op.run_until(lambda: len(op.world.pods) == 2)
    for pod in op.world.pods.values():
        pod.image_pullable = pod.rank == 0
    op.run_until(lambda: state(op).attempt == 2, within=LIMIT + 20)
    assert state(op).current.cause == Reason.PLACEMENT_TIMEOUT


def seen_with(made: World) -> Observed:
    op = Operator(made)
    op.run_until(lambda: len(op.world.pods) == made.spec.replicas)
    return made.observe()


def test_a_pod_that_the_api_server_refuses_counts_as_waiting() -> None:
    """Two halves of two gangs under one quota would wait for each other for ever."""
    made = world(nodes=0)
    made.nodes.clear()
    seen = seen_with(made)
    name = next(p.name for p in seen.pods if p.rank == 1)
    refused = Rejection(code=403, message="exceeded quota: gpus", at=seen.now)
    half = replace(
        seen, pods=tuple(p for p in seen.pods if p.rank == 0), rejections={name: refused}
    )
    assert decide(half).status is None or decide(half).status.attempt == 1
    late = replace(
        half,
        now=half.now + LIMIT + 1,
        rejections={name: replace(refused, at=half.now + LIMIT)},
    )
    plan = decide(late)
    assert plan.status is not None
    assert plan.status.attempt == 2
    assert "exceeded quota: gpus" in plan.status.current.message


def why(pod: PodView) -> tuple[Reason, str] | None:
    made = world(nodes=1).observe()
    gang = gather(made, policy=Policy(), alarm=Alarm(made.now), status=Status())
    return pending.why(gang, pod)


def pod(**fields: object) -> PodView:
    known = {
        "name": "gpt-0-1-abcd",
        "uid": "u",
        "resource_version": "1",
        "rank": 0,
        "made_in": 1,
        "created_at": 1.0,
    }
    return PodView(**{**known, **fields})  # type: ignore[arg-type]


NO_ROOM, NO_VOLUME = Reason.UNSCHEDULABLE, Reason.VOLUME_UNAVAILABLE


@pytest.mark.parametrize(
    ("message", "reason", "remedy"),
    [
        (
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
            NO_ROOM,
            "lower the trainer's GPU limit",
        ),
        (
            "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a: b}.",
            NO_ROOM,
            "lower the resources",
        ),
        (
            "0/3 nodes are available: 3 node(s) had untolerated taint {a: b}.",
            Reason.UNTOLERATED_TAINT,
            "spec.template.spec.tolerations",
        ),
        (
            "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
            NO_ROOM,
            "nodeSelector",
        ),
        ('persistentvolumeclaim "data" not found', NO_VOLUME, "Make the claim"),
        ("pod has unbound immediate PersistentVolumeClaims", NO_VOLUME, "Make the claim"),
        ("1 node(s) had volume node affinity conflict", NO_VOLUME, "volume that all nodes reach"),
        ("2 node(s) exceed max volume count", NO_VOLUME, "as many volumes as they may"),
        ("1 node(s) were unschedulable", NO_ROOM, "kubectl uncordon"),
        (
            "pod group is not ready, 1 Pending, 2 minAvailable",  # Volcano
            NO_ROOM,
            "as a whole or not at all",
        ),
        ("something new", NO_ROOM, "Free or add capacity"),
        (None, NO_ROOM, "no node fits"),
    ],
)
def test_the_schedulers_words_are_passed_on_with_a_remedy(
    message: str | None, reason: Reason, remedy: str
) -> None:
    found = why(pod(scheduled=False, unschedulable_message=message))
    assert found is not None
    assert found[0] == reason
    assert remedy in found[1]
    assert message is None or message.rstrip(".") in found[1]


NO_CONFIG = Reason.CONTAINER_CONFIG_ERROR


@pytest.mark.parametrize(
    ("trouble", "reason", "remedy"),
    [
        ('FailedMount: MountVolume failed: secret "s3" not found', NO_CONFIG, "Make the Secret"),
        ('FailedMount: MountVolume: configmap "c" not found', NO_CONFIG, "Make the ConfigMap"),
        ("FailedMount: mount.nfs: Connection timed out", NO_VOLUME, "server or disk behind it"),
        ("FailedAttachVolume: AttachVolume failed", NO_VOLUME, "another node may still have it"),
        ("FailedCreatePodSandBox: no addresses", NO_CONFIG, "kubectl describe pod gpt-0-1-abcd"),
    ],
)
def test_the_kubelets_words_are_passed_on_with_a_remedy(
    trouble: str, reason: Reason, remedy: str
) -> None:
    found = why(pod(node="n1", scheduled=True, trouble=trouble))
    assert found is not None
    assert found[0] == reason
    assert "n1" in found[1]
    assert remedy in found[1]


def test_an_image_that_cannot_be_pulled_comes_before_what_the_node_says() -> None:
    waiting = ContainerView(name="trainer", waiting_reason="ImagePullBackOff")
    found = why(pod(node="n1", trainer=waiting, trouble="Failed: back-off"))
    assert found is not None
    assert found[0] == Reason.IMAGE_NOT_PULLABLE


def test_nothing_is_said_against_a_pod_that_runs_or_ends() -> None:
    assert why(pod(node="n1", phase="Running")) is None
    assert why(pod(scheduled=False, deleting_since=2.0)) is None
    assert why(pod(phase="Failed", trouble="x")) is None


def test_the_condition_running_says_it() -> None:
    made = world(nodes=1)
    op = Operator(made)
    op.run_until(lambda: any(p.unschedulable_since for p in made.pods.values()))
    op.run(40)
    condition = state(op).condition(ConditionType.RUNNING)
    assert condition is not None
    assert condition.reason == Reason.UNSCHEDULABLE
