"""The dashboard of all jobs: which get on, which do not, and what the trouble costs.

Must never show a series that the operator does not export (docs/metrics.md). Panel ids stay, for
people link to them.
"""

from __future__ import annotations

from typing import Any

from frame import Board, of_many_jobs
from links import FLEET, job_of_series
from panels import Words, at, lines, number
from promql import CHOSEN_JOBS as JOBS
from promql import CHOSEN_NAMESPACES, RATE, total
from shared import PHASES, RISK, fallbacks, measures, phases, restarts, where_the_time_went
from tables import Column, jobs

NAMED = "{{namespace}}/{{name}}"


def counts() -> list[Any]:
    rows = (
        ("Running", "Jobs whose trainers run on all ranks.", "Running", ""),
        (
            "Waiting",
            "Jobs that wait for their pods, start or restore; for what, `rtj why` tells.",
            "Pending|Starting|Restoring|Restarting",
            "TrainingJobPendingTooLong",
        ),
        ("Suspended", "Jobs that a person or a queue asked to stand still.", "Suspended", ""),
        ("Completed", "Jobs that finished, their last checkpoint durable.", "Succeeded", ""),
    )
    made = [
        number(
            Words(id=10 + place, title=title, text=text, limits=((None, "text"),), alert=alert),
            total(JOBS.job("training_job_status_phase", f'phase=~"{phase}"', condition=" == 1")),
            position=at(4 * place, 4, 4, 4),
        )
        for place, (title, text, phase, alert) in enumerate(rows)
    ]
    failed = number(
        Words(
            id=14,
            title="Failed",
            text="Jobs that are not restarted any more; their checkpoints are kept.",
            limits=((None, "green"), (1, "red")),
            alert="TrainingJobFailed",
        ),
        total(f"{JOBS.phase('Failed')} == 1"),
        position=at(16, 4, 4, 4),
    )
    again = number(
        Words(
            id=15,
            title="Restarts",
            text="Automatic restarts of the jobs that exist now.",
            limits=((None, "text"),),
        ),
        total(JOBS.job("training_job_restart_count_total")),
        position=at(20, 4, 4, 4),
    )
    return [*made, failed, again]


def without_progress() -> Any:
    return lines(
        Words(
            id=16,
            title="Restarts since progress",
            text="Restarts since a newer checkpoint was last stored; back to 0 with each. The line "
            "is where TrainingJobRestartingWithoutProgress fires by default.",
            limits=((None, "green"), (3, "red")),
            alert="TrainingJobRestartingWithoutProgress",
        ),
        {NAMED: JOBS.job("training_job_restarts_since_progress")},
        position=at(0, 42, 12, 9),
        show_limits=True,
        decimals=0,
    ).data_links([job_of_series()])


def causes() -> Any:
    counted = CHOSEN_NAMESPACES.select("training_job_restart_reasons_total")
    risen = f"sum by (reason) (increase({counted}[{RATE}]))"
    return lines(
        Words(
            id=17,
            title="Restarts by cause",
            text="Automatic restarts of all jobs of the namespaces just before each moment, also "
            "of jobs that are gone. What each cause means is in reasons.md.",
        ),
        {"{{reason}}": f'{risen} > 0\nor on () label_replace(vector(0), "reason", "none", "", "")'},
        position=at(12, 42, 12, 9),
        stacked=True,
    )


def in_phases() -> Any:
    counted = JOBS.job("training_job_status_phase", by="phase")
    return lines(
        Words(
            id=18,
            title="Jobs by phase",
            text="How many jobs are in each phase. All but Running, Suspended and Succeeded is "
            "capacity that waits.",
        ),
        {"{{phase}}": f"sum by (phase) ({counted}) > 0"},
        position=at(0, 51, 12, 9),
        colors=dict(PHASES),
        stacked=True,
        decimals=0,
    )


def at_risk() -> Any:
    return lines(
        Words(
            id=19,
            title="Work at risk by job",
            text="What a fault now would cost each job that trains: seconds since its newest "
            "durable checkpoint was saved.",
            unit="s",
            limits=((None, "green"), (7200, "red")),
            alert="TrainingJobWorkAtRisk",
        ),
        {NAMED: JOBS.job(RISK)},
        position=at(12, 51, 12, 9),
    ).data_links([job_of_series()])


def the_jobs() -> Any:
    seconds = ("training_job_last_checkpoint_timestamp_seconds", " > 0")
    return jobs(
        JOBS,
        Words(
            id=20,
            title="Jobs",
            text="Each job as it is now; those that restart without getting further are first. A "
            "job's name leads to its own dashboard.",
            limits=((None, "text"),),
        ),
        [
            Column(title="Since progress", metric="training_job_restarts_since_progress"),
            Column(title="Starts", metric="training_job_start_count_total"),
            Column(title="Restarts", metric="training_job_restart_count_total"),
            Column(title="Failures", metric="training_job_failure_count_total"),
            Column(title="Durable step", metric="training_job_last_checkpoint_step"),
            Column(title="Checkpoint", metric=seconds[0], condition=seconds[1], is_time=True),
            Column(title="Goodput", metric="training_job_goodput_ratio", unit="percentunit"),
            Column(title="To useful work", metric="training_job_regain_mean_seconds", unit="s"),
        ],
        position=at(0, 16, 24, 8),
    )


def build() -> Board:
    return Board(
        uid=FLEET,
        text="All resumable training jobs: progress that is safe, and what restarts cost.",
        variables=of_many_jobs(),
        marks=[restarts(JOBS), fallbacks(CHOSEN_NAMESPACES)],
        panels=[
            *measures(JOBS),
            *counts(),
            phases(JOBS, legend=NAMED, y=8, height=8),
            the_jobs(),
            *where_the_time_went(JOBS, y=24),
            *reasons(),
            without_progress(),
            causes(),
            in_phases(),
            at_risk(),
        ],
    )


def reasons() -> list[Any]:
    told = JOBS.job("training_job_status_reason", by="reason")
    return [
        lines(
            Words(
                id=21,
                title="What is wrong, or waited for",
                text="How many jobs name each reason in their conditions. reasons.md says what "
                "each means and what to do.",
                alert="TrainingJobCheckpointSavesFailing",
            ),
            {
                "{{reason}}": f"sum by (reason) ({told})\n"
                'or on () label_replace(vector(0), "reason", "nothing", "", "")'
            },
            position=at(0, 34, 24, 8),
            stacked=True,
            decimals=0,
        )
    ]
