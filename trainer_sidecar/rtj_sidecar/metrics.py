"""The sidecar's metrics: computed from the report whenever somebody asks.

Job-level series are the operator's, which outlive this pod; here is what only this pod knows. Must
never keep a number of its own that the report could contradict after a restart of the sidecar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from rtj_api.wire import Report, SidecarPhase, TrainerState

from rtj_sidecar.traffic import Traffic

PREFIX = "resumable_training_sidecar_"


@dataclass(frozen=True, slots=True)
class SidecarCollector(Collector):
    namespace: str
    job: str
    report: Callable[[], Report]
    traffic: Callable[[], Traffic]

    def collect(self) -> Iterable[Metric]:
        report, traffic = self.report(), self.traffic()
        names = ["namespace", "name", "rank"]
        waits = report.standby
        labels = [
            self.namespace,
            self.job,
            str(report.rank) if waits is None else f"s{waits.spare}",
        ]

        def gauge(name: str, text: str, value: float | None) -> Iterator[Metric]:
            if value is not None:
                family = GaugeMetricFamily(PREFIX + name, text, labels=names)
                family.add_metric(labels, value)
                yield family

        def counter(name: str, text: str, values: dict[str, float], label: str) -> Metric:
            family = CounterMetricFamily(PREFIX + name, text, labels=[*names, label])
            for value, count in values.items():
                family.add_metric([*labels, value], count)
            return family

        trainer, checkpoint, progress = report.trainer, report.checkpoint, report.progress
        yield from gauge(
            "trainer_up",
            "1 while this rank's trainer runs.",
            float(trainer.state is TrainerState.RUNNING),
        )
        yield from gauge("attempt", "Attempt of the highest directive.", report.attempt)
        yield from gauge("progress_step", "Newest step seen, from any source.", progress.step)
        yield from gauge(
            "step_seconds",
            "Median time of this rank's own work in a step, as its progress file tells.",
            progress.step_seconds,
        )
        yield from gauge("progress_loss", "Newest training loss seen.", progress.loss)
        yield from gauge(
            "last_saved_step", "Step of the newest finished save.", checkpoint.last_saved_step
        )
        yield from gauge(
            "last_durable_step",
            "Step of the newest save in the store.",
            checkpoint.last_durable_step,
        )
        yield from gauge(
            "last_durable_timestamp_seconds",
            "When the newest save in the store became durable.",
            checkpoint.last_durable_at,
        )
        yield from gauge(
            "pending_saves", "Finished saves not yet durable.", checkpoint.pending_saves
        )
        yield from gauge(
            "pending_bytes", "Bytes of finished saves not yet durable.", checkpoint.pending_bytes
        )
        yield from gauge("valid_saves", "Saves known to be valid.", checkpoint.valid)
        yield from gauge("invalid_saves", "Saves found invalid.", checkpoint.invalid)
        yield from gauge("pinned_saves", "Saves whole and pinned here.", len(report.pinned))
        yield from gauge(
            "failed", "1 when this attempt cannot go on here.", report.phase is SidecarPhase.FAILED
        )
        yield counter(
            "transferred_bytes",
            "Bytes moved since the sidecar began; what the store copied itself does not count.",
            {
                "store_upload": traffic.uploaded,
                "store_download": traffic.from_store,
                "peer_download": traffic.from_peers,
            },
            "kind",
        )
        problems = GaugeMetricFamily(
            PREFIX + "problem", "1 for each problem that is present.", labels=[*names, "reason"]
        )
        present = [report.problem] if report.problem else []
        for reason in sorted({problem.reason for problem in [*present, *report.degraded]}):
            problems.add_metric([*labels, reason], 1)
        yield problems


def rendered(collector: Collector, *, accept: str) -> tuple[bytes, str]:
    """The page and its content type, for the Accept header of whoever asks."""
    registry = CollectorRegistry()
    registry.register(collector)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
