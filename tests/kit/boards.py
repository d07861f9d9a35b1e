"""The dashboards of the chart as data: what is asked, of whom, and what a Prometheus answers.

For tests, and for the pictures in docs/. Must never change a query but by putting variables in, as
Grafana does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kit.chart import CHART
from kit.prometheus import Prometheus

BOARDS: dict[str, dict[str, Any]] = {
    path.stem.removeprefix("resumable-training-"): json.loads(path.read_text())
    for path in sorted(CHART.glob("files/dashboards/*.json"))
}
# Exporters of a site, which it may lack: the only panels that may be empty, and say so.
OF_A_SITE = ("DCGM_FI_DEV_GPU_UTIL", "container_memory_working_set_bytes")
MARK_SECONDS = 60.0  # between two looks for marks: the `step` that they have


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a person chose. `rate_interval`: as Grafana makes it, four scrapes at least."""

    start: float
    end: float
    namespace: str = ".+"
    name: str = ".+"
    step: float = 1.0
    rate_interval: str = "1m"

    def put_into(self, expression: str) -> str:
        chosen = {"namespace": self.namespace, "name": self.name, "operator": ".+"}
        chosen["__rate_interval"] = self.rate_interval
        text = re.sub(r"\$(\w+)", lambda found: chosen[found[1]], expression)
        assert "$" not in text
        return text


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Those that show data."""
    yield from (panel for panel in board["panels"] if panel["type"] != "text")


def queries(board: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(panel, target) of each."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield panel, target


def is_of_a_site(expression: str) -> bool:
    return any(metric in expression for metric in OF_A_SITE)


def answer(
    prometheus: Prometheus, target: Mapping[str, Any], choice: Choice
) -> list[dict[str, Any]]:
    """`result` of the target's query, in the form of Prometheus's API, in the chosen time."""
    text = choice.put_into(target["expr"])
    if target.get("instant"):
        rows = prometheus.query(text, at=choice.end)
        return [{"metric": dict(row.labels), "value": [choice.end, str(row.value)]} for row in rows]
    return prometheus.query_range(text, start=choice.start, end=choice.end, step=choice.step)


def kept(prometheus: Prometheus, choices: Mapping[str, Choice], *, source: str) -> dict[str, Any]:
    """Every answer and mark of the dashboards, as `tools/panels` draws them. `source`: in words,
    whose data it is."""
    return {
        "source": source,
        "boards": {
            name: {
                "start": choice.start,
                "end": choice.end,
                "variables": {"namespace": choice.namespace, "name": choice.name},
                "answers": {
                    str(panel["id"]): {
                        target["refId"]: answer(prometheus, target, choice)
                        for target in panel["targets"]
                    }
                    for panel in panels(BOARDS[name])
                },
                "marks": {
                    mark["name"]: prometheus.query_range(
                        choice.put_into(mark["expr"]),
                        start=choice.end
                        - (choice.end - choice.start) // MARK_SECONDS * MARK_SECONDS,
                        end=choice.end,
                        step=MARK_SECONDS,
                    )
                    for mark in BOARDS[name]["annotations"]["list"]
                },
            }
            for name, choice in choices.items()
        },
    }


def empty(prometheus: Prometheus, board: Mapping[str, Any], choice: Choice) -> Sequence[str]:
    """`title: query` of each that gives nothing, without those of a site's own exporters."""
    return [
        f"{panel['title']}: {choice.put_into(target['expr'])}"
        for panel, target in queries(board)
        if not is_of_a_site(target["expr"]) and not answer(prometheus, target, choice)
    ]
