"""Panels of the dashboards: one look, and a place on the grid.

Must never name a series of its own; what is shown is each dashboard's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import prometheus as prometheus_models
from links import runbook

WIDTH = 24
DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
Steps = Sequence[tuple[float | None, str]]
PLAIN: Steps = ((None, "text"),)
CALM: Steps = ((None, "green"),)


@dataclass(frozen=True, kw_only=True)
class Words:
    """What a panel says of itself. `alert`: the one whose runbook tells what to do."""

    id: int
    title: str
    text: str
    unit: str = "short"
    limits: Steps = CALM
    alert: str = ""


def at(x: int, y: int, width: int, height: int) -> models.GridPos:
    return models.GridPos(x=x, y=y, w=width, h=height)


def target(
    expression: str, *, ref: str = "A", legend: str = "", instant: bool = False
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


def thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=color) for value, color in steps])
    )


def worded(panel: Any, words: Words, position: models.GridPos) -> Any:
    """The panel with its words, unit, thresholds and place."""
    panel = (
        panel.id(words.id)
        .title(words.title)
        .description(words.text)
        .datasource(DATASOURCE)
        .unit(words.unit)
        .thresholds(thresholds(words.limits))
        .grid_pos(position)
    )
    return panel.links([runbook(words.alert)]) if words.alert else panel


def number(
    words: Words, expression: str, *, position: models.GridPos, decimals: int = 0, none: str = ""
) -> stat.Panel:
    """`none`: what is said where there is no value yet."""
    panel: stat.Panel = (
        worded(stat.Panel(), words, position)
        .decimals(decimals)
        .color_mode(common_models.BigValueColorMode.VALUE)
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .with_target(target(expression, legend=words.title))
    )
    return panel.no_value(none) if none else panel


def lines(
    words: Words,
    targets: Mapping[str, str],
    *,
    position: models.GridPos,
    stacked: bool = False,
    bars: bool = False,
    show_limits: bool = False,
    most: float | None = None,
    decimals: int | None = None,
) -> timeseries.Panel:
    """`targets`: legend → expression."""
    modes = common_models.GraphThresholdsStyleMode
    style = common_models.GraphDrawStyle
    panel: timeseries.Panel = (
        worded(timeseries.Panel(), words, position)
        .min(0)
        .thresholds_style(
            common.GraphThresholdsStyleConfig().mode(modes.DASHED if show_limits else modes.OFF)
        )
        .draw_style(style.BARS if bars else style.LINE)
        .line_interpolation(common_models.LineInterpolation.STEP_AFTER)
        .fill_opacity(60 if stacked or bars else 0)
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
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    if most is not None:
        panel = panel.max(most)
    if decimals is not None:
        panel = panel.decimals(decimals)
    for ref, (legend, expression) in zip("ABCDEFGH", targets.items(), strict=False):
        panel = panel.with_target(target(expression, ref=ref, legend=legend))
    return panel


def timeline(
    words: Words,
    expression: str,
    *,
    legend: str,
    position: models.GridPos,
    names: Sequence[tuple[int, str, str]] = (),
) -> statetimeline.Panel:
    """`names`: value, its word and its colour."""
    panel: statetimeline.Panel = (
        worded(statetimeline.Panel(), words, position)
        .merge_values(True)
        .show_value(common_models.VisibilityMode.AUTO)
        .row_height(0.8)
        .fill_opacity(80)
        .legend(
            common.VizLegendOptions()
            .show_legend(bool(names))
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
            .calcs([])
        )
        .with_target(target(expression, legend=legend))
    )
    if not names:
        return panel
    options = {
        str(value): models.ValueMappingResult(text=word, color=color, index=index)
        for index, (value, word, color) in enumerate(names)
    }
    return panel.mappings([models.ValueMap(options=options)])


def durations(words: Words, expression: str, *, position: models.GridPos) -> heatmap.Panel:
    """A histogram's bars over time; `expression` has the label `le`."""
    panel: heatmap.Panel = (
        worded(heatmap.Panel(), words, position)
        .calculate(False)
        .cell_gap(1)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(heatmap_models.HeatmapColorMode.SCHEME)
            .scheme("Oranges")
            .steps(32)
        )
        .y_axis(heatmap.YAxisConfig().unit("s"))
        .with_target(
            target(expression, legend="{{le}}").format(prometheus_models.PromQueryFormat.HEATMAP)
        )
    )
    return panel
