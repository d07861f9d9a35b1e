"""The table of the series of each job: names, meanings, and each one's value of a job.

The docs are generated from it. Must never count: a value is a function of what was last seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rtj_api.rules.quality import Quality
from rtj_api.status import IntervalAdvice, Status, TimeLedger
from rtj_api.wire import LossState

from rtj_operator.core import effectiveness

JOB_LABELS = ("namespace", "name")


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job as last seen or written."""

    created_at: float
    resource_version: str
    status: Status
    interval_seconds: float = 0.0  # between saves, as rank 0 observes it now
    info: tuple[str, ...] = ("",) * 5  # by INFO_LABELS


@dataclass(frozen=True, slots=True)
class JobSeries:
    """One per-job metric: its name as exposed, and its value of one job."""

    name: str
    kind: str  # counter | gauge
    meaning: str
    value: Callable[[JobFacts], float | None]


def _of_ledger(job: JobFacts, figure: Callable[[TimeLedger], float | None]) -> float | None:
    return None if job.status.ledger is None else figure(job.status.ledger)


def _of_advice(job: JobFacts, figure: Callable[[IntervalAdvice], float | None]) -> float | None:
    return None if job.status.interval is None else figure(job.status.interval)


JOB_SERIES: tuple[JobSeries, ...] = (
    JobSeries(
        "training_job_start_count_total",
        "counter",
        "Starts of the gang: the first, automatic restarts and resumes.",
        lambda job: job.status.starts,
    ),
    JobSeries(
        "training_job_restart_count_total",
        "counter",
        "Automatic restarts after a fault.",
        lambda job: job.status.restarts,
    ),
    JobSeries(
        "training_job_successful_completion_total",
        "counter",
        "0 from the job's creation, 1 once it is complete.",
        lambda job: job.status.completions,
    ),
    JobSeries(
        "training_job_failure_count_total",
        "counter",
        "Started attempts that ended in a fault of the job's own, not of the infrastructure.",
        lambda job: job.status.failures,
    ),
    JobSeries(
        "training_job_last_start_timestamp_seconds",
        "gauge",
        "Unix time of the newest start; 0 before the first.",
        lambda job: job.status.last_start_time or 0,
    ),
    JobSeries(
        "training_job_created_timestamp_seconds",
        "gauge",
        "Unix time of the job's creation.",
        lambda job: job.created_at,
    ),
    JobSeries(
        "training_job_finished_timestamp_seconds",
        "gauge",
        "Unix time at which the job completed or failed; 0 before.",
        lambda job: job.status.completion_time or 0,
    ),
    JobSeries(
        "training_job_restarts_since_progress",
        "gauge",
        "Restarts since a checkpoint was newly durable, whoever was to blame.",
        lambda job: (
            job.status.budgets.restarts_since_progress
            + job.status.budgets.infrastructure_since_progress
        ),
    ),
    JobSeries(
        "training_job_replicas",
        "gauge",
        "Pods of an elastic job's gang, as recorded; absent without spec.elastic.",
        lambda job: job.status.elastic.size if job.status.elastic else None,
    ),
    JobSeries(
        "training_job_replicas_wanted",
        "gauge",
        "spec.replicas of an elastic job; above training_job_replicas while it is smaller.",
        lambda job: job.status.elastic.wanted if job.status.elastic else None,
    ),
    JobSeries(
        "training_job_spares_wanted",
        "gauge",
        "Pods that are to wait for a rank, of a job that is not over: recovery.spares, and those "
        "that an elastic gang is short of; absent where there are none.",
        lambda job: job.status.spares.wanted if job.status.spares else None,
    ),
    JobSeries(
        "training_job_spares_ready",
        "gauge",
        "Spares that could take a rank at once; status.spares.message says why there are fewer.",
        lambda job: job.status.spares.ready if job.status.spares else None,
    ),
    JobSeries(
        "training_job_last_checkpoint_timestamp_seconds",
        "gauge",
        "Unix time at which the newest durable checkpoint became durable; 0 without one.",
        lambda job: job.status.checkpoint.last_durable_time or 0,
    ),
    JobSeries(
        "training_job_last_checkpoint_step",
        "gauge",
        "Step of the newest durable checkpoint; 0 without one.",
        lambda job: job.status.checkpoint.last_durable_step or 0,
    ),
    JobSeries(
        "training_job_valid_checkpoints",
        "gauge",
        "Durable checkpoints that passed validation.",
        lambda job: job.status.checkpoint.valid,
    ),
    JobSeries(
        "training_job_invalid_checkpoints",
        "gauge",
        "Checkpoints that failed validation.",
        lambda job: job.status.checkpoint.invalid,
    ),
    JobSeries(
        "training_job_resume_quality",
        "gauge",
        "How much of the training the last resume took up: 2 all that is known (Exact), 1 not all "
        "(Partial), 0 the weights alone. Absent before the first resume.",
        lambda job: _QUALITY.get(job.status.checkpoint.resume_quality or ""),
    ),
    JobSeries(
        "training_job_resume_loss_outside",
        "gauge",
        "1 where the first losses after the last resume lie outside of the band that its save "
        "records, 0 where they lie within. Absent while that is not known.",
        lambda job: _LOSS.get(
            job.status.checkpoint.resume_loss.state if job.status.checkpoint.resume_loss else ""
        ),
    ),
    JobSeries(
        "training_job_resume_replay",
        "gauge",
        "Steps run twice since the last resume, against their first pass: 0 Match, 1 Drift, "
        "2 Ignored, 3 Diverged. Absent while no step was told of twice.",
        lambda job: _REPLAY.get(
            job.status.checkpoint.resume_replay.state if job.status.checkpoint.resume_replay else ""
        ),
    ),
    JobSeries(
        "training_job_lost_seconds_total",
        "counter",
        "Work done again after restarts: bucket lost of training_job_time_seconds_total.",
        lambda job: _of_ledger(job, lambda ledger: ledger.seconds.lost) or 0,
    ),
    JobSeries(
        "training_job_productive_seconds_total",
        "counter",
        "Steps made for the first time: bucket productive of training_job_time_seconds_total.",
        lambda job: _of_ledger(job, lambda ledger: ledger.seconds.productive) or 0,
    ),
    JobSeries(
        "training_job_goodput_ratio",
        "gauge",
        "Time of steps made for the first time, by all time since the job's creation. Of a job "
        "that failed, without the steps that no durable save holds.",
        lambda job: effectiveness.goodput(job.status),
    ),
    JobSeries(
        "training_job_ettr_ratio",
        "gauge",
        "Effective training time: as goodput, by the time in which the job was not suspended.",
        lambda job: effectiveness.ettr(job.status),
    ),
    JobSeries(
        "training_job_interruptions_total",
        "counter",
        "Faults that ended the gang's training, whoever was to blame.",
        lambda job: _of_ledger(job, lambda ledger: ledger.interruptions) or 0,
    ),
    JobSeries(
        "training_job_recovery_mean_seconds",
        "gauge",
        "MTTR: mean time from a fault in training to the next step. Absent before the first.",
        lambda job: _of_ledger(job, effectiveness.mttr),
    ),
    JobSeries(
        "training_job_regain_mean_seconds",
        "gauge",
        "Mean time from a fault in training until the steps made before it had been made again. "
        "Absent before the first.",
        lambda job: _of_ledger(job, effectiveness.time_to_regain),
    ),
    JobSeries(
        "training_job_checkpoint_interval_seconds",
        "gauge",
        "Observed time between checkpoints; 0 while unknown.",
        lambda job: job.interval_seconds,
    ),
    JobSeries(
        "training_job_checkpoint_interval_recommended_seconds",
        "gauge",
        "Time between checkpoints at which saving and lost work cost the least. Absent before the "
        "first start.",
        lambda job: _of_advice(job, lambda advice: advice.recommended_seconds),
    ),
    JobSeries(
        "training_job_mtti_seconds",
        "gauge",
        "Estimated mean training time to an interruption. Absent before the first start.",
        lambda job: _of_advice(job, lambda advice: advice.mtti_seconds),
    ),
    JobSeries(
        "training_job_checkpoint_stall_mean_seconds",
        "gauge",
        "Mean time for which a save stopped the steps. Absent where that was not seen.",
        lambda job: _of_advice(job, lambda advice: advice.stall_seconds),
    ),
    JobSeries(
        "training_job_checkpoint_durable_latency_seconds",
        "gauge",
        "From the end of a save until it was durable, of the newest one that could be followed.",
        lambda job: _of_advice(job, lambda advice: advice.durable_latency_seconds),
    ),
)
_QUALITY = {Quality.EXACT.value: 2.0, Quality.PARTIAL.value: 1.0, Quality.WEIGHTS_ONLY.value: 0.0}
_LOSS = {LossState.WITHIN.value: 0.0, LossState.OUTSIDE.value: 1.0}
_REPLAY: dict[str, float] = {"Match": 0, "Drift": 1, "Ignored": 2, "Diverged": 3}
PHASE_NAME = "training_job_status_phase"
PHASE_MEANING = "1 for the job's phase, 0 for every other one."
REASON_NAME = "training_job_status_reason"
REASON_MEANING = (
    "1 for the reason of each condition that says something is wrong, and of what the job waits "
    "for. Reasons are listed in reasons.md."
)
TIME_NAME = "training_job_time_seconds_total"
TIME_MEANING = (
    "Seconds of the job's life by what they went to; the buckets sum to its age. While it trains "
    "the newest seconds are missing until a step or a save tells of them."
)
INFO_NAME = "training_job"
INFO_LABELS = ("framework", "queue", "priority_class", "team")
INFO_MEANING = (
    "1; what does not change: to be joined on (namespace, name). framework is spec.framework, "
    "queue the label of Kueue, team the label team of the job."
)
RISK_NAME = "training_job_work_at_risk_seconds"
RISK_MEANING = (
    "Seconds of training that a fault now would lose: since the newest durable checkpoint was "
    "saved, or since the first step of this attempt. Absent while no steps are made."
)
