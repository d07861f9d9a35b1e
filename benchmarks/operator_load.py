"""What the operator costs and how fast it hears, on a real API server with played sidecars.

Prints JSON: passes a second and core, memory with many jobs, requests a pass, and the way from a
trainer's death to the recorded decision and to the directive. Nothing here asserts a time. The
API server is the one of RTJ_TEST_KUBECONFIG, or a small cluster made for it.
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
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
for part in ("crds", "operator", "tests", "."):
    sys.path.insert(0, str(ROOT / part))

from kit.apiserver import api_server  # noqa: E402
from kit.kube import Kube  # noqa: E402
from kit.loads import CountedOperator, in_batches, make_jobs, settled  # noqa: E402
from kit.played import PlayedPods, a_job, eventually  # noqa: E402
from rtj_api import contract, crdgen, wire  # noqa: E402
from rtj_operator.core.observed import JobKey  # noqa: E402
from rtj_operator.shell.cluster import KubeCluster, load_configuration  # noqa: E402


async def load(cluster: KubeCluster, operator: CountedOperator, *, space: Kube, jobs: int) -> dict:
    """Many jobs of one pod each that cannot be placed; then a touch of each, again and again."""
    idle_rss = operator.rss_mib()
    path = f"/apis/{contract.API_VERSION}/namespaces/{space.namespace}/{contract.PLURAL}"
    names = [f"job-{number}" for number in range(jobs)]
    bodies = [a_job(namespace=space.namespace, name=name, replicas=1) for name in names]
    began, cpu = time.monotonic(), operator.cpu_seconds()
    await make_jobs(cluster, bodies)
    await settled(operator, jobs=jobs)
    made_in, made_cpu = time.monotonic() - began, operator.cpu_seconds() - cpu
    rounds = 3
    began, cpu = time.monotonic(), operator.cpu_seconds()
    before = await operator.totals()
    for number in range(rounds):
        patch = {"metadata": {"annotations": {"touched": str(number)}}}
        await in_batches(
            cluster._request(
                "PATCH",
                f"{path}/{name}",
                resource="jobs",
                body=patch,
                content_type="application/merge-patch+json",
            )
            for name in names
        )
    after = await settled(operator, jobs=jobs)
    done, spent = after.passes - before.passes, operator.cpu_seconds() - cpu
    return {
        "jobs": jobs,
        "rss_mib_idle": round(idle_rss, 1),
        "rss_mib": round(operator.rss_mib(), 1),
        "rss_kib_a_job": round((operator.rss_mib() - idle_rss) * 1024 / jobs, 1),
        "start_of_all": {
            "seconds_with_creation": round(made_in, 1),
            "operator_cpu_ms_a_job": round(made_cpu * 1000 / jobs, 2),
        },
        "passes": {
            "count": done,
            "a_second_and_core_with_watch": round(done / spent, 1),
            "cpu_ms_a_pass_with_watch": round(spent * 1000 / done, 2),
            "requests_a_pass": round((after.requests() - before.requests()) / done, 2),
        },
    }


async def crashes(
    cluster: KubeCluster, operator: CountedOperator, *, space: Kube, times: int
) -> dict:
    """A gang of two restarts in place again and again; the fast path, as far as it is one."""
    key = JobKey(space.namespace, "crash")
    job = a_job(namespace=key.namespace, name=key.name)
    job["spec"]["recovery"] = {
        "maxRestarts": times * 2,
        "backoff": {"initialSeconds": 0, "maxSeconds": 0},
    }
    space.apply(job)
    heard: list[dict[str, float]] = []
    async with PlayedPods(cluster, key) as pods:
        for attempt in range(1, times + 1):
            await eventually(lambda: is_training(cluster, key, attempt), what=f"{attempt}")  # noqa: B023
            save = f"f{1:08d}-n{attempt}-s{attempt * 10}"
            candidate = wire.Candidate(
                name=save, step=attempt * 10, durable=True, full_state=True, needs=[0]
            )
            durable = wire.CheckpointView(
                last_durable_step=attempt * 10,
                last_durable_name=save,
                last_durable_at=time.time(),
                valid=attempt,
            )
            for rank in (0, 1):
                fields = {"pinned": [save], "checkpoint": durable}
                if rank == 0:
                    fields |= {"candidates": [candidate]}
                await pods.of_rank(rank).say(**fields)
            await settled(operator, looks=1)
            died = await pods.of_rank(attempt % 2).crash()
            await eventually(lambda: is_training(cluster, key, attempt + 1), what="again")  # noqa: B023
            heard.append(timeline(operator.lines(), key, attempt=attempt + 1, died=died))
    return {
        "times": len(heard),
        "fast_path_share": statistics.mean(entry["fast"] for entry in heard),
        **{
            f"{name}_ms_median": round(statistics.median(e[name] for e in heard) * 1000, 1)
            for name in ("decision", "go")
        },
        **{
            f"{name}_ms_max": round(max(e[name] for e in heard) * 1000, 1)
            for name in ("decision", "go")
        },
    }


async def large_gang(
    cluster: KubeCluster, operator: CountedOperator, *, space: Kube, ranks: int, seconds: float
) -> dict:
    """One gang whose every rank tells of a step a second; then one of them dies."""
    key = JobKey(space.namespace, "large")
    job = a_job(namespace=key.namespace, name=key.name, replicas=ranks)
    job["spec"]["template"]["spec"]["schedulerName"] = "played"
    before, cpu = await operator.totals(), operator.cpu_seconds()
    began = time.monotonic()
    async with PlayedPods(cluster, key) as pods:
        await make_jobs(cluster, [job])
        await eventually(lambda: is_training(cluster, key, 1), within=600, what="it trains")
        started, started_in = await operator.totals(), time.monotonic() - began
        start_cpu = operator.cpu_seconds() - cpu
        await settled(operator)
        quiet, cpu, began = await operator.totals(), operator.cpu_seconds(), time.monotonic()
        told = 0
        while (step := int(time.monotonic() - began) + 1) <= seconds:
            for rank in range(ranks):
                await pods.of_rank(rank).has_reached(step)
                told += 1
            await asyncio.sleep(max(began + step - time.monotonic(), 0))
        took, spent = time.monotonic() - began, operator.cpu_seconds() - cpu
        trained = await operator.totals()
        cpu = operator.cpu_seconds()
        died = await pods.of_rank(ranks // 2).crash()
        await eventually(lambda: is_training(cluster, key, 2), within=600, what="again")
        heard = timeline(operator.lines(), key, attempt=2, died=died)
        return {
            "ranks": ranks,
            "start": {
                "seconds": round(started_in, 1),
                "operator_cpu_seconds": round(start_cpu, 2),
                "passes": started.passes - before.passes,
            },
            "progress": {
                "reports_a_second": round(told / took, 1),
                "passes_a_second": round((trained.passes - quiet.passes) / took, 2),
                "cores_of_the_operator": round(spent / took, 3),
                "cpu_ms_a_report": round(spent * 1000 / told, 3),
            },
            "crash": {
                "decision_ms": round(heard["decision"] * 1000, 1),
                "go_ms": round(heard["go"] * 1000, 1),
                "operator_cpu_seconds": round(operator.cpu_seconds() - cpu, 2),
            },
            "rss_mib": round(operator.rss_mib(), 1),
        }


def timeline(
    lines: list[dict[str, Any]], key: JobKey, *, attempt: int, died: float
) -> dict[str, float]:
    """Seconds from a trainer's death, by the operator's own log."""
    ours = [x for x in lines if (x.get("job"), x.get("attempt")) == (str(key), attempt)]
    decided = next(at(line) for line in ours if line["message"] == "decided")
    going = [line for line in ours if any(" go" in action for action in line.get("actions", []))]
    other = [line for line in ours if any("prepare" in a for a in line.get("actions", []))]
    return {"decision": decided - died, "go": at(going[0]) - died, "fast": float(not other)}


def at(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["time"]).timestamp()


async def is_training(cluster: KubeCluster, key: JobKey, attempt: int) -> bool:
    status = ((await cluster.get_job(key)) or {}).get("status") or {}
    return status.get("phase") == "Running" and status.get("attempt") == attempt


async def measure(kube: Kube, *, jobs: int, times: int, ranks: int) -> dict[str, Any]:
    kube.apply(crdgen.crd())
    space = kube.make_namespace(f"load-{uuid.uuid4().hex[:6]}")
    configuration = await load_configuration(kubeconfig=kube.kubeconfig)
    cluster = KubeCluster(configuration, user_agent="operator-load")
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "operator.log"
        operator = CountedOperator(kube.kubeconfig, space.namespace, log)
        try:
            await operator.start()
            result: dict[str, Any] = {"load_average": os.getloadavg()}
            if times:
                result["crash"] = await crashes(cluster, operator, space=space, times=times)
            if jobs:
                result["load"] = await load(cluster, operator, space=space, jobs=jobs)
            if ranks:
                result["gang"] = await large_gang(
                    cluster, operator, space=space, ranks=ranks, seconds=30
                )
            return result
        finally:
            await operator.stop()
            keep = os.environ.get("RTJ_KEEP_LOG")
            if keep:
                Path(keep).write_bytes(log.read_bytes())
            await cluster.close()
            space.drop_namespace(space.namespace)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--crashes", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=300)
    arguments = parser.parse_args()
    with api_server(name="rtj-load") as kube:
        result = asyncio.run(
            measure(kube, jobs=arguments.jobs, times=arguments.crashes, ranks=arguments.ranks)
        )
    json.dump({"benchmark": "operator_load", **result}, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
