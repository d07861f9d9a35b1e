"""What Prometheus sees of the operator itself, beside the series of the jobs.

`docs/metrics.md` is generated from here, so that no name can be in one place only. Must never
hold a series of one job: see `job_metrics`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from rtj_operator.core.observed import JobKey
from rtj_operator.core.plan import Plan
from rtj_operator.shell.history import History
from rtj_operator.shell.job_metrics import JobTable

PASS_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


OPERATOR = "resumable_training_operator"


@dataclass(slots=True)
class QueueGauges:
    """Read at each scrape."""

    depth: Callable[[], float]
    oldest_seconds: Callable[[], float]
    longest_pass_seconds: Callable[[], float]
    retries: Callable[[], float]
    followed_pods: Callable[[], float]
    connected_pods: Callable[[], float]


@dataclass(slots=True)
class OperatorMetrics:
    """The operator's own series, and the jobs'. `registry` is what the HTTP server exposes."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    jobs: JobTable = field(init=False)
    history: History = field(init=False)
    handler_runs: Counter = field(init=False)
    handler_seconds: Histogram = field(init=False)
    decisions: Counter = field(init=False)
    watch_activity: Gauge = field(init=False)
    watch_events: Counter = field(init=False)
    queue_adds: Counter = field(init=False)
    queue_seconds: Histogram = field(init=False)
    api_requests: Counter = field(init=False)
    api_seconds: Histogram = field(init=False)
    refused: Gauge = field(init=False)
    leader: Gauge = field(init=False)
    node_loss_detection: Gauge = field(init=False)

    def __post_init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self.registry
        self.history = History(registry)
        self.jobs = JobTable(
            changed=lambda key, before, after: self.history.seen(key, before=before, after=after)
        )
        registry.register(self.jobs)
        self.handler_runs = Counter(
            f"{OPERATOR}_handler_runs",
            "Passes of the loop, by how they ended: ok, conflict, retry or error.",
            ["handler", "result"],
            registry=registry,
        )
        for result in ("ok", "conflict", "retry", "error"):
            self.handler_runs.labels("reconcile", result)
        self.handler_seconds = Histogram(
            f"{OPERATOR}_handler_duration_seconds",
            "Time of one pass of the loop.",
            ["handler"],
            buckets=PASS_BUCKETS,
            registry=registry,
        )
        self.decisions = Counter(
            f"{OPERATOR}_plans",
            "Plans carried out, by the rule that made them.",
            ["rule"],
            registry=registry,
        )
        self.watch_activity = Gauge(
            f"{OPERATOR}_watch_last_activity_timestamp_seconds",
            "Unix time of the last event, list or watch answered, by resource.",
            ["resource"],
            registry=registry,
        )
        self.watch_events = Counter(
            f"{OPERATOR}_watch_events", "Events received.", ["resource"], registry=registry
        )
        self.queue_adds = Counter(
            f"{OPERATOR}_queue_adds", "Hints that a job is to be looked at.", registry=registry
        )
        self.queue_seconds = Histogram(
            f"{OPERATOR}_queue_duration_seconds",
            "Time for which a job that was due waited for a worker.",
            buckets=PASS_BUCKETS,
            registry=registry,
        )
        self.api_requests = Counter(
            f"{OPERATOR}_api_requests",
            "Requests of the loop to the API server; code 0: it was not reached.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self.api_seconds = Histogram(
            f"{OPERATOR}_api_request_duration_seconds",
            "Time of one such request.",
            ["verb", "resource"],
            buckets=PASS_BUCKETS,
            registry=registry,
        )
        self.refused = Gauge(
            f"{OPERATOR}_permission_refused_timestamp_seconds",
            "Unix time at which the API server last refused a request because the operator may not "
            "do that; absent where it never did.",
            ["verb", "group", "resource"],
            registry=registry,
        )
        self.leader = Gauge(
            f"{OPERATOR}_leader",
            "1 on the replica that works; it alone exports per-job series.",
            registry=registry,
        )
        self.node_loss_detection = Gauge(
            f"{OPERATOR}_node_loss_detection",
            "1: a dead node is noticed by its heartbeats; 0, limited: it may not read nodes, so it "
            "notices when Kubernetes evicts their pods.",
            registry=registry,
        )

    def read(self, gauges: QueueGauges) -> None:
        """Expose what is read at each scrape."""
        rows: Iterable[tuple[str, str, Callable[[], float]]] = (
            ("queue_depth", "Jobs that wait for a worker.", gauges.depth),
            (
                "queue_oldest_seconds",
                "Age of the oldest change that no worker has taken.",
                gauges.oldest_seconds,
            ),
            (
                "longest_pass_seconds",
                "Age of the longest pass that still runs.",
                gauges.longest_pass_seconds,
            ),
            ("queue_retries", "Passes put off by an error, since start.", gauges.retries),
            ("reports_followed", "Pods whose reports are asked for.", gauges.followed_pods),
            ("reports_connected", "Of these, pods that are heard now.", gauges.connected_pods),
        )
        for name, meaning, value in rows:
            Gauge(f"{OPERATOR}_{name}", meaning, registry=self.registry).set_function(value)

    def build(self, *, version: str, python: str, kopf: str) -> None:
        info = Gauge(
            f"{OPERATOR}_build_info",
            "1; the labels say what runs.",
            ["version", "python", "kopf"],
            registry=self.registry,
        )
        info.labels(version, python, kopf).set(1)

    # --- what the loop and the client report -----------------------------------------------------

    def pass_ended(self, *, result: str, seconds: float) -> None:
        self.handler_runs.labels("reconcile", result).inc()
        self.handler_seconds.labels("reconcile").observe(seconds)

    def decided(self, key: JobKey, plan: Plan) -> None:
        self.history.decided(key.namespace, plan)
        self.decisions.labels(plan.rule).inc()

    def requested(self, verb: str, resource: str, code: int, seconds: float) -> None:
        self.api_requests.labels(verb, resource, str(code)).inc()
        self.api_seconds.labels(verb, resource).observe(seconds)

    def watched(self, resource: str) -> None:
        self.watch_activity.labels(resource).set(time.time())
