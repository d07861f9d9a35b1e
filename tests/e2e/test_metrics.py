"""A real Prometheus scrapes it all: the counters equal what was done, each rule fires on its case,
and no panel of a dashboard is empty.

Three jobs: one that crashes again and again without saving, one that is healthy, and one that is
killed once and goes on. Every rule fires for the first and stays silent for the second. The rules
are the chart's own, with shorter waits.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kit import boards, manifests
from kit.boards import BOARDS, Choice
from kit.kube import Kube, wait_for
from kit.prometheus import Prometheus
from kit.rtj import Job
from kit.scrapes import hurried, operator_scrape, sidecar_scrape
from kit.stack import CHART, OPERATOR_NAMESPACE, Stack

COUNTERS = {
    "training_job_start_count_total": "starts",
    "training_job_restart_count_total": "restarts",
    "training_job_successful_completion_total": "completions",
    "training_job_failure_count_total": "failures",
}
RULES = {
    "TrainingJobRestartBurst",
    "TrainingJobStartsWithoutCompletion",
    "TrainingJobRestartingWithoutProgress",
}
# Each time in another way: what comes again alike at one step is not tried to the budget's end.
CRASH = """
import random, sys, time
print("step", random.randrange(1, 10**6), "loss 1.0", flush=True)
time.sleep(0.3)
sys.exit(random.choice([3, 4, 5, 6, 7]))
"""


@pytest.mark.timeout(600)
def test_counters_are_exact_and_each_rule_fires_on_its_case_only(
    product: Stack, space: Kube
) -> None:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    crasher = manifests.job(
        "crasher",
        store=store,
        command=["python3", "-c", CRASH],
        replicas=1,
        resume_args=(),
        recovery={"maxRestarts": 12, "backoff": {"initialSeconds": 0.5, "maxSeconds": 1}},
    )
    healthy = manifests.counter("healthy", store=store, replicas=1, steps=100, step_seconds=0.2)
    mended = manifests.counter(
        "mended", store=store, replicas=2, save_every=20, extra=["--loss", "--lockstep"]
    )
    rules = hurried((CHART / "files" / "rules.yaml").read_text())
    scrapes = [
        operator_scrape(product.kube, namespace=OPERATOR_NAMESPACE),
        sidecar_scrape(product.kube),
    ]
    with Prometheus(scrapes=scrapes, rules=rules) as prometheus:
        began = time.time()
        space.apply(crasher, healthy, mended)
        bad, good = Job(kube=space, name="crasher"), Job(kube=space, name="healthy")
        hurt = Job(kube=space, name="mended")

        def fired() -> set[str]:
            return {
                alert
                for alert, namespace, name in prometheus.firing()
                if namespace == space.namespace and name == "crasher"
            }

        hurt.wait_durable(40, within=240)
        hurt.wait_step(50)
        hurt.kill_trainer(1)

        seen: set[str] = set()

        def all_rules_have_fired() -> bool:
            seen.update(fired())
            return seen >= RULES

        wait_for(all_rules_have_fired, within=240, what=f"all of {sorted(RULES)} for the crasher")

        # The budget is spent: terminal, and the counters are exact.
        status = bad.wait_phase("Failed", within=240)
        assert (status["starts"], status["restarts"]) == (13, 12)
        assert good.wait_phase("Succeeded", within=240)["completions"] == 1
        for job in (bad, good):
            told = job.status()
            labels = f'{{namespace="{space.namespace}",name="{job.name}"}}'
            for series, field in COUNTERS.items():
                expression = f"max({series}{labels})"
                prometheus.wait(
                    f"{expression} == {told[field]}",
                    lambda e=expression, v=told[field]: prometheus.value(e) == v,
                )
            started = prometheus.value(f"max(training_job_last_start_timestamp_seconds{labels})")
            assert started is not None
            assert started > 1e9
        silent = {
            alert
            for alert, namespace, name in prometheus.firing()
            if namespace == space.namespace and name == "healthy"
        }
        assert not silent & RULES, f"rules that fired for the healthy job: {silent}"
        series = "resumable_training_sidecar_last_durable_step"
        shipped = f'max(max_over_time({series}{{namespace="{space.namespace}"}}[10m]))'
        assert (prometheus.value(shipped) or 0) > 0, "no sidecar told of a durable step"

        hurt.wait_status(
            "steps that are new again",
            lambda status: (status.get("ledger") or {}).get("regains", 0) > 0,
            within=240,
        )
        no_panel_is_empty(prometheus, namespace=space.namespace, began=began)

        # They survive an operator restart, and vanish with the job.
        product.operator.run("delete", "pod", product.operator_pod(), "--wait=false")
        product.operator_pod()
        labels = f'{{namespace="{space.namespace}",name="crasher"}}'
        prometheus.wait(
            "the counters after an operator restart",
            lambda: prometheus.value(f"max(training_job_restart_count_total{labels})") == 12,
            within_s=120,
        )
        bad.delete()
        prometheus.wait(
            "the series gone with the job",
            lambda: prometheus.value(f"max(training_job_restart_count_total{labels})") is None,
            within_s=120,
        )


def no_panel_is_empty(prometheus: Prometheus, *, namespace: str, began: float) -> None:
    """While the mended job trains. `RTJ_BOARDS` names a file for what the panels show."""
    prometheus.wait(
        "the mended job is back to useful work, as Prometheus sees it",
        lambda: prometheus.value(
            f'max(training_job_regain_mean_seconds{{namespace="{namespace}",name="mended"}})'
        ),
    )
    all_jobs = Choice(start=began, end=time.time(), namespace=namespace, step=2)
    choices = dict.fromkeys(BOARDS, all_jobs) | {"job": replace(all_jobs, name="mended")}
    found = {
        name: boards.empty(prometheus, BOARDS[name], choice) for name, choice in choices.items()
    }
    assert found == {name: [] for name in BOARDS}
    if kept := os.environ.get("RTJ_BOARDS"):
        words = "a real cluster, three jobs of some minutes"
        Path(kept).write_text(json.dumps(boards.kept(prometheus, choices, source=words)))
