"""What several dashboards show alike: the two measures, the phases, where the time went.

How much progress was preserved and how long it took to get back to work are two measures and never
one: a job can lose nothing and stand still for hours. Ids 1 to 9 belong to this module.
"""

from __future__ import annotations

from typing import Any

from frame import MARK_STEP, Mark
from grafana_foundation_sdk.builders import barchart, common
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from panels import Words, at, fixed, lines, merged, number, organized, target, timeline, worded
from promql import (
    BUCKETS,
    SECONDS,
    Asked,
    goodput,
    place,
    preserved,
    time_to_useful_work,
    total,
    waterfall,
)

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
RISK = "training_job_work_at_risk_seconds"


def measures(asked: Asked) -> list[Any]:
    """The first row of every dashboard."""
    return [
        number(
            Words(
                id=1,
                title="Progress preserved",
                text="Of the time that went to steps, the share that was not work done before. "
                "The rest was made again after restarts, or fell after the last sign of a step "
                "before a fault.",
                unit="percentunit",
                limits=((None, "red"), (0.9, "orange"), (0.98, "green")),
                alert="TrainingJobLostWorkHigh",
            ),
            preserved(asked),
            position=at(0, 0, 6, 4),
            decimals=1,
            none="no step yet",
        ),
        number(
            Words(
                id=2,
                title="Time to useful work",
                text="Mean time from a fault in training until the first step that was never made "
                "before: all of noticing, deciding, starting, restoring and making steps again. "
                "Faults not yet made good count as the others of their job.",
                unit="s",
                limits=((None, "green"), (300, "orange"), (900, "red")),
            ),
            time_to_useful_work(asked),
            position=at(6, 0, 6, 4),
            decimals=1,
            none="no fault yet",
        ),
        number(
            Words(
                id=3,
                title="Goodput",
                text="Time of steps made for the first time, by all time since the jobs were made. "
                "Where the rest went is in the waterfall.",
                unit="percentunit",
                limits=((None, "red"), (0.5, "orange"), (0.9, "green")),
            ),
            goodput(asked),
            position=at(12, 0, 4, 4),
            decimals=1,
            none="no step yet",
        ),
        number(
            Words(
                id=4,
                title="Work at risk",
                text="Seconds of training that a fault now would cost the job that would lose "
                "most; 0 while none trains.",
                unit="s",
                limits=((None, "green"), (1800, "orange"), (7200, "red")),
                alert="TrainingJobWorkAtRisk",
            ),
            f"max({asked.job(RISK)}) or vector(0)",
            position=at(16, 0, 4, 4),
        ),
        number(
            Words(
                id=5,
                title="Held for a person",
                text="Jobs that wait for a decision: no valid checkpoint, budget spent, run in "
                "use. `rtj why NAMESPACE/NAME` says what is asked and how to answer.",
                limits=((None, "green"), (1, "red")),
                alert="TrainingJobNeedsPerson",
            ),
            total(f"{asked.phase('Held')} == 1"),
            position=at(20, 0, 4, 4),
        ),
    ]


def phases(asked: Asked, *, legend: str, y: int, height: int) -> Any:
    # One number a job: the phase's place in PHASES; the mapping turns it back into words. A sum,
    # for all phases of a job are always there and all but one are 0.
    numbered = [f"{asked.phase(phase)} * {count}" for count, (phase, _) in enumerate(PHASES, 1)]
    return timeline(
        Words(
            id=6,
            title="Phase",
            text="What each job was doing. All that is not green between two green stretches is "
            "time without training; `rtj timeline NAMESPACE/NAME` tells each stage of it.",
            limits=((None, "text"),),
        ),
        "\n+ ".join(numbered),
        legend=legend,
        position=at(0, y, 24, height),
        names=[(count, phase, color) for count, (phase, color) in enumerate(PHASES, 1)],
    )


def where_the_time_went(asked: Asked, *, y: int) -> list[Any]:
    return [goodput_waterfall(asked, y=y), time_by_bucket(asked, y=y)]


def goodput_waterfall(asked: Asked, *, y: int) -> barchart.Panel:
    words = {1: "all time"} | {number + 2: word for number, (_, word) in enumerate(BUCKETS)}
    mapping = models.ValueMap(
        options={
            place(number): models.ValueMappingResult(text=word, index=number)
            for number, word in words.items()
        }
    )
    series = waterfall(asked)
    colors = {"all": "blue", "overhead": "orange", "lost": "red", "useful": "green"}
    names = {"all": "All time", "overhead": "Not training", "lost": "Work done again"}
    names |= {"useful": "New steps", "below": "Below"}
    refs = dict(zip(series, "ABCDE", strict=True))
    renamed = {f"Value #{ref}": names[name] for name, ref in refs.items()}
    order = {"bar": 0} | {f"Value #{ref}": index for index, ref in enumerate(refs.values(), 1)}
    panel: barchart.Panel = (
        worded(
            barchart.Panel(),
            Words(
                id=7,
                title="Goodput waterfall",
                text="The ledger of the jobs that exist now: from all time since they were made, "
                "each bar takes off what went elsewhere, down to the time of new steps. A long "
                "bar is what to mend first.",
                unit="s",
            ),
            at(0, y, 12, 10),
        )
        .x_field("bar")
        .stacking(common_models.StackingMode.NORMAL)
        .show_value(common_models.VisibilityMode.NEVER)
        .x_tick_label_rotation(-45)
        .bar_width(0.9)
        .fill_opacity(80)
        .line_width(0)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
            .calcs([])
        )
        .tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
        .with_transformation(merged())
        .with_transformation(organized(order, renamed))
        .with_transformation(
            models.DataTransformerConfig(id_val="sortBy", options={"sort": [{"field": "bar"}]})
        )
        .override_by_name("bar", [models.DynamicConfigValue(id_val="mappings", value=[mapping])])
        .override_by_name(
            names["below"],
            [
                models.DynamicConfigValue(id_val="color", value=fixed("transparent")),
                models.DynamicConfigValue(
                    id_val="custom.hideFrom", value={"legend": True, "tooltip": True, "viz": False}
                ),
            ],
        )
    )
    for name, color in colors.items():
        value = models.DynamicConfigValue(id_val="color", value=fixed(color))
        panel = panel.override_by_name(names[name], [value])
    for name, expression in series.items():
        panel = panel.with_target(target(expression, ref=refs[name], instant=True))
    return panel


def time_by_bucket(asked: Asked, *, y: int) -> Any:
    spent = asked.rate(SECONDS, by="bucket")
    return lines(
        Words(
            id=8,
            title="Where the time goes",
            text="What the jobs' time goes to now: 1 is one job that does nothing else. The time "
            "of steps is entered when a save or a report tells of it, and so comes in bursts.",
            unit="none",
        ),
        {"{{bucket}}": f"sum by (bucket) ({spent}) > 0"},
        position=at(12, y, 12, 10),
        colors={"productive": "green", "lost": "red", "suspended": "light-blue"},
        stacked=True,
        decimals=2,
    )


def restarts(asked: Asked) -> Mark:
    """A mark at an automatic restart, at most one a minute and job. Its time is the start's, not
    that of the scrape."""
    count = asked.job("training_job_restart_count_total")
    before = asked.job("training_job_restart_count_total", condition=f" offset {MARK_STEP}")
    # Of a job that is younger, all restarts are new.
    before = f"({before} or on (namespace, name) 0 * {count})"
    start = asked.job("training_job_last_start_timestamp_seconds", condition=" > 0")
    return Mark(
        name="Restarts",
        expression=f"1000 * ({start} and on (namespace, name) ({count} > {before}))",
        title="restart",
        text="{{namespace}}/{{name}}",
        color="orange",
        at_value=True,
    )


def fallbacks(asked: Asked) -> Mark:
    """A mark where a newer checkpoint was passed over. Known by namespace only."""
    series = asked.select("training_job_checkpoint_fallbacks_total")
    return Mark(
        name="Fallbacks",
        expression=f"sum by (namespace) ({series} - {series} offset {MARK_STEP}) > 0",
        title="an older checkpoint was taken",
        text="{{namespace}}",
        color="red",
    )
