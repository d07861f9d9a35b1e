"""What the jobs of a namespace have gone through, kept when the jobs are gone: why they restarted,
what was passed over, how long they stood still.

Counted by this process from the statuses that it sees one after the other, so these series begin at
0 with each replica that works, as a process's own do; rate() and increase() read them rightly.
Counts of one job are not here: those are rebuilt from its status. Must never hold a job's name but
in an exemplar:
the job that a bar of a histogram is made of.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram
from rtj_api.reason_texts import TEXTS
from rtj_api.reasons import Charge, Reason
from rtj_api.status import Status

from rtj_operator.core.observed import JobKey
from rtj_operator.core.plan import Plan

# Trainings are slower than requests.
BUCKETS = (1, 5, 15, 30, 60, 120, 300, 600, 1800)
# Only a cause of a restart has a charge.
CAUSES = tuple(str(reason) for reason, text in TEXTS.items() if text.charge != Charge.NONE)


@dataclass(slots=True)
class History:
    """`registry` is the operator's."""

    registry: CollectorRegistry
    restart_reasons: Counter = field(init=False)
    fallbacks: Counter = field(init=False)
    restore_seconds: Histogram = field(init=False)
    downtime_seconds: Histogram = field(init=False)
    _known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.restart_reasons = Counter(
            "training_job_restart_reasons",
            "Automatic restarts of all jobs of a namespace, by cause, since this replica works; "
            "outlives the jobs.",
            ["namespace", "reason"],
            registry=self.registry,
        )
        self.fallbacks = Counter(
            "training_job_checkpoint_fallbacks",
            "Newer checkpoints passed over by a start for an older one, since this replica works.",
            ["namespace"],
            registry=self.registry,
        )
        self.restore_seconds = Histogram(
            "training_job_restore_duration_seconds",
            "From the choice of the checkpoint until all ranks had it.",
            ["namespace"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.downtime_seconds = Histogram(
            "training_job_downtime_seconds",
            "From a fault until the first step after it.",
            ["namespace"],
            buckets=BUCKETS,
            registry=self.registry,
        )

    def seen(self, key: JobKey, *, before: Status | None, after: Status) -> None:
        """One job's status, and the one that was seen before it; None: the job is new to us, and
        what it went through is not counted again."""
        namespace = key.namespace
        self._begin(namespace)
        if before is None:
            return
        now, then = after.current, before.current
        if after.restarts > before.restarts and now is not None:
            self.restart_reasons.labels(namespace, now.cause).inc()
        if now is None or then is None or now.attempt != then.attempt:
            return
        chosen = after.resume if after.resume is not None and not after.resume.scratch else None
        if chosen is not None and now.restored_at is not None and then.restored_at is None:
            took = max(0.0, now.restored_at - chosen.at)
            example = {"name": key.name, "step": str(chosen.step)}
            self.restore_seconds.labels(namespace).observe(took, exemplar=example)
        stepped = now.first_step_at if then.first_step_at is None else None
        if stepped is not None and now.fault_at is not None:
            took = max(0.0, stepped - now.fault_at)
            example = {"name": key.name, "attempt": str(now.attempt)}
            self.downtime_seconds.labels(namespace).observe(took, exemplar=example)

    def decided(self, namespace: str, plan: Plan) -> None:
        """A plan whose status was written."""
        passed = sum(note.reason == Reason.CHECKPOINT_FALLBACK for note in plan.notes)
        if passed:
            self.fallbacks.labels(namespace).inc(passed)

    def _begin(self, namespace: str) -> None:
        """A series that is born above 0 is not seen to rise: all begin at 0."""
        if namespace in self._known:
            return
        self._known.add(namespace)
        for cause in CAUSES:
            self.restart_reasons.labels(namespace, cause)
        for series in (self.fallbacks, self.restore_seconds, self.downtime_seconds):
            series.labels(namespace)
