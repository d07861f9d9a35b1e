"""The dashboard of the checkpoints: whether what is made gets safe, and comes back when needed.

Must never show a count that a pod's end would take away where the job's own series has it. Panel
ids stay, for people link to them.
"""

from __future__ import annotations

from typing import Any

from frame import Board, of_many_jobs
from links import CHECKPOINTS, job_of_series
from panels import PLAIN, Words, at, durations, lines, number, timeline
from promql import CHOSEN_JOBS as JOBS
from promql import CHOSEN_NAMESPACES, RATE, total
from shared import RISK, fallbacks, measures, restarts
from tables import Column, jobs

SIDECAR = "resumable_training_sidecar_"
NAMED = "{{namespace}}/{{name}}"
SAVED_AT = "training_job_last_checkpoint_timestamp_seconds"


def counts() -> list[Any]:
    stored = JOBS.job(SAVED_AT, condition=" > 0")
    trains = f"{JOBS.phase('Running')} == 1"
    rows: tuple[tuple[Words, str], ...] = (
        (
            Words(
                id=10,
                title="Oldest of the newest",
                text="Of the jobs that train: the age of the newest durable checkpoint of the one "
                "whose is oldest.",
                unit="s",
                limits=((None, "green"), (1800, "orange"), (7200, "red")),
                alert="TrainingJobCheckpointOverdue",
            ),
            f"max(time() - {stored}\nand on (namespace, name) ({trains})) or vector(0)",
        ),
        (
            Words(
                id=11,
                title="Nothing to go on from",
                text="Jobs that train, were started more than once and have no valid checkpoint: "
                "the next fault costs everything.",
                limits=((None, "green"), (1, "red")),
                alert="TrainingJobNoValidCheckpoint",
            ),
            total(
                f"{JOBS.job('training_job_valid_checkpoints')} == bool 0\n"
                f"and on (namespace, name) {JOBS.job('training_job_start_count_total')} > 1\n"
                f"and on (namespace, name) ({trains})"
            ),
        ),
        (
            Words(
                id=12,
                title="Valid",
                text="Durable checkpoints of all jobs that passed validation.",
                limits=PLAIN,
            ),
            total(JOBS.job("training_job_valid_checkpoints")),
        ),
        (
            Words(
                id=13,
                title="Invalid",
                text="Checkpoints found torn, corrupt or incomplete: they are never resumed from. "
                "`rtj inspect` says of each what is wrong with it.",
                limits=((None, "green"), (1, "orange")),
            ),
            total(JOBS.job("training_job_invalid_checkpoints")),
        ),
        (
            Words(
                id=14,
                title="Passed over",
                text="Newer checkpoints passed over for older ones, since the operator that works "
                "began.",
                limits=((None, "green"), (1, "orange")),
                alert="TrainingJobsCheckpointFallback",
            ),
            total(CHOSEN_NAMESPACES.select("training_job_checkpoint_fallbacks_total")),
        ),
        (
            Words(
                id=15,
                title="Not yet stored",
                text="Bytes of finished saves that are on the pods' disks only.",
                unit="bytes",
                limits=((None, "text"),),
                alert="TrainingJobCheckpointSavesFailing",
            ),
            total(JOBS.job(SIDECAR + "pending_bytes", by="rank")),
        ),
    )
    return [
        number(words, expression, position=at(4 * place, 4, 4, 4))
        for place, (words, expression) in enumerate(rows)
    ]


def age() -> list[Any]:
    stored = JOBS.job(SAVED_AT, condition=" > 0")
    return [
        lines(
            Words(
                id=16,
                title="Newest durable step",
                text="A job goes on from there whatever dies. A flat line is a job that does not "
                "get further.",
            ),
            {NAMED: JOBS.job("training_job_last_checkpoint_step")},
            position=at(0, 8, 12, 9),
            decimals=0,
        ).data_links([job_of_series()]),
        lines(
            Words(
                id=17,
                title="Age of the newest durable checkpoint",
                text="While the job trains and has one. It should fall back with each save that "
                "is made.",
                unit="s",
                limits=((None, "green"), (1800, "orange"), (7200, "red")),
                alert="TrainingJobCheckpointOverdue",
            ),
            {NAMED: f"time() - {stored}\nand on (namespace, name) ({JOBS.phase('Running')} == 1)"},
            position=at(12, 8, 12, 9),
        ).data_links([job_of_series()]),
        lines(
            Words(
                id=18,
                title="Time between saves",
                text="As the sidecars observe it; and the time at which saves and lost work cost "
                "the least, from the job's own faults.",
                unit="s",
                alert="TrainingJobIntervalTooLong",
            ),
            {
                f"seen {NAMED}": JOBS.job(
                    "training_job_checkpoint_interval_seconds", condition=" > 0"
                ),
                f"best {NAMED}": JOBS.job("training_job_checkpoint_interval_recommended_seconds"),
            },
            position=at(0, 17, 12, 9),
            wide_range=True,
        ),
        lines(
            Words(
                id=19,
                title="What a save costs",
                text="Time for which a save stops the steps, and from its end until it was "
                "durable; 0 before the first that could be followed.",
                unit="s",
            ),
            {
                f"stall {NAMED}": _or_none(JOBS.job("training_job_checkpoint_stall_mean_seconds")),
                f"durable after {NAMED}": _or_none(
                    JOBS.job("training_job_checkpoint_durable_latency_seconds")
                ),
            },
            position=at(12, 17, 12, 9),
        ),
    ]


def _or_none(expression: str) -> str:
    """Absent is 0: a job that has not saved yet has paid nothing."""
    return f"{expression}\nor on (namespace, name) 0 * {JOBS.job('training_job_start_count_total')}"


def transfer() -> list[Any]:
    moved = JOBS.rate(SIDECAR + "transferred_bytes_total", by="rank, kind")
    restored = CHOSEN_NAMESPACES.select("training_job_restore_duration_seconds_bucket")
    down = CHOSEN_NAMESPACES.select("training_job_downtime_seconds_bucket")
    return [
        lines(
            Words(
                id=20,
                title="Bytes moved",
                text="To the store, from it, and from one pod to another, by all sidecars.",
                unit="Bps",
            ),
            {"{{kind}}": f"sum by (kind) ({moved})"},
            position=at(0, 26, 12, 9),
        ),
        lines(
            Words(
                id=21,
                title="Finished saves not yet durable",
                text="By job, of the rank that has most. More than one or two for long: the store "
                "takes less than the trainer makes.",
                limits=((None, "green"), (3, "orange")),
                alert="TrainingJobCheckpointSavesFailing",
            ),
            {NAMED: JOBS.job(SIDECAR + "pending_saves")},
            position=at(12, 26, 12, 9),
            decimals=0,
        ).data_links([job_of_series()]),
        durations(
            Words(
                id=22,
                title="Restores by duration",
                text="From the choice of a checkpoint until all ranks had it.",
                alert="TrainingJobStuckRestoring",
            ),
            f"sum by (le) (increase({restored}[{RATE}]))",
            position=at(0, 35, 12, 8),
        ),
        durations(
            Words(
                id=23,
                title="Standstills by duration",
                text="From a fault until the first step after it.",
            ),
            f"sum by (le) (increase({down}[{RATE}]))",
            position=at(12, 35, 12, 8),
        ),
    ]


def resumes() -> list[Any]:
    started = JOBS.job("training_job_start_count_total")
    quality = JOBS.job("training_job_resume_quality")
    replay = JOBS.job("training_job_resume_replay")
    return [
        timeline(
            Words(
                id=24,
                title="What the last resume took up",
                text="All that is known of the training's state, not all of it, or the weights "
                "alone.",
            ),
            f"{quality}\nor on (namespace, name) 0 * {started} - 1",
            legend=NAMED,
            position=at(0, 43, 12, 8),
            names=[
                (2, "Exact", "green"),
                (1, "Partial", "yellow"),
                (0, "Weights only", "red"),
                (-1, "no resume yet", "text"),
            ],
        ),
        timeline(
            Words(
                id=25,
                title="Steps run twice, against their first pass",
                text="Whether the losses after a resume are those of before.",
                alert="TrainingJobResumeDiverged",
            ),
            f"{replay}\nor on (namespace, name) 0 * {started} - 1",
            legend=NAMED,
            position=at(12, 43, 12, 8),
            names=[
                (0, "Match", "green"),
                (1, "Drift", "yellow"),
                (2, "Ignored", "orange"),
                (3, "Diverged", "red"),
                (-1, "none seen", "text"),
            ],
        ),
    ]


def the_jobs() -> Any:
    return jobs(
        JOBS,
        Words(
            id=26,
            title="Checkpoints of each job",
            text="Those with most work at risk first. A job's name leads to its own dashboard.",
            limits=((None, "text"),),
        ),
        [
            Column(title="At risk", metric=RISK, unit="s"),
            Column(title="Newest", metric=SAVED_AT, condition=" > 0", is_time=True),
            Column(title="Step", metric="training_job_last_checkpoint_step"),
            Column(title="Valid", metric="training_job_valid_checkpoints"),
            Column(title="Invalid", metric="training_job_invalid_checkpoints"),
            Column(
                title="Between saves", metric="training_job_checkpoint_interval_seconds", unit="s"
            ),
            Column(
                title="Best",
                metric="training_job_checkpoint_interval_recommended_seconds",
                unit="s",
            ),
        ],
        position=at(0, 51, 24, 8),
    )


def build() -> Board:
    return Board(
        uid=CHECKPOINTS,
        text="Whether what the jobs make gets safe, and comes back when it is needed.",
        variables=of_many_jobs(),
        marks=[restarts(JOBS), fallbacks(CHOSEN_NAMESPACES)],
        panels=[
            *measures(JOBS),
            *counts(),
            *age(),
            *transfer(),
            *resumes(),
            the_jobs(),
        ],
    )
