"""Many jobs and one large gang: nothing is done twice, however much happens at once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from kit.kube import Kube
from kit.loads import CountedOperator, Totals, make_jobs, settled, statuses
from kit.long import long
from kit.played import PlayedPods, a_job, eventually
from rtj_api import wire
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.cluster import KubeCluster

JOBS = [30, long(250)]
RANKS = [200, long(1000)]
PATIENCE = 900  # seconds, for the large ones on two busy cores
# An attempt by the slow path tells each pod three things; each is one write.
PHASES = [wire.Phase.PREPARE, wire.Phase.RESTORE, wire.Phase.GO]
# Most status writes of one attempt: the decision, the choice, that all have restored, that all
# run, the first step, and one more for a condition that was true only in between.
STATUS_WRITES = 6
RSS_MIB = 1024

pytestmark = pytest.mark.timeout(3 * PATIENCE)


def the_job(key: JobKey, *, replicas: int = 2) -> dict:
    """As `a_job`, with no other writer to its pods, and no pause before a restart."""
    job = a_job(namespace=key.namespace, name=key.name, replicas=replicas)
    job["spec"]["template"]["spec"]["schedulerName"] = "played"
    job["spec"]["recovery"] = {"backoff": {"initialSeconds": 0, "maxSeconds": 0}}
    return job


async def all_train(cluster: KubeCluster, keys: list[JobKey], *, attempt: int) -> None:
    """Every job of the namespace is Running in that attempt."""

    async def look() -> bool:
        seen = await statuses(cluster, keys[0].namespace)
        late = [k for k in keys if not _trains(seen.get(k, {}), attempt=attempt)]
        if late:
            await asyncio.sleep(1)  # looking must not be the load
        return not late

    await eventually(look, within=PATIENCE, what=f"all train in attempt {attempt}")


def _trains(status: dict, *, attempt: int) -> bool:
    return status.get("phase") == "Running" and status.get("attempt") == attempt


def writes(before: Totals, after: Totals) -> dict[str, int]:
    """What the API server carried out between two scrapes, beside Events."""
    kinds = {
        "created": ("POST", "pods"),
        "deleted": ("DELETE", "pods"),
        "directives": ("PATCH", "pods"),
        "statuses": ("PUT", "resumabletrainingjobs"),
    }
    return {name: after.done(*kind) - before.done(*kind) for name, kind in kinds.items()}


def assert_each_told_once(pods: PlayedPods, *, attempts: int) -> None:
    for pod in pods.pods.values():
        told = [(order.attempt, order.phase) for _, order in pod.seen]
        assert told == [(n, phase) for n in range(1, attempts + 1) for phase in PHASES], pod.name


@pytest.mark.parametrize("jobs", JOBS)
async def test_a_storm_over_many_jobs(
    cluster: KubeCluster, space: Kube, operator: CountedOperator, jobs: int
) -> None:
    keys = [JobKey(space.namespace, f"job-{number}") for number in range(jobs)]
    base = await operator.totals()
    async with PlayedPods(cluster, *keys) as pods:
        await make_jobs(cluster, [the_job(key) for key in keys])
        await all_train(cluster, keys, attempt=1)
        started = await settled(operator, jobs=jobs)
        made = writes(base, started)
        assert (made["created"], made["deleted"]) == (2 * jobs, 0)
        assert made["directives"] == 2 * jobs * len(PHASES)
        assert made["statuses"] <= jobs * STATUS_WRITES

        await asyncio.gather(
            *(pods.of_rank(n % 2, key=key).crash(exit_code=3) for n, key in enumerate(keys))
        )
        await all_train(cluster, keys, attempt=2)
        healed = await settled(operator, jobs=jobs)
        made = writes(started, healed)
        assert (made["created"], made["deleted"]) == (0, 0)
        assert made["directives"] == 2 * jobs * len(PHASES)
        assert made["statuses"] <= jobs * STATUS_WRITES

        for status in (await statuses(cluster, space.namespace)).values():
            assert (status["starts"], status["restarts"]) == (2, 1)
        assert healed.of("training_job_restart_count_total") == jobs
        assert_each_told_once(pods, attempts=2)
        assert max(Counter(pods.made.values()).values()) == 1, "a pod was made twice"
        assert len(pods.made) == 2 * jobs
        assert operator.rss_mib() < RSS_MIB

        space.run("delete", "rtj", "--all", "--wait=false")

        async def forgotten() -> bool:
            now = await operator.totals()
            return now.job_series == base.job_series and (
                now.of("resumable_training_operator_reports_followed") == 0
            )

        await eventually(forgotten, within=PATIENCE, what="no series of a job that is gone")
    assert operator.rss_mib() < RSS_MIB


@pytest.mark.parametrize("ranks", RANKS)
async def test_a_cascade_in_a_large_gang_counts_once(
    cluster: KubeCluster, space: Kube, operator: CountedOperator, ranks: int
) -> None:
    key = JobKey(space.namespace, "large")
    culprit = ranks // 2
    base = await operator.totals()
    async with PlayedPods(cluster, key) as pods:
        await make_jobs(cluster, [the_job(key, replicas=ranks)])
        await all_train(cluster, [key], attempt=1)
        started = await settled(operator)
        assert writes(base, started)["created"] == ranks

        await pods.of_rank(culprit).crash(exit_code=7)
        # The others lose their peer, in whatever order; some are stopped before they notice.
        for rank in (r for r in range(ranks) if r != culprit):
            await pods.of_rank(rank).crash(exit_code=1)
        await all_train(cluster, [key], attempt=2)
        healed = await settled(operator)
        made = writes(started, healed)
        assert (made["created"], made["deleted"]) == (0, 0)
        assert made["directives"] == ranks * len(PHASES)
        assert made["statuses"] <= STATUS_WRITES

        (status,) = (await statuses(cluster, space.namespace)).values()
        assert (status["starts"], status["restarts"]) == (2, 1)
        assert status["current"]["culprit"]["rank"] == culprit
        assert status["current"]["culprit"]["exitCode"] == 7
        assert_each_told_once(pods, attempts=2)
        assert len(pods.made) == len(set(pods.made.values())) == ranks
        assert operator.rss_mib() < RSS_MIB
