"""Panels of the dashboards: one look, and a place on the grid.

Must never name a series of its own; what is shown is each dashboard's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
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
# Without a word about it the first colour would be every line's.
COLORS_BY_LINE = dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC)
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


def fixed(color: str) -> dict[str, str]:
    return {"mode": "fixed", "fixedColor": color}


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
    colors: Mapping[str, str] = MappingProxyType({}),
    stacked: bool = False,
    show_limits: bool = False,
    wide_range: bool = False,
    most: float | None = None,
    decimals: int | None = None,
) -> timeseries.Panel:
    """`targets`: legend → expression; `colors`: the legend's text → a fixed colour;
    `wide_range`: seconds and hours in one panel, where 0 has no place."""
    modes = common_models.GraphThresholdsStyleMode
    panel: timeseries.Panel = (
        worded(timeseries.Panel(), words, position)
        .thresholds_style(
            common.GraphThresholdsStyleConfig().mode(modes.DASHED if show_limits else modes.OFF)
        )
        .line_interpolation(common_models.LineInterpolation.STEP_AFTER)
        .fill_opacity(60 if stacked else 0)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
            .calcs([])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
    )
    panel = panel.color_scheme(COLORS_BY_LINE)
    if not wide_range:
        panel = panel.min(0)
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    if show_limits:
        panel = panel.axis_soft_max(1.2 * max(value or 0 for value, _ in words.limits))
    if wide_range:
        panel = panel.scale_distribution(
            common.ScaleDistributionConfig().type(common_models.ScaleDistribution.LOG).log(10)
        )
    if most is not None:
        panel = panel.max(most)
    if decimals is not None:
        panel = panel.decimals(decimals)
    for name, color in colors.items():
        override = models.DynamicConfigValue(id_val="color", value=fixed(color))
        panel = panel.override_by_name(name, [override])
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
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
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


def merged() -> models.DataTransformerConfig:
    """The answers of several queries as the columns of one table."""
    return models.DataTransformerConfig(id_val="merge", options={})


def organized(order: Mapping[str, int], renamed: Mapping[str, str]) -> models.DataTransformerConfig:
    """Its columns in that order and with these titles, without the time."""
    return models.DataTransformerConfig(
        id_val="organize",
        options={
            "excludeByName": {"Time": True},
            "indexByName": order,
            "renameByName": renamed,
        },
    )
