"""How long until a spare has taken a lost rank, from 4 to 1,000 ranks, on a real API server.

Sidecars are played (`kit.played`), API server, operator and its client are real; no kubelet, no
scheduler. A rank's pod is deleted; time counts from when the operator noticed, by its status. All
have the newest save at hand, the spare too; with `--no-save` there is none, so that each rank is
told three times: to prepare, to restore, to go.

    python benchmarks/spares.py [--ranks 4,32,128,512,1000] [--runs 3] [--no-save]

| in the JSON | |
|---|---|
| `noticed` | from the deletion until the operator saw that the pod is gone |
| `told` | until the spare's sidecar followed its first directive as that rank |
| `goes` | until the last rank of all was told to train |
| `fast` | 1 where one directive a rank did it |
| `cpu` | seconds of a core that the operator spent from the deletion until then |
| `writes` | what the operator wrote to pods and to the job until then |
| `budget` | pods + 2 where it was fast, else 3 × pods + 4; a new spare is not in it |

Asserts no time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from kit.apiserver import api_server
from kit.kube import Kube
from kit.loads import CountedOperator, Totals, make_jobs, settled
from kit.played import PlayedPods, a_job, eventually
from rtj_api import crdgen, wire
from rtj_api.status import parse_time
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.cluster import KubeCluster, load_configuration

PATIENCE = 600.0
SAVE = "f1-n1-s1"


def a_gang(key: JobKey, *, ranks: int) -> dict[str, Any]:
    """With one spare, no pause before a restart, and no other writer to its pods."""
    job = a_job(namespace=key.namespace, name=key.name, replicas=ranks)
    job["spec"]["template"]["spec"]["schedulerName"] = "played"
    job["spec"]["recovery"] = {
        "spares": 1,
        "backoff": {"initialSeconds": 0, "maxSeconds": 0},
    }
    return job


async def status_of(cluster: KubeCluster, key: JobKey) -> dict[str, Any]:
    return ((await cluster.get_job(key)) or {}).get("status") or {}


async def is_ready(cluster: KubeCluster, key: JobKey, *, attempt: int) -> bool:
    """It trains in that attempt, and a spare waits."""
    status = await status_of(cluster, key)
    trains = status.get("phase") == "Running" and status.get("attempt") == attempt
    return trains and (status.get("spares") or {}).get("ready") == 1


async def take_over(
    cluster: KubeCluster, operator: CountedOperator, pods: PlayedPods, key: JobKey, *, attempt: int
) -> dict[str, float]:
    """A rank's pod is deleted while the gang trains in `attempt`."""
    before = await settled(operator)
    ranks = len(pods.pods) - 1
    (spare,) = pods.spares()
    lost = pods.of_rank(ranks // 2)
    path = f"/api/v1/namespaces/{key.namespace}/pods/{lost.name}"
    deleted, cpu = time.time(), operator.cpu_seconds()
    await cluster._request("DELETE", path, resource="pods")

    def all_go() -> bool:
        told = [p for p in pods.pods.values() if (attempt + 1, wire.Phase.GO) in orders(p)]
        return len(told) == ranks

    await eventually(all_go, within=PATIENCE, what=f"{ranks} ranks were told to go")
    cpu = operator.cpu_seconds() - cpu
    status = await status_of(cluster, key)
    after = await operator.totals()
    assert spare.report.rank == ranks // 2, "it was the spare that took the rank"
    assert status["current"]["takenOver"] == [ranks // 2]
    detected = parse_time(status["current"]["detectedAt"])
    told = min(at for at, order in spare.seen if order.attempt == attempt + 1)
    goes = max(
        at
        for p in pods.pods.values()
        for at, order in p.seen
        if (order.attempt, order.phase) == (attempt + 1, wire.Phase.GO)
    )
    await eventually(
        lambda: is_ready(cluster, key, attempt=attempt + 1), within=PATIENCE, what="a new spare"
    )
    return {
        "noticed": detected - deleted,
        "told": told - detected,
        "goes": goes - detected,
        "cpu": cpu,
        "writes": writes(before, after),
        "fast": float(bool(status["resume"].get("fast"))),
        "budget": ranks + 2 if status["resume"].get("fast") else 3 * ranks + 4,
    }


def orders(pod: Any) -> set[tuple[int, wire.Phase]]:
    return {(order.attempt, order.phase) for _, order in pod.seen}


def writes(before: Totals, after: Totals) -> int:
    kinds = [("POST", "pods"), ("DELETE", "pods"), ("PATCH", "pods")]
    kinds.append(("PUT", "resumabletrainingjobs"))
    return sum(after.done(*kind) - before.done(*kind) for kind in kinds)


async def at_size(
    cluster: KubeCluster,
    operator: CountedOperator,
    *,
    space: Kube,
    ranks: int,
    runs: int,
    save: str | None,
) -> dict[str, Any]:
    key = JobKey(space.namespace, f"gang-{ranks}")
    rows = []
    async with PlayedPods(cluster, key, save=save) as pods:
        await make_jobs(cluster, [a_gang(key, ranks=ranks)])
        for attempt in range(1, runs + 1):
            await eventually(
                lambda n=attempt: is_ready(cluster, key, attempt=n),
                within=PATIENCE,
                what=f"{ranks} ranks train and a spare waits",
            )
            rows.append(await take_over(cluster, operator, pods, key, attempt=attempt))
            print(f"{ranks} ranks: {rows[-1]}", file=sys.stderr, flush=True)
        space.run("delete", "rtj", key.name, "--wait=false")
        await eventually(lambda: not pods.pods, within=PATIENCE, what="all pods are gone")
    return {
        "ranks": ranks,
        "runs": runs,
        **{
            name: {
                "median": round(statistics.median(row[name] for row in rows), 3),
                "min": round(min(row[name] for row in rows), 3),
                "max": round(max(row[name] for row in rows), 3),
            }
            for name in rows[0]
        },
    }


async def measure(kube: Kube, *, sizes: list[int], runs: int, save: str | None) -> dict[str, Any]:
    kube.apply(crdgen.crd())
    space = kube.make_namespace(f"spares-{uuid.uuid4().hex[:6]}")
    configuration = await load_configuration(kubeconfig=kube.kubeconfig)
    cluster = KubeCluster(configuration, user_agent="spares")
    with tempfile.TemporaryDirectory() as directory:
        operator = CountedOperator(
            kube.kubeconfig, space.namespace, Path(directory) / "operator.log"
        )
        try:
            await operator.start()
            found = [
                await at_size(cluster, operator, space=space, ranks=ranks, runs=runs, save=save)
                for ranks in sizes
            ]
            return {"load_average": os.getloadavg(), "sizes": found}
        finally:
            await operator.stop()
            await cluster.close()
            space.drop_namespace(space.namespace)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="4,32,128,512,1000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    sizes = [int(each) for each in options.ranks.split(",")]
    with api_server(name="rtj-spares") as kube:
        result = asyncio.run(
            measure(kube, sizes=sizes, runs=options.runs, save=None if options.no_save else SAVE)
        )
    json.dump({"benchmark": "spares", **result}, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
