"""The dashboard "Resumable training jobs": what one needs to see whether jobs get on, and what it
costs them when they do not.

It may only show series that the operator exports (docs/metrics.md), always through
`max by (namespace, name)`, so that a second replica or a second scrape changes no number.
Panel ids are given here and stay, for people link to them.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from panels import DATASOURCE, JOBS, WIDTH, at, by_job, lines, number, target, thresholds, total

UID = "resumable-training-jobs"
# In the order of a life, with the colours that people expect.
PHASES = (
    ("Pending", "light-blue"),
    ("Starting", "blue"),
    ("Restoring", "purple"),
    ("Running", "green"),
    ("Restarting", "yellow"),
    ("Suspended", "text"),
    ("Held", "orange"),
    ("Succeeded", "dark-green"),
    ("Failed", "red"),
)


def in_phase(phase: str) -> str:
    labels = JOBS.replace("{", f'{{phase="{phase}",')
    return f"max by (namespace, name) (training_job_status_phase{labels})"


def phase_timeline() -> statetimeline.Panel:
    # One number a job: the phase's place in PHASES; the mapping turns it back into words.
    numbered = [f"{in_phase(phase)} * {place}" for place, (phase, _) in enumerate(PHASES, 1)]
    # A sum, for all phases of a job are always there and all but one are 0.
    expression = "\n+ ".join(numbered)
    mapping = models.ValueMap(
        options={
            str(place): models.ValueMappingResult(text=phase, color=color, index=place)
            for place, (phase, color) in enumerate(PHASES, 1)
        }
    )
    return (
        statetimeline.Panel()
        .id(10)
        .title("Phase")
        .description("What each job was doing. Wide gaps between green are time without training.")
        .datasource(DATASOURCE)
        .unit("short")
        .thresholds(thresholds((None, "text")))
        .mappings([mapping])
        .merge_values(True)
        .show_value(common_models.VisibilityMode.AUTO)
        .with_target(target(expression))
        .grid_pos(at(0, 4, WIDTH, 8))
    )


def durable_step() -> timeseries.Panel:
    return lines(
        11,
        "Newest durable step",
        "The step of the newest checkpoint that is whole and in the store. A job goes on from "
        "there whatever dies. A flat line is a job that does not get further.",
        unit="short",
        position=at(0, 12, 12, 9),
        limits=thresholds((None, "green")),
    ).with_target(target(by_job("training_job_last_checkpoint_step")))


def checkpoint_age() -> timeseries.Panel:
    saved = by_job("training_job_last_checkpoint_timestamp_seconds", condition=" > 0")
    return lines(
        12,
        "Age of the newest durable checkpoint",
        "Work that would be done again if the job died now. Shown while the job runs and has at "
        "least one checkpoint.",
        unit="s",
        position=at(12, 12, 12, 9),
        limits=thresholds((None, "green"), (1800, "orange"), (3600, "red")),
    ).with_target(
        target(f"time() - {saved}\nand on (namespace, name) ({in_phase('Running')} == 1)")
    )


def restarts() -> timeseries.Panel:
    return (
        lines(
            13,
            "Starts and restarts",
            "Counted in the job's status, so a new operator changes nothing. Starts are the first "
            "one, restarts, and resumptions by a person; restarts are the automatic ones.",
            unit="short",
            position=at(0, 21, 12, 9),
            limits=thresholds((None, "green")),
        )
        .with_target(
            target(by_job("training_job_start_count_total"), legend="starts {{namespace}}/{{name}}")
        )
        .with_target(
            target(
                by_job("training_job_restart_count_total"),
                ref="B",
                legend="restarts {{namespace}}/{{name}}",
            )
        )
    )


def without_progress() -> timeseries.Panel:
    return lines(
        14,
        "Restarts since progress",
        "Restarts since a newer checkpoint was last stored; back to 0 with each. The line is "
        "where TrainingJobRestartingWithoutProgress fires by default.",
        unit="short",
        position=at(12, 21, 12, 9),
        limits=thresholds((None, "green"), (3, "red")),
        show_limits=True,
    ).with_target(target(by_job("training_job_restarts_since_progress")))


def checkpoints() -> timeseries.Panel:
    return (
        lines(
            15,
            "Checkpoints by verdict",
            "Checkpoints of the run that can be resumed from, and those found torn, corrupt or "
            "incomplete, which never will be.",
            unit="short",
            position=at(0, 30, 12, 9),
            limits=thresholds((None, "green")),
        )
        .with_target(
            target(by_job("training_job_valid_checkpoints"), legend="valid {{namespace}}/{{name}}")
        )
        .with_target(
            target(
                by_job("training_job_invalid_checkpoints"),
                ref="B",
                legend="invalid {{namespace}}/{{name}}",
            )
        )
    )


COLUMNS: tuple[tuple[str, str, str, str], ...] = (
    ("A", "Starts", by_job("training_job_start_count_total"), "short"),
    ("B", "Restarts", by_job("training_job_restart_count_total"), "short"),
    ("C", "Since progress", by_job("training_job_restarts_since_progress"), "short"),
    ("D", "Failures", by_job("training_job_failure_count_total"), "short"),
    ("E", "Durable step", by_job("training_job_last_checkpoint_step"), "short"),
    (
        "F",
        "Newest checkpoint",
        f"1000 * {by_job('training_job_last_checkpoint_timestamp_seconds', condition=' > 0')}",
        "dateTimeFromNow",
    ),
    (
        "G",
        "Last start",
        f"1000 * {by_job('training_job_last_start_timestamp_seconds', condition=' > 0')}",
        "dateTimeFromNow",
    ),
)


def job_table() -> table.Panel:
    panel = (
        table.Panel()
        .id(16)
        .title("Jobs")
        .description("Each job as it is now; those that restart without getting further are first.")
        .datasource(DATASOURCE)
        .unit("short")
        .thresholds(thresholds((None, "text")))
        .grid_pos(at(12, 30, 12, 9))
        .sort_by([common.TableSortByFieldState().display_name("Since progress").desc(True)])
        .with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            models.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {"Time": True},
                    "renameByName": {"namespace": "Namespace", "name": "Job"}
                    | {f"Value #{ref}": title for ref, title, _, _ in COLUMNS},
                },
            )
        )
    )
    for ref, title, expression, unit in COLUMNS:
        panel = panel.with_target(target(expression, ref=ref, instant=True)).override_by_name(
            title, [models.DynamicConfigValue(id_val="unit", value=unit)]
        )
    return panel


def variables() -> list[Any]:
    def labels(name: str, label: str, query: str) -> dashboard.QueryVariable:
        return (
            dashboard.QueryVariable(name)
            .label(label)
            .datasource(DATASOURCE)
            .query(
                {
                    "qryType": 1,
                    "query": query,
                    "refId": "PrometheusVariableQueryEditor-VariableQuery",
                }
            )
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".+")
            .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
        )

    metric = "training_job_start_count_total"
    return [
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        labels("namespace", "Namespace", f"label_values({metric}, namespace)"),
        labels("name", "Job", f'label_values({metric}{{namespace=~"$namespace"}}, name)'),
    ]


def starts_annotation() -> dict[str, Any]:
    """A mark at each start. Its time is the value itself, which the SDK has no word for."""
    starts = by_job("training_job_last_start_timestamp_seconds", condition=" > 0")
    return {
        "name": "Starts",
        "enable": True,
        "hide": False,
        "iconColor": "blue",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "expr": f"1000 * {starts}",
        "useValueForTime": True,
        "titleFormat": "start",
        "textFormat": "{{namespace}}/{{name}}",
    }


def build() -> dashboard.Dashboard:
    board = (
        dashboard.Dashboard("Resumable training jobs")
        .uid(UID)
        .description("Progress that is safe, and what restarts cost.")
        .tags(["resumable-training"])
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
    )
    for variable in variables():
        board = board.with_variable(variable)
    panels = (
        number(
            1,
            "Running",
            "Jobs whose trainers run on all ranks.",
            total(f"{in_phase('Running')} == 1"),
        ),
        number(
            2,
            "Held",
            "Jobs that wait for a person: no valid checkpoint, budget spent, store unreachable. "
            "The condition's message says what to do.",
            total(f"{in_phase('Held')} == 1"),
            bad=1,
            x=4,
        ),
        number(
            3,
            "Starts",
            "First starts, restarts and resumptions of the jobs that exist now.",
            total(by_job("training_job_start_count_total")),
            x=8,
        ),
        number(
            4,
            "Restarts",
            "Automatic restarts of the jobs that exist now.",
            total(by_job("training_job_restart_count_total")),
            x=12,
        ),
        number(
            5,
            "Failures",
            "Attempts that ended by a fault of the job's own; lost nodes, evictions and preemption "
            "are not among them.",
            total(by_job("training_job_failure_count_total")),
            x=16,
        ),
        number(
            6,
            "Completed",
            "Jobs that finished, their last checkpoint durable.",
            total(by_job("training_job_successful_completion_total")),
            x=20,
        ),
        phase_timeline(),
        durable_step(),
        checkpoint_age(),
        restarts(),
        without_progress(),
        checkpoints(),
        job_table(),
    )
    for panel in panels:
        board = board.with_panel(panel)
    return board
