"""What surrounds the panels: name, variables, marks in time, links to the other dashboards.

The SDK has no word for a mark's query, so marks are plain JSON. Must never hold a panel.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from links import TITLES, to_others
from panels import DATASOURCE

# How far a mark's query looks back, and how often Grafana asks it: one mark for each event.
MARK_STEP = "1m"
_OF_JOBS = "training_job_start_count_total"


@dataclass(frozen=True, kw_only=True)
class Mark:
    """`at_value`: the query's value is the moment, in milliseconds."""

    name: str
    expression: str
    title: str
    text: str
    color: str
    at_value: bool = False

    def dump(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "enable": True,
            "hide": False,
            "iconColor": self.color,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "expr": self.expression,
            "step": MARK_STEP,
            "useValueForTime": self.at_value,
            "titleFormat": self.title,
            "textFormat": self.text,
        }


@dataclass(frozen=True, kw_only=True)
class Board:
    """One dashboard. `panels` are builders, placed."""

    uid: str
    text: str
    variables: Sequence[Any]
    panels: Sequence[Any]
    marks: Sequence[Mark] = field(default=())

    def dump(self) -> dict[str, Any]:
        board = (
            dashboard.Dashboard(TITLES[self.uid])
            .uid(self.uid)
            .description(self.text)
            .tags(["resumable-training"])
            .readonly()
            .tooltip(models.DashboardCursorSync.CROSSHAIR)
            .refresh("30s")
            .time("now-6h", "now")
            .timezone("browser")
            .links(to_others(self.uid))
        )
        for variable in self.variables:
            board = board.with_variable(variable)
        for panel in self.panels:
            board = board.with_panel(panel)
        made: dict[str, Any] = json.loads(json.dumps(board.build(), cls=JSONEncoder))
        made["annotations"] = {"list": [mark.dump() for mark in self.marks]}
        return made


def datasource() -> Any:
    return dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")


def many(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """A choice of several, at first all."""
    return (
        _values(name, label, query)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _values(name: str, label: str, query: str) -> dashboard.QueryVariable:
    asked = {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"}
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(asked)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


def of_many_jobs() -> list[Any]:
    return [
        datasource(),
        many("namespace", "Namespace", f"label_values({_OF_JOBS}, namespace)"),
        many("name", "Job", f'label_values({_OF_JOBS}{{namespace=~"$namespace"}}, name)'),
    ]


def of_one_job() -> list[Any]:
    return [
        datasource(),
        _values("namespace", "Namespace", f"label_values({_OF_JOBS}, namespace)"),
        _values("name", "Job", f'label_values({_OF_JOBS}{{namespace="$namespace"}}, name)'),
    ]
