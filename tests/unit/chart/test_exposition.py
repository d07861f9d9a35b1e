"""What operator and sidecar expose is clean by Prometheus' own lint, and goes with its job."""

from __future__ import annotations

import subprocess

import pytest
from kit import tools
from prometheus_client import CollectorRegistry, generate_latest
from rtj_api.wire import CheckpointView, ProgressView, Report
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.metrics import OperatorMetrics, QueueGauges
from rtj_sidecar.metrics import SidecarCollector
from rtj_sidecar.traffic import Traffic

JOB = {
    "metadata": {
        "namespace": "ml",
        "name": "gpt",
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2025-01-01T00:00:00Z",
    },
    "spec": {},
    "status": {"starts": 2, "restarts": 1},
}
TARGET_LABELS = {"job", "instance", "pod", "container", "service", "endpoint"}


def of_operator() -> CollectorRegistry:
    metrics = OperatorMetrics()
    metrics.build(version="1", python="3", kopf="1")
    metrics.read(QueueGauges(*([lambda: 0.0] * 6)))
    metrics.jobs.seen(JobKey("ml", "gpt"), JOB)
    metrics.pass_ended(result="ok", seconds=0.1)
    metrics.requested("GET", "pods", 200, 0.1)
    metrics.watched("pods")
    return metrics.registry


def of_sidecar() -> CollectorRegistry:
    report = Report(
        job_uid="",
        pod_uid="",
        boot_id="",
        rank=0,
        sequence=0,
        sent_at=0,
        progress=ProgressView(step=0, loss=0, step_seconds=0),
        checkpoint=CheckpointView(last_saved_step=0, last_durable_step=0, last_durable_at=0),
    )
    registry = CollectorRegistry()
    registry.register(
        SidecarCollector(namespace="ml", job="gpt", report=lambda: report, traffic=Traffic)
    )
    return registry


@pytest.mark.parametrize("make", [of_operator, of_sidecar])
def test_promtool_finds_nothing_to_say(make) -> None:  # type: ignore[no-untyped-def]
    text = generate_latest(make())
    done = subprocess.run(
        [tools.promtool(), "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


@pytest.mark.parametrize("make", [of_operator, of_sidecar])
def test_no_label_hides_or_is_hidden_by_one_of_the_target(make) -> None:  # type: ignore[no-untyped-def]
    for family in make().collect():
        for sample in family.samples:
            assert not TARGET_LABELS & set(sample.labels), sample.name


def test_series_of_a_hundred_jobs_go_with_them() -> None:
    """The page is as long as before, so no series of any kind was forgotten."""
    metrics = OperatorMetrics()
    meta = JOB["metadata"]
    assert isinstance(meta, dict)
    metrics.jobs.seen(JobKey("ml", "first"), JOB)
    metrics.jobs.seen(JobKey("ml", "first"), None)
    before = generate_latest(metrics.registry)
    names = [f"job-{number}" for number in range(100)]
    for name in names:
        metrics.jobs.seen(JobKey("ml", name), {**JOB, "metadata": {**meta, "name": name}})
    assert len(generate_latest(metrics.registry)) > 10 * len(before)
    for name in names:
        metrics.jobs.seen(JobKey("ml", name), None)
    assert generate_latest(metrics.registry) == before
