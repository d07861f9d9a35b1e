"""Stories of the simulation as a Prometheus would have scraped them, hours in seconds.

The statuses, decisions and reports are those of the real core in the simulated world; the series
are made by the operator's and the sidecar's own collectors, at each moment of the story, and given
to Prometheus as history. What no simulation has (a loss, bytes) is played and named so below. Must
never be taken for a proof that the operator exports them: that is the end-to-end tests' part.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString
from rtj_api.status_base import format_time
from rtj_operator.core.observed import JobKey, JobSpec, Observed, ReportView
from rtj_operator.core.plan import Plan
from rtj_operator.shell.api import Cluster
from rtj_operator.shell.history import History
from rtj_operator.shell.job_metrics import JobTable
from rtj_operator.shell.metrics import OperatorMetrics, QueueGauges
from rtj_operator.shell.node_ledger import KeptLedger
from rtj_sidecar.metrics import SidecarCollector
from rtj_sidecar.traffic import Traffic

from kit.simulated import World
from kit.simulated_operator import Operator

NAMESPACE = "ml"
STATE_BYTES = 3_000_000_000  # played: of a save
Play = Callable[[Operator], None]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What changed in one story: a status that was written, or what a scrape would have seen."""

    at: float
    raw: dict[str, Any] | None = None
    plan: Plan | None = None
    seen: Observed | None = None
    pass_seconds: float = 0.0


@dataclass(kw_only=True)
class Recorder:
    """Plays one story from `begin` (Unix time) and keeps its moments."""

    name: str
    begin: float
    every: float
    moments: list[Moment] = field(default_factory=list)

    def play(self, play: Play, *, world: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        fields = {"replicas": 2, "run_id": f"{NAMESPACE}/{self.name}", "template_hash": "h1"}
        job = JobSpec(**{**fields, **spec})
        made = World(spec=job, now=self.begin, created_at=self.begin - 2, **world)
        operator = Operator(made)
        due = self.begin
        began = time.perf_counter()

        def written(what: str) -> None:
            nonlocal began
            took, began = time.perf_counter() - began, time.perf_counter()
            if what == "status":
                meta = {"resourceVersion": str(made.job_rv), "uid": made.job_uid}
                meta["creationTimestamp"] = format_time(made.created_at)
                raw = {"metadata": meta, "status": made.status}
                self._add(Moment(at=made.now, raw=raw, plan=operator.plans[-1], pass_seconds=took))

        def ticked() -> bool:
            nonlocal due, began
            if made.now >= due:
                due += self.every
                self._add(Moment(at=made.now, seen=made.observe()))
            began = time.perf_counter()
            return False

        made.after, operator.more_hint = written, ticked
        play(operator)

    def _add(self, moment: Moment) -> None:
        self.moments.append(moment)


@dataclass(kw_only=True)
class Fleet:
    """Several stories at once, scraped every `every` seconds of theirs."""

    begin: float
    every: float = 5.0
    _stories: list[Recorder] = field(default_factory=list)
    _now: float = 0.0

    def add(self, name: str, play: Play, *, world: dict[str, Any], spec: dict[str, Any]) -> None:
        recorder = Recorder(name=name, begin=self.begin, every=self.every)
        recorder.play(play, world=world, spec=spec)
        self._stories.append(recorder)

    @property
    def end(self) -> float:
        return max(moment.at for story in self._stories for moment in story.moments)

    def scraped(self) -> str:
        """All scrapes, in OpenMetrics's text with times."""
        page = _Page()
        scrape = _Scrape(clock=lambda: self._now)
        left = {story.name: list(story.moments) for story in self._stories}
        self._now = self.begin
        while self._now <= self.end:
            for name, moments in left.items():
                while moments and moments[0].at <= self._now:
                    scrape.take(JobKey(NAMESPACE, name), moments.pop(0))
            scrape.before()
            for labels, family in scrape.families():
                page.add(family, labels=labels, at=self._now)
            self._now += self.every
        return page.text()


class _Scrape:
    """The collectors, and what has happened so far."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._followed = self._heard = 0.0
        self._metrics = OperatorMetrics()
        self._metrics.leader.set(1)
        self._metrics.build(version="played", python="3", kopf="1")
        self._metrics.read(
            QueueGauges(
                depth=lambda: 0.0,
                oldest_seconds=lambda: 0.0,
                longest_pass_seconds=lambda: 0.0,
                retries=lambda: 0.0,
                followed_pods=lambda: self._followed,
                connected_pods=lambda: self._heard,
            )
        )
        # The jobs again, by the story's clock; the other table stays empty.
        self._jobs = CollectorRegistry()
        history = History(self._jobs)
        self._history = history
        self._table = JobTable(
            clock=clock,
            changed=lambda key, before, after: history.seen(key, before=before, after=after),
        )
        self._jobs.register(self._table)
        nowhere = cast(Cluster, None)
        self._nodes = KeptLedger(nowhere, facts=dict, namespace=None, name=None, clock=clock)
        self._seen: dict[JobKey, Observed] = {}
        # Newest durable step, when it was first seen, and the time since the one before.
        self._saves: dict[JobKey, tuple[int, float, float | None]] = {}

    def take(self, key: JobKey, moment: Moment) -> None:
        if moment.raw is not None:
            self._table.seen(key, moment.raw)
            self._metrics.pass_ended(result="ok", seconds=moment.pass_seconds)
            self._metrics.requested("patch", "status", 200, moment.pass_seconds)
            self._metrics.watched("resumabletrainingjobs")
            self._metrics.watch_events.labels("resumabletrainingjobs").inc()
        if moment.plan is not None:
            self._history.decided(key.namespace, moment.plan)
            self._metrics.decisions.labels(moment.plan.rule).inc()
        if moment.seen is not None and moment.seen.job is not None:
            seen = replace(moment.seen, job=replace(moment.seen.job, key=key))
            seen = replace(seen, reports=self._with_interval(key, seen, at=moment.at))
            self._table.observed(seen)
            self._seen[key] = seen

    def _with_interval(self, key: JobKey, seen: Observed, *, at: float) -> Mapping[str, ReportView]:
        """The reports with the time between saves, which a simulated sidecar does not measure."""
        views = [view for view in seen.reports.values() if view.report is not None]
        step = max((view.report.checkpoint.last_durable_step or 0 for view in views), default=0)
        before, since, interval = self._saves.get(key, (0, at, None))
        if step > before:
            interval = at - since if before else None
            self._saves[key] = (step, at, interval)
        made = dict(seen.reports)
        for uid, view in seen.reports.items():
            if view.report is not None and interval is not None:
                told = {"interval_seconds": interval}
                checkpoint = view.report.checkpoint.model_copy(update=told)
                report = view.report.model_copy(update={"checkpoint": checkpoint})
                made[uid] = replace(view, report=report)
        return made

    def before(self) -> None:
        self._metrics.watch_activity.labels("resumabletrainingjobs").set(self._clock())
        reports = [view for seen in self._seen.values() for view in seen.reports.values()]
        self._followed = float(len(reports))
        self._heard = float(sum(view.connected for view in reports))

    def families(self) -> Iterator[tuple[dict[str, str], Metric]]:
        here = {"job": "resumable-training-operator", "instance": "played:9090"}
        for family in self._metrics.registry.collect():
            if not family.name.startswith("training_job"):
                yield here, family
        for family in (*self._jobs.collect(), *self._nodes.collect()):
            yield here, family
        for key, seen in self._seen.items():
            for view in seen.reports.values():
                if view.report is not None and view.connected:
                    collector = _sidecar(key, view.report)
                    where = {"job": "sidecars", "instance": f"{key.name}-{view.report.rank}"}
                    for family in collector.collect():
                        yield where, family


def _sidecar(key: JobKey, report: Any) -> SidecarCollector:
    step = report.progress.step
    if step is not None:
        loss = 2.0 * math.exp(-step / 400) + 0.05 * math.sin(step / 7)  # played
        progress = report.progress.model_copy(update={"loss": loss})
        report = report.model_copy(update={"progress": progress})
    durable = report.checkpoint.last_durable_step or 0
    pinned = [int(found[1]) for name in report.pinned if (found := re.search(r"-s(\d+)$", name))]
    if pinned:  # a simulated sidecar tells of its saves by their names
        checkpoint = report.checkpoint.model_copy(update={"last_saved_step": max(pinned)})
        report = report.model_copy(update={"checkpoint": checkpoint})
    sent = Traffic(uploaded=durable * STATE_BYTES // 1000)  # played
    return SidecarCollector(key.namespace, key.name, lambda: report, lambda: sent)


class _Page:
    """OpenMetrics wants each family's samples together, and each series in the order of time."""

    def __init__(self) -> None:
        self._heads: dict[str, str] = {}
        self._lines: dict[str, dict[str, list[str]]] = {}

    def add(self, family: Metric, *, labels: Mapping[str, str], at: float) -> None:
        kind = "unknown" if family.type == "untyped" else family.type
        self._heads[family.name] = f"# TYPE {family.name} {kind}\n"
        series = self._lines.setdefault(family.name, {})
        for sample in family.samples:
            name = _series(sample, labels)
            value = floatToGoString(sample.value)
            series.setdefault(name, []).append(f"{name} {value} {at}\n")

    def text(self) -> str:
        parts = []
        for name, head in self._heads.items():
            parts.append(head)
            for lines in self._lines[name].values():
                parts += lines
        return "".join(parts) + "# EOF\n"


def _series(sample: Sample, labels: Mapping[str, str]) -> str:
    every = ",".join(f'{name}="{text}"' for name, text in {**labels, **sample.labels}.items())
    return f"{sample.name}{{{every}}}"
