"""The operator's own series, scraped by a real Prometheus: rules fire.

The collector is the operator's; the jobs that it has seen are made here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kit.chart import CHART
from kit.prometheus import Prometheus
from kit.scrapes import OPERATOR_JOB, SIDECAR_JOB, Scrape, hurried, static_scrape
from prometheus_client import CollectorRegistry, Gauge, start_http_server
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.metrics import OperatorMetrics

RULES = CHART / "files" / "rules.yaml"

pytestmark = pytest.mark.contract


def stamp(seconds_ago: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds_ago))


class Jobs:
    """Jobs as the operator would have seen them, and the server that exposes its series."""

    def __init__(self) -> None:
        self.metrics = OperatorMetrics()
        self.metrics.leader.set(1)
        self._version = 0
        self.server, self._thread = start_http_server(
            0, addr="127.0.0.1", registry=self.metrics.registry
        )

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def seen(self, name: str, status: dict[str, Any]) -> None:
        self._version += 1
        metadata = {"resourceVersion": str(self._version), "creationTimestamp": stamp(86400)}
        raw = {"metadata": metadata, "status": status}
        self.metrics.jobs.seen(JobKey("ml", name), raw)

    def gone(self, name: str) -> None:
        self.metrics.jobs.seen(JobKey("ml", name), None)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def running(*, starts: int = 1, restarts: int = 0, since_progress: int = 0) -> dict[str, Any]:
    return {
        "phase": "Running",
        "starts": starts,
        "restarts": restarts,
        "failures": restarts,
        "lastStartTime": stamp(30),
        "budgets": {"restartsSinceProgress": since_progress},
        "checkpoint": {
            "lastDurableStep": 400,
            "lastDurableTime": stamp(60),
            "valid": 3,
            "invalid": 1,
        },
    }


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


def test_series_arrive_with_the_labels_of_the_job_and_vanish_with_it(jobs: Jobs) -> None:
    jobs.seen("gpt", running(starts=5, restarts=4))
    with Prometheus(scrapes=[static_scrape(OPERATOR_JOB, [jobs.target])]) as prometheus:
        counter = "training_job_restart_count_total"
        prometheus.wait("the job is seen", lambda: prometheus.value(counter) == 4)
        [sample] = prometheus.query(counter)
        labels = {name: sample.labels[name] for name in ("namespace", "name", "job")}
        assert labels == {"namespace": "ml", "name": "gpt", "job": OPERATOR_JOB}
        assert "exported_namespace" not in sample.labels
        jobs.gone("gpt")
        left = 'count({__name__=~"training_job_.+",name!=""})'
        prometheus.wait("its series are gone", lambda: prometheus.value(left) is None)


def test_a_pod_can_say_nothing_of_another_job(jobs: Jobs) -> None:
    """A pod of namespace `evil` says that the job of `ml` is at step 0, and that the operator of
    that job counts restarts."""
    lies = CollectorRegistry()
    labels = ["namespace", "name", "rank", "job"]
    named = ("ml", "gpt", "0", OPERATOR_JOB)
    step = Gauge("resumable_training_sidecar_progress_step", "-", labels, registry=lies)
    step.labels(*named).set(7)
    Gauge("training_job_restart_count_total", "-", labels, registry=lies).labels(*named).set(99)
    server, _ = start_http_server(0, addr="127.0.0.1", registry=lies)
    its = {"namespace": "evil", "name": "own", "rank": "1", "pod": "own-1-1-abcd"}
    pods = Scrape(
        job=SIDECAR_JOB,
        groups=lambda: [
            {"targets": [f"127.0.0.1:{server.server_address[1]}"], "labels": its},
        ],
        is_believed=False,
    )
    jobs.seen("gpt", running(restarts=1))
    with Prometheus(scrapes=[static_scrape(OPERATOR_JOB, [jobs.target]), pods]) as prometheus:
        name = "resumable_training_sidecar_progress_step"
        prometheus.wait("the pod is scraped", lambda: prometheus.value(name) == 7)
        [sample] = prometheus.query(name)
        assert {key: sample.labels[key] for key in its} == its
        assert sample.labels["job"] == SIDECAR_JOB
        restarts = "training_job_restart_count_total"
        prometheus.wait("the operator is scraped", lambda: prometheus.value(restarts) == 1)
    server.shutdown()
    server.server_close()


def test_each_rule_fires_on_its_case_and_none_on_a_healthy_job(jobs: Jobs) -> None:
    jobs.seen("healthy", running())
    jobs.seen("burst", running())
    scrape = static_scrape(OPERATOR_JOB, [jobs.target])
    # Five minutes of history would be the rule's own; a job that is younger counts from 0.
    rules = hurried(RULES.read_text()).replace("offset 5m", "offset 5s").replace("300", "5")
    with Prometheus(scrapes=[scrape], rules=rules) as prometheus:
        delta = 'namespace_name:training_job_restarts:delta5m{name="burst"}'
        prometheus.wait("a first delta", lambda: prometheus.value(delta) == 0)
        assert prometheus.firing() == set()
        jobs.seen("burst", running(starts=5, restarts=4))
        jobs.seen("many", running(starts=11))
        jobs.seen("stuck", running(starts=4, restarts=3, since_progress=3))
        expected = {
            ("TrainingJobRestartBurst", "ml", "burst"),
            ("TrainingJobStartsWithoutCompletion", "ml", "many"),
            ("TrainingJobRestartingWithoutProgress", "ml", "stuck"),
        }
        prometheus.wait("three alerts", lambda: prometheus.firing() == expected)
        received = prometheus.receiver.alerts
        prometheus.wait(
            "three notifications",
            lambda: {alert["labels"]["name"] for alert in received} == {"burst", "many", "stuck"},
        )
        [stuck] = [alert for alert in received if alert["labels"]["name"] == "stuck"][:1]
        assert "kubectl describe rtj -n ml stuck" in stuck["annotations"]["description"]
        jobs.close()
        prometheus.wait(
            "the operator is missed",
            lambda: ("ResumableTrainingOperatorDown", "", "") in prometheus.firing(),
        )
