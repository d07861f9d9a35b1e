"""The operator under load, looked at from outside: what it asked for, what it costs.

For the scale tier and the benchmarks. Counts come from its own metrics, cost from /proc. Must
never look so often that looking is the load.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from rtj_api import contract
from rtj_operator.core.observed import JobKey
from rtj_operator.core.policy import Policy
from rtj_operator.shell.cluster import KubeCluster

from kit.operator_process import OperatorProcess

PREFIX = "resumable_training_operator"
TICKS = os.sysconf("SC_CLK_TCK")
WRITES = ("POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True)
class Totals:
    """One scrape, added up since the operator started."""

    samples: tuple[Sample, ...]

    def of(self, name: str, **labels: str) -> float:
        return sum(
            s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()
        )

    def requests(self, **labels: str) -> int:
        """Of the loop to the API server; labels: verb, resource, code."""
        return int(self.of(f"{PREFIX}_api_requests_total", **labels))

    def done(self, verb: str, resource: str) -> int:
        """Requests that the API server carried out."""
        codes = ("200", "201", "202")
        return sum(self.requests(verb=verb, resource=resource, code=code) for code in codes)

    @property
    def passes(self) -> float:
        return self.of(f"{PREFIX}_handler_runs_total", result="ok")

    @property
    def is_waiting(self) -> bool:
        """Something waits for a worker, or a pass runs for long."""
        return (
            self.of(f"{PREFIX}_queue_depth") > 0 or self.of(f"{PREFIX}_longest_pass_seconds") > 0.5
        )

    @property
    def job_series(self) -> int:
        """Series that belong to one job, and go with it; what a namespace's jobs did stays."""
        return sum(s.name.startswith("training_job_") and "name" in s.labels for s in self.samples)


class CountedOperator(OperatorProcess):
    """The operator, looked at from outside."""

    async def totals(self) -> Totals:
        """One scrape. It costs the operator about as much as a few passes: ask seldom."""
        _, text = await self.get("/metrics")
        return Totals(tuple(s for f in text_string_to_metric_families(text) for s in f.samples))

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


async def settled(
    operator: CountedOperator, *, jobs: int = 1, looks: int = 2, every: float = 1.5
) -> Totals:
    """The totals once, in `looks` looks, `jobs` jobs were looked at only by way of precaution."""
    last, same, at = await operator.totals(), 0, time.monotonic()
    while same < looks:
        await asyncio.sleep(every)
        now, then, at = await operator.totals(), at, time.monotonic()
        by_itself = 2 * jobs * (at - then) / Policy().look_again_seconds
        same = same + 1 if now.passes - last.passes <= by_itself and not now.is_waiting else 0
        last = now
    return last


async def in_batches(calls: Iterable[Awaitable[Any]], *, size: int = 16) -> None:
    slots = asyncio.Semaphore(size)

    async def one(call: Awaitable[Any]) -> None:
        async with slots:
            await call

    await asyncio.gather(*(one(call) for call in calls))


async def make_jobs(cluster: KubeCluster, jobs: Iterable[dict[str, Any]]) -> None:
    """Create many jobs faster than one kubectl would."""
    await in_batches(
        cluster._request(
            "POST", _jobs_path(job["metadata"]["namespace"]), resource="jobs", body=job
        )
        for job in jobs
    )


async def statuses(cluster: KubeCluster, namespace: str) -> dict[JobKey, dict[str, Any]]:
    """Of every job there, by one list."""
    jobs = await cluster._list(_jobs_path(namespace), resource="jobs")
    return {JobKey(namespace, j["metadata"]["name"]): j.get("status") or {} for j in jobs}


def _jobs_path(namespace: str) -> str:
    return f"/apis/{contract.API_VERSION}/namespaces/{namespace}/{contract.PLURAL}"
