"""`rtj list`: a row a job, with what kubectl's columns cannot work out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rtj_api.status import ConditionType

from rtj_cli.jobs import Seen
from rtj_cli.views.words import ago, percent


def goodput(job: Seen) -> float | None:
    """Productive share of the time so far; of a failed job without what no save holds."""
    ledger = job.status.ledger
    if ledger is None or ledger.until <= ledger.since:
        return None
    useful = ledger.seconds.productive
    if job.status.is_true(ConditionType.FAILED):
        useful -= ledger.unsaved_seconds
    return max(0.0, useful) / (ledger.until - ledger.since)


def row(job: Seen) -> dict[str, Any]:
    status = job.status
    lag = None
    if status.progress.step is not None and status.checkpoint.last_durable_step is not None:
        lag = max(0, status.progress.step - status.checkpoint.last_durable_step)
    spares = status.spares
    return {
        "namespace": job.namespace,
        "name": job.name,
        "phase": status.phase.value if job.is_looked_at else "Unseen",
        "reason": job.reason,
        "step": status.progress.step,
        "loss": status.progress.loss,
        "durableStep": status.checkpoint.last_durable_step,
        "durableTime": status.checkpoint.last_durable_time,
        "unsavedSteps": lag,
        "attempt": status.attempt,
        "restarts": status.restarts,
        "goodput": goodput(job),
        "replicas": job.replicas,
        "size": job.replicas if status.elastic is None else status.elastic.size,
        "spares": None if spares is None else f"{spares.ready}/{spares.wanted}",
        "queue": (job.spec.get("scheduling") or {}).get("queue"),
        "suspended": job.is_suspended,
        "createdAt": job.created_at,
    }


def columns(
    *, now: float, everywhere: bool, wide: bool
) -> Mapping[str, Callable[[Mapping[str, Any]], str]]:
    def told(key: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda one: "" if one[key] is None else str(one[key])

    found: dict[str, Callable[[Mapping[str, Any]], str]] = {}
    if everywhere:
        found["namespace"] = told("namespace")
    found |= {
        "name": told("name"),
        "phase": told("phase"),
        "step": told("step"),
        "durable": told("durableStep"),
        "saved": lambda one: ago(one["durableTime"], now=now),
        "attempt": told("attempt"),
        "restarts": told("restarts"),
        "goodput": lambda one: "" if one["goodput"] is None else percent(one["goodput"], 1.0),
        "reason": told("reason"),
        "age": lambda one: ago(one["createdAt"], now=now).removesuffix(" ago"),
    }
    if wide:
        found |= {"ranks": _ranks, "spares": told("spares"), "queue": told("queue")}
    return found


def _ranks(row: Mapping[str, Any]) -> str:
    """`4`, or `2/4` of an elastic gang that is short of two."""
    size, wanted = row["size"], row["replicas"]
    return str(wanted) if size == wanted else f"{size}/{wanted}"


def newest_first(jobs: Iterable[Seen]) -> list[Seen]:
    return sorted(jobs, key=lambda job: (-(job.created_at or 0.0), job.full_name))
