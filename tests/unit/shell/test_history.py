"""What a namespace's jobs went through: counted once, from 0, and kept when they are gone."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.openmetrics.exposition import generate_latest
from rtj_api.reasons import Reason
from rtj_api.status import Status
from rtj_operator.core.observed import JobKey
from rtj_operator.core.plan import Note, Plan
from rtj_operator.shell.metrics import OperatorMetrics

KEY = JobKey("ml", "gpt")


def value(metrics: OperatorMetrics, series: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(series, {"namespace": "ml", **labels})


def status(attempt: int, *, restarts: int = 0, **current: Any) -> Status:
    made = {"attempt": attempt, "kind": "InPlace", "recorded_at": 100.0, "cause": "NodeLost"}
    return Status.model_validate(
        {
            "attempt": attempt,
            "starts": restarts + 1,
            "restarts": restarts,
            "current": {**made, **current},
            "resume": {"attempt": attempt, "name": "s1", "step": 7, "at": 110.0},
        }
    )


def see(metrics: OperatorMetrics, *states: Status) -> None:
    for version, state in enumerate(states, 1):
        meta = {"resourceVersion": str(version), "creationTimestamp": "2025-01-01T00:00:00Z"}
        metrics.jobs.seen(KEY, {"metadata": meta, "status": state.dump()})


def test_a_restart_counts_by_its_cause_once_and_outlives_the_job() -> None:
    metrics = OperatorMetrics()
    see(metrics, status(1), status(2, restarts=1), status(2, restarts=1, scheduled_at=120.0))
    metrics.jobs.seen(KEY, None)
    assert value(metrics, "training_job_restart_reasons_total", reason="NodeLost") == 1
    # Born at 0, all of them, for increase() does not see what a series was born with.
    assert value(metrics, "training_job_restart_reasons_total", reason="OutOfMemory") == 0
    assert value(metrics, "training_job_restart_count_total", name="gpt") is None


def test_what_happened_before_this_replica_worked_is_not_counted_again() -> None:
    metrics = OperatorMetrics()
    see(metrics, status(9, restarts=8, restored_at=130.0, first_step_at=140.0, fault_at=90.0))
    assert value(metrics, "training_job_restart_reasons_total", reason="NodeLost") == 0
    assert value(metrics, "training_job_downtime_seconds_count") == 0


def test_restore_and_downtime_are_measured_by_the_statuses_own_times() -> None:
    metrics = OperatorMetrics()
    fault = {"fault_at": 90.0}
    see(
        metrics,
        status(2, restarts=1, **fault),
        status(2, restarts=1, **fault, restored_at=130.0),
        status(2, restarts=1, **fault, restored_at=130.0, first_step_at=140.0),
        status(2, restarts=1, **fault, restored_at=130.0, first_step_at=140.0, stalls=3),
    )
    assert value(metrics, "training_job_restore_duration_seconds_sum") == 20
    assert value(metrics, "training_job_restore_duration_seconds_count") == 1
    # Which job that was is told as an exemplar, which only OpenMetrics has, and by no label.
    text = generate_latest(metrics.registry).decode()
    bars = [line for line in text.splitlines() if "restore_duration_seconds_bucket" in line]
    [example] = [bar.split(" # ")[1] for bar in bars if " # " in bar]
    assert example.startswith('{name="gpt",step="7"} 20.0')
    assert value(metrics, "training_job_downtime_seconds_sum") == 50
    assert value(metrics, "training_job_downtime_seconds_count") == 1


def test_a_first_start_has_no_downtime() -> None:
    metrics = OperatorMetrics()
    see(metrics, status(1), status(1, restored_at=130.0, first_step_at=140.0))
    assert value(metrics, "training_job_downtime_seconds_count") == 0


@pytest.mark.parametrize("passed", [0, 2])
def test_saves_that_were_passed_over_are_counted(passed: int) -> None:
    metrics = OperatorMetrics()
    see(metrics, status(1))
    notes = [Note(type="Warning", reason=Reason.CHECKPOINT_FALLBACK, message="")] * passed
    notes.append(Note(type="Normal", reason=Reason.RESUMED, message=""))
    metrics.decided(KEY, Plan(rule="choose", why="", notes=tuple(notes)))
    assert value(metrics, "training_job_checkpoint_fallbacks_total") == passed


def test_what_does_not_change_is_there_to_be_joined() -> None:
    metrics = OperatorMetrics()
    raw = {
        "metadata": {
            "resourceVersion": "1",
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "uid": "the-uid-1",
            "labels": {"team": "vision", "kueue.x-k8s.io/queue-name": "gpus"},
        },
        "spec": {
            "framework": "pytorch",
            "template": {"spec": {"priorityClassName": "high"}},
        },
    }
    metrics.jobs.seen(KEY, raw)
    found = {"framework": "pytorch", "queue": "gpus", "priority_class": "high"}
    assert value(metrics, "training_job_info", name="gpt", team="vision", **found) == 1
    # Who knows a job's UID gets its reports and saves from its pods: no open page tells it.
    assert "the-uid-1" not in generate_latest(metrics.registry).decode()
