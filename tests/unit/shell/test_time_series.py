"""The series of the time ledger: rebuilt at each scrape, with the stage that lasts now."""

from __future__ import annotations

from typing import Any

from rtj_operator.core.observed import JobKey
from rtj_operator.shell.job_metrics import JobTable

HELD: dict[str, Any] = {
    "attempt": 1,
    "current": {
        "attempt": 1,
        "kind": "First",
        "cause": "FirstStart",
        "recordedAt": "1970-01-01T00:00:00Z",
    },
    "hold": {"reason": "Suspended", "message": "", "since": "1970-01-01T00:01:40Z"},
    "ledger": {
        "since": "1970-01-01T00:00:00Z",
        "until": "1970-01-01T00:01:40Z",
        "seconds": {"queue": 10, "productive": 60, "lost": 30},
        "recoveries": 2,
        "recoverySeconds": 50,
        "interruptions": 2,
    },
}


def scraped(now: float, status: dict[str, Any]) -> dict[str, float]:
    """Value by series name, of the ledger by bucket."""
    table = JobTable(clock=lambda: now)
    meta = {"resourceVersion": "1", "creationTimestamp": "1970-01-01T00:00:00Z"}
    table.seen(JobKey("ns", "gpt"), {"metadata": meta, "status": status})
    return {
        sample.labels.get("bucket", sample.name): sample.value
        for family in table.collect()
        for sample in family.samples
    }


def test_the_buckets_sum_to_the_age_also_in_the_midst_of_a_stage() -> None:
    seen = scraped(500, HELD)
    assert seen["suspended"] == 400
    buckets = ("queue", "productive", "lost", "suspended", "hold", "start", "restore")
    assert sum(seen[name] for name in buckets) == 500
    assert seen["training_job_goodput_ratio"] == 0.6
    assert seen["training_job_recovery_mean_seconds"] == 25
    assert seen["training_job_interruptions_total"] == 2
    assert "training_job_regain_mean_seconds" not in seen


def test_a_job_that_was_never_written_waits() -> None:
    seen = scraped(7, {})
    assert seen["queue"] == 7
    assert "training_job_goodput_ratio" not in seen
