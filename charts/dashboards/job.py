"""The dashboard of one job: what it does, whether it gets on, what its faults cost.

Alerts about a job lead here. Must never need a choice of several jobs: lines are told apart by rank
only. Panel ids stay, for people link to them.
"""

from __future__ import annotations

from typing import Any

from frame import Board, of_one_job
from grafana_foundation_sdk.builders import text
from grafana_foundation_sdk.models import text as text_models
from links import JOB
from panels import Words, at, lines, number, timeline
from promql import ITS_NAMESPACE
from promql import ONE_JOB as THIS
from shared import RISK, fallbacks, measures, phases, restarts, where_the_time_went

SIDECAR = "resumable_training_sidecar_"
SEEN = "training_job_checkpoint_interval_seconds"
BEST = "training_job_checkpoint_interval_recommended_seconds"
THIS_JOB = "{{name}}"
RANK = "rank {{rank}}"
COMMANDS = """\
| to know or do | command |
|---|---|
| what it does or waits for, and what to do | `rtj why $namespace/$name` |
| each attempt, its cause and stages | `rtj timeline $namespace/$name` |
| saves, budgets, where its time went | `rtj describe $namespace/$name` |
| the logs of all ranks | `rtj logs $namespace/$name -f` |
| a row a rank | `rtj top $namespace/$name` |
| stop after the next save; go on | `rtj suspend $namespace/$name`, `rtj resume $namespace/$name` |
| all of this for those who were not there | `rtj report $namespace/$name --to night.html` |
"""


def commands() -> text.Panel:
    return (
        text.Panel()
        .id(10)
        .title("Commands")
        .description("What to run for more, with this job's name filled in.")
        .mode(text_models.TextMode.MARKDOWN)
        .content(COMMANDS)
        .grid_pos(at(0, 4, 12, 8))
    )


def facts() -> list[Any]:
    rows: tuple[tuple[Words, str], ...] = (
        (
            Words(
                id=11,
                title="Starts",
                text="Starts of the gang: the first, automatic restarts and resumes.",
                limits=((None, "text"),),
                alert="TrainingJobStartsWithoutCompletion",
            ),
            THIS.job("training_job_start_count_total"),
        ),
        (
            Words(
                id=12,
                title="Restarts",
                text="Automatic restarts after a fault.",
                limits=((None, "text"),),
                alert="TrainingJobRestartBurst",
            ),
            THIS.job("training_job_restart_count_total"),
        ),
        (
            Words(
                id=13,
                title="Failures",
                text="Started attempts that ended in a fault of the job's own; lost nodes, "
                "evictions and preemption are not among them.",
                limits=((None, "green"), (1, "orange")),
            ),
            THIS.job("training_job_failure_count_total"),
        ),
        (
            Words(
                id=14,
                title="Restarts since progress",
                text="Restarts since a newer checkpoint was last stored. From 3 on "
                "TrainingJobRestartingWithoutProgress fires by default.",
                limits=((None, "green"), (1, "orange"), (3, "red")),
                alert="TrainingJobRestartingWithoutProgress",
            ),
            THIS.job("training_job_restarts_since_progress"),
        ),
        (
            Words(
                id=15,
                title="Durable step",
                text="Step of the newest checkpoint that is whole and in the store: whatever "
                "dies, the job goes on from there.",
                limits=((None, "text"),),
            ),
            THIS.job("training_job_last_checkpoint_step"),
        ),
        (
            Words(
                id=16,
                title="Valid checkpoints",
                text="Durable checkpoints that passed validation.",
                limits=((None, "red"), (1, "orange"), (2, "green")),
                alert="TrainingJobNoValidCheckpoint",
            ),
            THIS.job("training_job_valid_checkpoints"),
        ),
    )
    return [
        number(words, expression, position=at(12 + 4 * (place % 3), 4 + 4 * (place // 3), 4, 4))
        for place, (words, expression) in enumerate(rows)
    ]


def attempts() -> Any:
    return timeline(
        Words(
            id=17,
            title="Attempts by rank",
            text="The attempt that each rank's sidecar was told of. A rank that lags behind the "
            "others keeps all of them waiting; a gap is a pod that was gone.",
            limits=((None, "blue"), (2, "yellow"), (4, "orange"), (8, "red")),
        ),
        f"max by (rank) ({THIS.job(SIDECAR + 'attempt', by='rank')})",
        legend=RANK,
        position=at(0, 17, 12, 7),
    )


def reasons() -> Any:
    told = THIS.job("training_job_status_reason", by="reason")
    return timeline(
        Words(
            id=18,
            title="What is wrong, or waited for",
            text="The reasons in the job's conditions, while they were there. reasons.md says what "
            "each means and what to do.",
            limits=((None, "orange"),),
            alert="TrainingJobPendingTooLong",
        ),
        f'max by (reason) ({told})\nor on () label_replace(vector(0), "reason", "nothing", "", "")',
        legend="{{reason}}",
        position=at(12, 17, 12, 7),
        names=[(0, "well", "green"), (1, "told", "orange")],
    )


def steps() -> list[Any]:
    return [
        lines(
            Words(
                id=19,
                title="Steps made and steps safe",
                text="The step that the ranks have reached, and the newest one that is in the "
                "store. The distance is what a fault now would cost; where the upper line falls "
                "back, steps are made again.",
            ),
            {
                "reached": f"max({THIS.job(SIDECAR + 'progress_step', by='rank')})",
                "saved": f"max({THIS.job(SIDECAR + 'last_saved_step', by='rank')})",
                "durable": f"max({THIS.job('training_job_last_checkpoint_step')})",
            },
            position=at(0, 34, 12, 9),
            decimals=0,
        ),
        lines(
            Words(
                id=20,
                title="Loss",
                text="The newest loss that the trainer told of. A jump after a restart that stays "
                "is a state that was not restored whole.",
                unit="none",
                alert="TrainingJobResumeDiverged",
            ),
            {"loss": f"max({THIS.job(SIDECAR + 'progress_loss', by='rank')})"},
            position=at(12, 34, 12, 9),
        ),
        lines(
            Words(
                id=21,
                title="Trainers that run",
                text="Ranks whose trainer runs now, of the ranks whose sidecar is heard.",
            ),
            {
                "running": f"sum({THIS.job(SIDECAR + 'trainer_up', by='rank')})",
                "heard": f"count({THIS.job(SIDECAR + 'trainer_up', by='rank')})",
            },
            position=at(0, 43, 12, 9),
            decimals=0,
        ),
        lines(
            Words(
                id=22,
                title="After a fault",
                text="Mean time from a fault until the next step, and until the first step never "
                "made before. The distance is work done again.",
                unit="s",
                limits=((None, "green"), (900, "red")),
            ),
            {
                "next step": f"max({THIS.job('training_job_recovery_mean_seconds')})",
                "useful work": f"max({THIS.job('training_job_regain_mean_seconds')})",
            },
            position=at(12, 43, 12, 9),
        ),
        lines(
            Words(
                id=23,
                title="Work at risk and time between saves",
                text="Seconds since the newest durable checkpoint was saved, the observed time "
                "between saves, and that at which saves and lost work cost the least.",
                unit="s",
                limits=((None, "green"), (7200, "red")),
                alert="TrainingJobIntervalTooLong",
            ),
            {
                "at risk": f"max({THIS.job(RISK, condition=' > 0')})",
                "between saves": f"max({THIS.job(SEEN, condition=' > 0')})",
                "best": f"max({THIS.job(BEST)})",
            },
            position=at(0, 52, 12, 9),
            wide_range=True,
        ),
        lines(
            Words(
                id=24,
                title="Effective training time",
                text="Goodput by all time, and by the time in which the job was not suspended.",
                unit="percentunit",
                limits=((None, "red"), (0.9, "green")),
            ),
            {
                "of all time": f"max({THIS.job('training_job_goodput_ratio')})",
                "not suspended": f"max({THIS.job('training_job_ettr_ratio')})",
            },
            position=at(12, 52, 12, 9),
            most=1.0,
        ),
    ]


def site() -> list[Any]:
    """Series that a site may lack: those of its own exporters."""
    pods = 'namespace="$namespace",pod=~"$name-s?[0-9]+-[0-9]+-[0-9a-f]+"'
    lacking = "Not one of ours: empty where the cluster has no "
    return [
        lines(
            Words(
                id=25,
                title="GPU use",
                text="How busy each GPU of the job's pods is. A job that trains and keeps its GPUs "
                f"idle waits for data or for a slow rank. {lacking}DCGM exporter.",
                unit="percent",
                limits=((None, "red"), (50, "orange"), (80, "green")),
            ),
            {"{{pod}} gpu {{gpu}}": f"max by (pod, gpu) (DCGM_FI_DEV_GPU_UTIL{{{pods}}})"},
            position=at(0, 61, 12, 7),
            most=100,
        ),
        lines(
            Words(
                id=26,
                title="Memory of the pods",
                text="Working set of each pod of the job, by the kubelet. "
                f"{lacking}cAdvisor scrape.",
                unit="bytes",
            ),
            {
                "{{pod}}": "sum by (pod) (max by (pod, container) "
                f'(container_memory_working_set_bytes{{{pods},container!=""}}))'
            },
            position=at(12, 61, 12, 7),
        ),
    ]


def build() -> Board:
    return Board(
        uid=JOB,
        text="One resumable training job: what it does, whether it gets on, what faults cost it.",
        variables=of_one_job(),
        marks=[restarts(THIS), fallbacks(ITS_NAMESPACE)],
        panels=[
            *measures(THIS),
            commands(),
            *facts(),
            phases(THIS, legend=THIS_JOB, y=12, height=5),
            attempts(),
            reasons(),
            *where_the_time_went(THIS, y=24),
            *steps(),
            *site(),
        ],
    )
