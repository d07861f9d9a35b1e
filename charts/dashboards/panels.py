"""Panels of the dashboards: one look and one way to ask for a job's series.

Must never name a series of its own; what is shown is each dashboard's.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    stat,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

WIDTH = 24


JOBS = '{namespace=~"$namespace",name=~"$name"}'


DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")


def by_job(metric: str, *, condition: str = "") -> str:
    """One series a job, whoever scraped it how often."""
    return f"max by (namespace, name) ({metric}{JOBS}{condition})"


def total(expression: str) -> str:
    # No job at all is 0 jobs, and not "no data".
    return f"sum({expression}) or vector(0)"


def target(
    expression: str,
    *,
    ref: str = "A",
    legend: str = "{{namespace}}/{{name}}",
    instant: bool = False,
) -> prometheus.Dataquery:
    query = (
        prometheus.Dataquery()
        .datasource(DATASOURCE)
        .expr(expression)
        .legend_format(legend)
        .ref_id(ref)
    )
    if instant:
        return query.instant().format(prometheus_models.PromQueryFormat.TABLE)
    return query.range()


def thresholds(*steps: tuple[float | None, str]) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=color) for value, color in steps])
    )


def at(x: int, y: int, width: int, height: int) -> models.GridPos:
    return models.GridPos(x=x, y=y, w=width, h=height)


def number(
    id_val: int, title: str, text: str, expression: str, *, bad: float | None = None, x: int = 0
) -> stat.Panel:
    steps: list[tuple[float | None, str]] = [(None, "text")]
    if bad is not None:
        steps = [(None, "green"), (bad, "red")]
    return (
        stat.Panel()
        .id(id_val)
        .title(title)
        .description(text)
        .datasource(DATASOURCE)
        .unit("short")
        .decimals(0)
        .thresholds(thresholds(*steps))
        .color_mode(common_models.BigValueColorMode.VALUE)
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .with_target(target(expression, legend=title))
        .grid_pos(at(x, 0, 4, 4))
    )


def lines(
    id_val: int,
    title: str,
    text: str,
    *,
    unit: str,
    position: models.GridPos,
    limits: dashboard.ThresholdsConfig,
    show_limits: bool = False,
) -> timeseries.Panel:
    style = (
        common_models.GraphThresholdsStyleMode.DASHED
        if show_limits
        else common_models.GraphThresholdsStyleMode.OFF
    )
    return (
        timeseries.Panel()
        .id(id_val)
        .title(title)
        .description(text)
        .datasource(DATASOURCE)
        .unit(unit)
        .min(0)
        .thresholds(limits)
        .thresholds_style(common.GraphThresholdsStyleConfig().mode(style))
        .line_interpolation(common_models.LineInterpolation.STEP_AFTER)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(common_models.LegendDisplayMode.TABLE)
            .placement(common_models.LegendPlacement.BOTTOM)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
        .grid_pos(position)
    )
