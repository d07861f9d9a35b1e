"""The series of each job, made at each scrape from the status last seen.

So they survive a restart of the operator, never count twice, and vanish with the job. Names and
meanings stand in `job_series`. Must never count in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from pydantic import ValidationError
from rtj_api.status import ConditionType, JobPhase, Status, parse_time

from rtj_operator.core import governor, time_ledger
from rtj_operator.core.gangs import QUEUE_LABEL
from rtj_operator.core.observed import JobKey, Observed
from rtj_operator.shell.api import Raw
from rtj_operator.shell.job_series import (
    INFO_LABELS,
    INFO_MEANING,
    INFO_NAME,
    JOB_LABELS,
    JOB_SERIES,
    PHASE_MEANING,
    PHASE_NAME,
    REASON_MEANING,
    REASON_NAME,
    RISK_MEANING,
    RISK_NAME,
    TIME_MEANING,
    TIME_NAME,
    JobFacts,
)


class JobTable:
    """The jobs, as last seen; and the collector over them. `clock` gives Unix seconds; `changed` is
    told of each newer status, with the one before it."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        changed: Callable[[JobKey, Status | None, Status], None] = lambda *_: None,
    ) -> None:
        self._jobs: dict[JobKey, JobFacts] = {}
        self._changed = changed
        self._clock = clock

    def seen(self, key: JobKey, raw: Raw | None) -> None:
        if raw is None:
            self._jobs.pop(key, None)
            return
        version = raw["metadata"]["resourceVersion"]
        known = self._jobs.get(key)
        if known is not None and known.resource_version == version:
            return
        try:
            status = Status.model_validate(raw.get("status") or {})
        except ValidationError:
            return  # the pass itself complains
        created = float(parse_time(raw["metadata"]["creationTimestamp"]))
        interval = known.interval_seconds if known else 0.0
        self._jobs[key] = JobFacts(created, version, status, interval, info_of(raw))
        self._changed(key, known.status if known else None, status)

    def observed(self, observed: Observed) -> None:
        """Take what only the sidecars' reports say."""
        job = observed.job
        known = self._jobs.get(job.key) if job else None
        if job is None or known is None:
            return
        reports = [observed.report_of(pod) for pod in observed.pods]
        found = [r.checkpoint.interval_seconds or 0 for r in reports if r is not None]
        if found:
            self._jobs[job.key] = replace(known, interval_seconds=max(found))

    def version_of(self, key: JobKey) -> str | None:
        """The resourceVersion of the job as last read or written by us."""
        facts = self._jobs.get(key)
        return facts.resource_version if facts else None

    def __len__(self) -> int:
        return len(self._jobs)

    def collect(self) -> Iterator[Metric]:
        jobs = list(self._jobs.items())
        for series in JOB_SERIES:
            family: CounterMetricFamily | GaugeMetricFamily
            if series.kind == "counter":
                family = CounterMetricFamily(series.name, series.meaning, labels=JOB_LABELS)
            else:
                family = GaugeMetricFamily(series.name, series.meaning, labels=JOB_LABELS)
            for key, job in jobs:
                value = series.value(job)
                if value is not None:
                    family.add_metric([key.namespace, key.name], value)
            yield family
        phases = GaugeMetricFamily(PHASE_NAME, PHASE_MEANING, labels=(*JOB_LABELS, "phase"))
        reasons = GaugeMetricFamily(REASON_NAME, REASON_MEANING, labels=(*JOB_LABELS, "reason"))
        for key, job in jobs:
            for phase in JobPhase:
                current = float(job.status.phase == phase)
                phases.add_metric([key.namespace, key.name, str(phase)], current)
            for reason in sorted(reasons_of(job.status)):
                reasons.add_metric([key.namespace, key.name, reason], 1)
        yield phases
        yield reasons
        yield self._times(jobs)
        info = InfoMetricFamily(INFO_NAME, INFO_MEANING, labels=JOB_LABELS)
        for key, job in jobs:
            info.add_metric(
                [key.namespace, key.name], dict(zip(INFO_LABELS, job.info, strict=True))
            )
        yield info
        risks = GaugeMetricFamily(RISK_NAME, RISK_MEANING, labels=JOB_LABELS)
        for key, job in jobs:
            risk = governor.work_at_risk(job.status, now=self._clock())
            if risk is not None:
                risks.add_metric([key.namespace, key.name], risk)
        yield risks

    def _times(self, jobs: list[tuple[JobKey, JobFacts]]) -> Metric:
        """The ledgers with the stage that lasts now: what the next status write will enter."""
        family = CounterMetricFamily(TIME_NAME, TIME_MEANING, labels=(*JOB_LABELS, "bucket"))
        now = round(self._clock() * 1e6) / 1e6
        for key, job in jobs:
            status = job.status
            ledger = time_ledger.settled(status, status, now=now, created_at=job.created_at)
            for bucket, seconds in ledger.seconds.model_dump().items():
                family.add_metric([key.namespace, key.name, bucket], seconds)
        return family


def info_of(raw: Raw) -> tuple[str, ...]:
    """The values of INFO_LABELS; empty where the job does not say."""
    meta, spec = raw["metadata"], raw.get("spec") or {}
    pod = (spec.get("template") or {}).get("spec") or {}
    labels = meta.get("labels") or {}
    said = (
        spec.get("framework"),
        labels.get(QUEUE_LABEL),
        pod.get("priorityClassName"),
        labels.get("team"),
    )
    return tuple(str(value or "") for value in said)


def reasons_of(status: Status) -> set[str]:
    """Reasons that a person who looks at the job would want to know, as the enum has them."""
    found: set[str] = set()
    if status.hold is not None:
        found.add(status.hold.reason)
    for condition in status.conditions:
        bad = {
            ConditionType.ACCEPTED: "False",
            ConditionType.RUNNING: "False",
            ConditionType.CHECKPOINT_FRESH: "False",
            ConditionType.SUSPENDED: "True",
            ConditionType.DEGRADED: "True",
            ConditionType.FAILED: "True",
        }.get(condition.type)
        if condition.status == bad and not status.is_true(ConditionType.COMPLETE):
            found.add(condition.reason)
    return found
