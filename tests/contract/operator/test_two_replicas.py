"""Two replicas on a real API server: one works, the other waits for its Lease and takes over."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kit.kube import Kube
from kit.operator_process import OperatorProcess
from kit.played import PlayedPods, a_job, eventually
from rtj_operator.core.observed import JobKey

pytestmark = pytest.mark.contract

LEADER = "resumable_training_operator_leader"
STARTS = "training_job_start_count_total"


@pytest.fixture
async def replicas(
    server: Kube, space: Kube, tmp_path: Path
) -> AsyncIterator[tuple[OperatorProcess, OperatorProcess]]:
    """The first works, the second stands by; the Lease is as the chart makes it."""
    meta = {"name": "rtj", "namespace": space.namespace}
    space.apply({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta})
    made = [
        OperatorProcess(
            server.kubeconfig,
            space.namespace,
            tmp_path / f"{name}.log",
            environment={
                "POD_NAME": name,
                "POD_NAMESPACE": space.namespace,
                "RTJ_LEASE": "rtj",
                "RTJ_LEASE_SECONDS": "5",
            },
        )
        for name in ("first", "second")
    ]
    for each in made:
        await each.start()
    yield made[0], made[1]
    for each in made:
        await each.stop(by=signal.SIGKILL)


def holder(space: Kube) -> str:
    return str((space.get("lease", "rtj").get("spec") or {}).get("holderIdentity", ""))


async def test_the_second_takes_over_when_the_first_is_killed_and_counts_exactly(
    replicas: tuple[OperatorProcess, OperatorProcess], space: Kube, cluster
) -> None:
    first, second = replicas
    key = JobKey(space.namespace, "gpt")
    labels = {"namespace": key.namespace, "name": key.name}
    space.apply(a_job(namespace=key.namespace, name=key.name))

    async def trains(attempt: int) -> bool:
        status = (await cluster.get_job(key) or {}).get("status") or {}
        return status.get("phase") == "Running" and status.get("attempt") == attempt

    async with PlayedPods(cluster, key) as pods:
        await eventually(lambda: trains(1), what="attempt 1 trains")
        assert holder(space).startswith("first_")
        assert [await each.value(LEADER) for each in replicas] == [1, 0]
        # Sums over replicas are right, for the one that waits tells of no job.
        assert [await each.value(STARTS, **labels) for each in replicas] == [1, None]
        await first.stop(by=signal.SIGKILL)
        await pods.of_rank(0).crash()
        await eventually(lambda: trains(2), what="attempt 2 trains")
        assert holder(space).startswith("second_")
        assert await second.value(LEADER) == 1
        assert await second.value(STARTS, **labels) == 2


async def test_one_that_ends_in_order_gives_the_lease_back(
    replicas: tuple[OperatorProcess, OperatorProcess], space: Kube
) -> None:
    first, second = replicas
    assert await first.stop() == 0
    assert first.lines()[-1]["message"] != "Lease not given back"
    assert not holder(space).startswith("first_")

    async def leads() -> bool:
        return await second.value(LEADER) == 1

    await eventually(leads, what="the second leads")
    await eventually(second.is_ready, what="the second watches")


async def test_one_that_lost_its_lease_ends_itself(
    replicas: tuple[OperatorProcess, OperatorProcess], space: Kube
) -> None:
    """As after a pause of its node: another holds the Lease by now."""
    first, second = replicas
    await second.stop()
    patch = '{"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}}'
    space.run("patch", "lease", "rtj", "--type=merge", "-p", patch)

    async def ended() -> bool:
        assert first.process is not None
        return first.process.poll() is not None

    await eventually(ended, what="the first has ended")
    assert any(line["message"] == "the Lease is another's" for line in first.lines())
    assert holder(space) == "another"


async def test_one_that_stands_by_ends_at_once_when_asked(
    replicas: tuple[OperatorProcess, OperatorProcess], space: Kube
) -> None:
    _, second = replicas
    assert await second.stop() == 0
    assert holder(space).startswith("first_")


async def test_without_the_right_to_nodes_it_works_and_reads_none(
    server: Kube, space: Kube, tmp_path: Path, cluster
) -> None:
    only = OperatorProcess(
        server.kubeconfig,
        space.namespace,
        tmp_path / "only.log",
        environment={"RTJ_READS_NODES": "false", "RTJ_CLUSTER_UID": "ours"},
    )
    await only.start()
    try:
        key = JobKey(space.namespace, "gpt")
        space.apply(a_job(namespace=key.namespace, name=key.name))

        async def trains() -> bool:
            return ((await cluster.get_job(key) or {}).get("status") or {}).get(
                "phase"
            ) == "Running"

        async with PlayedPods(cluster, key):
            await eventually(trains, what="it trains")
        _, text = await only.get("/metrics")
        read = {line.split('resource="')[1].split('"')[0] for line in text.splitlines()
                if line.startswith("resumable_training_operator_api_requests_total{")}  # fmt: skip
        assert "pods" in read
        assert not read & {"nodes", "leases", "namespaces"}
        assert 'watch_last_activity_timestamp_seconds{resource="nodes"}' not in text
    finally:
        await only.stop()
