"""The operator as a process, real kopf and client, on a real API server; pods are played."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from kit.kube import Kube
from kit.log_records import unknown_fields
from kit.operator_process import OperatorProcess
from kit.played import PlayedPods, a_job, eventually
from rtj_api import contract, wire
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.api import ApiError

pytestmark = pytest.mark.contract


async def status_of(cluster, key: JobKey) -> dict[str, Any]:
    job = await cluster.get_job(key)
    return (job or {}).get("status") or {}


def labels_of(key: JobKey) -> dict[str, str]:
    return {"namespace": key.namespace, "name": key.name}


async def training(cluster, key: JobKey, *, attempt: int) -> bool:
    status = await status_of(cluster, key)
    return status.get("phase") == "Running" and status.get("attempt") == attempt


@pytest.fixture
async def running(cluster, space, operator):  # type: ignore[no-untyped-def]
    """A gang of two that trains in attempt 1."""
    key = JobKey(space.namespace, "gpt")
    space.apply(a_job(namespace=key.namespace, name=key.name))
    async with PlayedPods(cluster, key) as pods:
        await eventually(lambda: training(cluster, key, attempt=1), what="attempt 1 trains")
        yield key, pods


async def test_a_first_start_passes_every_phase(running, cluster, operator) -> None:
    key, pods = running
    for rank in (0, 1):
        phases = [order.phase for _, order in pods.of_rank(rank).seen]
        assert phases == [wire.Phase.PREPARE, wire.Phase.RESTORE, wire.Phase.GO]
    status = await status_of(cluster, key)
    assert (status["starts"], status["restarts"]) == (1, 0)
    assert await operator.value("training_job_start_count_total", **labels_of(key)) == 1
    rules = {line["rule"] for line in operator.lines() if "rule" in line}
    assert "first_attempt" in rules
    written = [text for text in operator.log.read_text().splitlines() if text.strip()]
    assert {name for text in written for name in unknown_fields(text)} == set()


async def test_a_crash_is_recorded_and_the_gang_starts_again_in_place(
    running, cluster, operator
) -> None:
    key, pods = running
    before = {pod.name for pod in pods.pods.values()}
    await pods.of_rank(1).crash(exit_code=3)
    await eventually(lambda: training(cluster, key, attempt=2), what="attempt 2 trains")
    status = await status_of(cluster, key)
    assert (status["starts"], status["restarts"]) == (2, 1)
    assert status["current"]["culprit"]["rank"] == 1
    assert status["current"]["culprit"]["exitCode"] == 3
    assert {pod["metadata"]["name"] for pod in await cluster.list_pods(key)} == before


async def test_a_deleted_pod_alone_is_made_anew(running, cluster, space) -> None:
    key, pods = running
    survivor, victim = pods.of_rank(0).name, pods.of_rank(1).name
    space.run("delete", "pod", victim, "--wait=false", "--grace-period=0", "--force")
    await eventually(lambda: training(cluster, key, attempt=2), what="attempt 2 trains")
    names = {pod["metadata"]["name"] for pod in await cluster.list_pods(key)}
    assert survivor in names
    assert victim not in names
    assert (await status_of(cluster, key))["budgets"].get("restartsSinceProgress", 0) == 0


async def test_killed_operator_comes_back_and_counts_exactly(running, cluster, operator) -> None:
    key, pods = running
    await operator.stop(by=signal.SIGKILL)
    await pods.of_rank(0).crash()
    await operator.start()
    await eventually(lambda: training(cluster, key, attempt=2), what="attempt 2 trains")
    status = await status_of(cluster, key)
    assert (status["starts"], status["restarts"]) == (2, 1)
    assert await operator.value("training_job_restart_count_total", **labels_of(key)) == 1


async def test_two_operators_at_once_do_no_harm(running, cluster, operator, tmp_path) -> None:
    key, pods = running
    twin = OperatorProcess(operator.kubeconfig, operator.namespace, tmp_path / "twin.log")
    await twin.start()
    try:
        for attempt in (2, 3, 4):
            await pods.of_rank(attempt % 2).crash()
            await eventually(
                lambda a=attempt: training(cluster, key, attempt=a), what=f"attempt {attempt}"
            )
        status = await status_of(cluster, key)
        assert (status["starts"], status["restarts"]) == (4, 3)
        assert len(await cluster.list_pods(key)) == 2
        for rank in (0, 1):
            sequence = [(o.attempt, o.seq) for _, o in pods.of_rank(rank).seen]
            assert sequence == sorted(set(sequence)), "no order was given twice"
    finally:
        await twin.stop()


async def test_series_vanish_with_the_job(running, cluster, operator, space) -> None:
    key, _ = running
    series = "training_job_start_count_total"
    assert await operator.value(series, **labels_of(key)) == 1
    space.run("delete", "rtj", key.name, "--wait=false")

    async def gone() -> bool:
        return await operator.value(series, **labels_of(key)) is None

    await eventually(gone, what="the series is gone")


async def test_the_operator_writes_nothing_but_status_to_a_job(running, cluster) -> None:
    key, _ = running
    job = await cluster.get_job(key)
    assert "finalizers" not in job["metadata"]
    annotations = job["metadata"].get("annotations") or {}
    assert not [name for name in annotations if "kopf" in name]


async def test_a_fault_is_told_in_an_event(running, cluster, space) -> None:
    key, pods = running

    def restarts() -> list[dict[str, Any]]:
        return [
            event
            for event in space.list("events")
            if event["involvedObject"]["name"] == key.name and event["reason"] == "TrainerFailed"
        ]

    await pods.of_rank(1).crash()
    await eventually(lambda: training(cluster, key, attempt=2), what="attempt 2 trains")
    (event,) = await eventually(restarts, what="an event on the job")
    assert event["type"] == "Warning"
    assert event["involvedObject"]["uid"] == (await cluster.get_job(key))["metadata"]["uid"]


async def test_a_disk_that_will_not_do_is_said_with_its_remedy(running, cluster) -> None:
    """By rank 1's sidecar, at the first save; and no longer once its framework was told better."""
    key, pods = running

    async def told() -> dict[str, Any] | None:
        conditions = (await status_of(cluster, key)).get("conditions") or []
        return next((c for c in conditions if c["reason"] == "NeedsSharedVolume"), None)

    message = "/checkpoints: Orbax finished 7 on the primary host alone. Mount one volume"
    problem = wire.Problem(reason="NeedsSharedVolume", message=message, since=1.0, retrying=False)
    await pods.of_rank(1).say(degraded=[problem])
    condition = await eventually(told, what="a condition")
    assert (condition["type"], condition["status"]) == ("Degraded", "True")
    assert condition["message"] == f"rank 1: {message}"
    await pods.of_rank(1).say(degraded=[])

    async def is_gone() -> bool:
        return await told() is None

    await eventually(is_gone, what="the condition is gone")


async def test_a_bad_template_is_said_in_a_condition_and_heals(cluster, space, operator) -> None:
    key = JobKey(space.namespace, "bad")
    job = a_job(namespace=key.namespace, name=key.name)
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "emptyDir": {}}]
    mount = {"name": "data", "mountPath": "/checkpoints", "readOnly": True}
    pod["containers"][0]["volumeMounts"] = [mount]
    space.apply(job)

    async def accepted() -> dict[str, Any] | None:
        conditions = (await status_of(cluster, key)).get("conditions") or []
        return next((c for c in conditions if c["type"] == "Accepted"), None)

    async def refused() -> bool:
        condition = await accepted()
        return bool(condition and condition["reason"] == "PathNotWritable")

    await eventually(refused, what="PathNotWritable")
    assert "readOnly" in (await accepted())["message"]
    assert not await cluster.list_pods(key)
    del mount["readOnly"]
    space.apply(job)
    async with PlayedPods(cluster, key):
        await eventually(lambda: training(cluster, key, attempt=1), what="it trains")


async def test_a_pod_that_the_server_refuses_is_said_with_its_words(
    cluster, space, operator
) -> None:
    key = JobKey(space.namespace, "refused")
    job = a_job(namespace=key.namespace, name=key.name)
    job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "no-such-volume", "mountPath": "/data"}
    ]
    space.apply(job)

    async def said() -> list[str]:
        conditions = (await status_of(cluster, key)).get("conditions") or []
        return [c["message"] for c in conditions if c["reason"] == "PodRejected"]

    messages = await eventually(said, what="PodRejected")
    assert any("no-such-volume" in message for message in messages)


async def test_sigterm_ends_it_cleanly(operator) -> None:
    assert await operator.stop() == 0


async def test_a_stale_version_is_a_conflict(cluster, space) -> None:
    key = JobKey(space.namespace, "guard")
    space.apply(a_job(namespace=key.namespace, name=key.name))
    job = await cluster.get_job(key)
    meta = job["metadata"]
    status = {"attempt": 1, "phase": "Pending"}
    stored = await cluster.put_status(
        key=key, uid=meta["uid"], resource_version=meta["resourceVersion"], status=status
    )
    assert stored["status"]["attempt"] == 1
    assert stored["spec"] == job["spec"]
    with pytest.raises(ApiError) as refused:
        await cluster.put_status(
            key=key, uid=meta["uid"], resource_version=meta["resourceVersion"], status=status
        )
    assert refused.value.is_conflict


async def test_unknown_fields_of_a_template_reach_the_api_server(cluster, space) -> None:
    """The typed client would refuse them before anything is sent."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": space.namespace, "name": "tomorrow"},
        "spec": {
            "fieldOfTomorrow": True,
            "nodeSelector": {"no": "node"},
            "containers": [{"name": "c", "image": "i", "alsoNew": {"x": 1}}],
        },
    }
    stored = await cluster.create_pod(pod)
    assert stored["metadata"]["name"] == "tomorrow"
    with pytest.raises(ApiError) as refused:
        await cluster.create_pod(pod)
    assert refused.value.reason == "AlreadyExists"
    with pytest.raises(ApiError) as refused:
        await cluster.delete_pod(namespace=space.namespace, name="tomorrow", uid="not-this-one")
    assert refused.value.is_conflict


@contextlib.contextmanager
def kept(space: Kube, names: list[str]) -> Iterator[None]:
    """These pods, once deleted, stay: no kubelet gives them their grace here."""
    notes = [
        {"op": "add", "path": "/metadata/finalizers", "value": ["resumable-training.dev/kept"]}
    ]
    for name in names:
        space.run("patch", "pod", name, "--type=json", "-p", json.dumps(notes))
    yield
    notes = [{"op": "remove", "path": "/metadata/finalizers"}]
    for name in names:
        space.run("patch", "pod", name, "--type=json", "-p", json.dumps(notes))


async def test_the_holder_of_a_deleted_job_hears_the_last_word(running, space) -> None:
    key, pods = running
    holder, other = pods.of_rank(0), pods.of_rank(1)
    with kept(space, [holder.name, other.name]):
        space.run("delete", "rtj", key.name, "--wait=false")

        def told() -> bool:
            return any(order.ending == "released" for _, order in holder.seen)

        await eventually(told, what="rank 0 is told that the job is gone")
        assert not any(order.ending for _, order in other.seen)


async def test_pods_that_are_left_without_their_job_are_told_nothing(
    running, cluster, operator, space
) -> None:
    key, _ = running
    space.run("delete", "rtj", key.name, "--wait=false", "--cascade=orphan")

    async def is_over() -> bool:
        """The operator has looked at it when it was gone, and has forgotten it."""
        series = await operator.value("training_job_start_count_total", **labels_of(key))
        return series is None and await cluster.get_job(key) is None

    await eventually(is_over, what="the operator has seen the end of the job")
    left = [pod["metadata"] for pod in await cluster.list_pods(key)]
    assert [pod.get("ownerReferences") for pod in left] == [None, None]
    orders = [json.loads(pod["annotations"][contract.ANNOTATION_DIRECTIVE]) for pod in left]
    assert [order["phase"] for order in orders] == [wire.Phase.GO, wire.Phase.GO]
