"""Tables of jobs: a row a job, a column a series.

Must never be sorted by what nobody looks for: the first column is the one to worry about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.models import dashboard as models
from links import job_of_row
from panels import Words, merged, organized, target, worded
from promql import Asked


@dataclass(frozen=True, kw_only=True)
class Column:
    """`is_time`: the series is a Unix time, shown as how long ago."""

    title: str
    metric: str
    unit: str = "short"
    condition: str = ""
    is_time: bool = False


def jobs(asked: Asked, words: Words, columns: Sequence[Column], *, position: Any) -> table.Panel:
    refs = dict(zip(columns, "ABCDEFGHIJKL", strict=False))
    renamed = {f"Value #{ref}": column.title for column, ref in refs.items()}
    order = {"namespace": 0, "name": 1} | {name: i for i, name in enumerate(renamed, 2)}
    panel: table.Panel = (
        worded(table.Panel(), words, position)
        .min_width(80)
        .sort_by([common.TableSortByFieldState().display_name(columns[0].title).desc(True)])
        .with_transformation(merged())
        .with_transformation(organized(order, {"namespace": "Namespace", "name": "Job"} | renamed))
        .override_by_name("Job", [models.DynamicConfigValue(id_val="links", value=[job_of_row()])])
    )
    for column, ref in refs.items():
        expression = asked.job(column.metric, condition=column.condition)
        if column.is_time:
            expression = f"1000 * {expression}"
        unit = "dateTimeFromNow" if column.is_time else column.unit
        panel = panel.with_target(target(expression, ref=ref, instant=True)).override_by_name(
            column.title, [models.DynamicConfigValue(id_val="unit", value=unit)]
        )
    return panel
