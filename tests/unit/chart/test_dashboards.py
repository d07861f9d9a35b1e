"""What the dashboards must keep to: generated, readable without us, and never a double count.

The ideas are those of Grafana's dashboard-linter, and of reports about other operators' dashboards:
a fixed data source, a label that only one cluster has, rates over a fixed range.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit import tools
from kit.chart import CHART
from rtj_api.status import JobPhase

GENERATE = CHART.parent / "dashboards" / "generate.py"
RULES = CHART / "files" / "rules.yaml"
BOARDS = {path.name: json.loads(path.read_text()) for path in CHART.glob("files/dashboards/*.json")}
CORE_PANELS = {"stat", "timeseries", "state-timeline", "table", "row", "heatmap", "gauge"}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
DOCS = CHART.parents[1] / "docs"
METRIC = re.compile(r"\b((?:training_(?:job|node)|resumable_training_(?:operator|sidecar))_\w+)\b")


@pytest.fixture(params=list(BOARDS))
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = BOARDS[request.param]
    return found


def targets(board: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target


def expressions(board: dict[str, Any]) -> list[str]:
    marks = [mark["expr"] for mark in board["annotations"]["list"]]
    return [target["expr"] for _, target in targets(board)] + marks


def test_they_are_what_the_source_says() -> None:
    done = subprocess.run(
        [sys.executable, GENERATE, "--check"], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert BOARDS


def test_it_can_be_found_and_not_be_changed_by_accident(board: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-z0-9-]{1,40}", board["uid"])
    assert board["title"]
    assert board["description"]
    assert board["tags"] == ["resumable-training"]
    assert board["schemaVersion"] >= 39
    assert board["editable"] is False
    assert board["refresh"] == "30s"


def test_every_panel_explains_itself(board: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in board["panels"]:
        title = panel["title"]
        assert title[0].isupper(), title
        assert panel["type"] in CORE_PANELS, title
        assert panel["description"].endswith("."), title
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"], title
        assert defaults["thresholds"]["steps"][0]["value"] is None, title
        assert panel["targets"], title


def test_panels_do_not_overlap(board: dict[str, Any]) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]


def test_data_source_is_a_variable_everywhere(board: dict[str, Any]) -> None:
    for panel in board["panels"]:
        assert panel["datasource"] == DATASOURCE, panel["title"]
    for title, target in targets(board):
        assert target["datasource"] == DATASOURCE, title
    for mark in board["annotations"]["list"]:
        assert mark["datasource"] == DATASOURCE
    by_name = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert by_name["datasource"]["type"] == "datasource"
    assert by_name["datasource"]["query"] == "prometheus"
    for name in ("namespace", "name"):
        variable = by_name[name]
        assert variable["datasource"] == DATASOURCE
        assert variable["multi"] is True
        assert variable["includeAll"] is True
        assert variable["allValue"] == ".+"
        assert variable["refresh"] == 2, "on a change of the time range"
    assert "$namespace" in by_name["name"]["query"]["query"]


def test_queries_count_each_job_once_and_follow_the_variables(board: dict[str, Any]) -> None:
    for expression in expressions(board):
        names = METRIC.findall(expression)
        assert names, expression
        guarded = re.findall(
            r"max by \(namespace, name\) \((\w+)\{[^}]*"
            r'namespace=~"\$namespace",name=~"\$name"\}(?: > 0)?\)',
            expression,
        )
        assert sorted(guarded) == sorted(names), expression
        assert "$__rate_interval" in expression or not re.search(r"\[[^\]]+\]", expression)
        assert "delta(" not in expression


def test_queries_are_promql(board: dict[str, Any], tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{place}", "expr": re.sub(r'"\$\w+"', '".+"', expression)}
        for place, expression in enumerate(expressions(board))
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        [tools.promtool(), "check", "rules", path], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_legends_name_the_job(board: dict[str, Any]) -> None:
    for panel in board["panels"]:
        if panel["type"] in {"timeseries", "state-timeline"}:
            for target in panel["targets"]:
                assert "{{namespace}}/{{name}}" in target["legendFormat"], panel["title"]


def exported() -> set[str]:
    """Every series, as metrics.md has them, which is generated from the collectors themselves."""
    page = (DOCS / "metrics.md").read_text()
    kinds = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, flags=re.MULTILINE))
    parts = {f"{name}_{part}" for name, kind in kinds.items() if kind == "histogram"
             for part in ("bucket", "sum", "count")}  # fmt: skip
    return set(kinds) | parts


def test_dashboards_and_rules_name_only_series_that_there_are() -> None:
    known = exported()
    for name, board in BOARDS.items():
        for expression in expressions(board):
            assert set(METRIC.findall(expression)) <= known, name
    rules = [r for group in yaml.safe_load(RULES.read_text())["groups"] for r in group["rules"]]
    recorded = {rule["record"].split(":")[1] for rule in rules if "record" in rule}
    for rule in rules:
        assert set(METRIC.findall(rule["expr"])) <= known | recorded, rule["expr"]


def test_pages_name_only_series_that_there_are() -> None:
    known = exported()
    for page in DOCS.rglob("*.md"):
        # A name that ends in an underscore stands for all that begin with it.
        found = {name for name in METRIC.findall(page.read_text()) if not name.endswith("_")}
        assert found <= known, page.name


def test_phases_are_those_of_the_api() -> None:
    phases = {str(phase) for phase in JobPhase}
    named = re.findall(r'phase=~?"([^"]+)"', RULES.read_text())
    assert {phase for group in named for phase in group.split("|")} <= phases
    [timeline] = [
        panel
        for board in BOARDS.values()
        for panel in board["panels"]
        if panel["type"] == "state-timeline"
    ]
    options = timeline["fieldConfig"]["defaults"]["mappings"][0]["options"]
    assert {option["text"] for option in options.values()} == phases
    for place, option in options.items():
        assert re.search(
            rf'phase="{option["text"]}",[^)]*\)\s\*\s{place}\b', timeline["targets"][0]["expr"]
        )
