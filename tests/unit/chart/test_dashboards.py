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
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from kit import boards, tools
from kit.boards import BOARDS, panels, queries
from kit.chart import CHART
from rtj_api.status import JobPhase
from rtj_api.status_ledger import TimeBuckets

GENERATE = CHART.parent / "dashboards" / "generate.py"
RULES = CHART / "files" / "rules.yaml"
CORE_PANELS = {"stat", "timeseries", "state-timeline", "table", "heatmap", "barchart", "text"}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
DOCS = CHART.parents[1] / "docs"
METRIC = re.compile(r"\b((?:training_(?:job|node)|resumable_training_(?:operator|sidecar))_\w+)\b")
OF_A_JOB = re.compile(r"training_job_(?!restart_reasons|checkpoint_fallbacks|downtime|restore_dur)")
BY_NAMESPACE = re.compile(r"training_job_(restart_reasons|checkpoint_fallbacks|downtime|restore_d)")
GUARD = re.compile(r"max by \(namespace, name[a-z, ]*\) \((?:(?:rate|increase)\()?(\w+)\b")


@pytest.fixture(params=list(BOARDS))
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = BOARDS[request.param]
    return found


def marks(board: dict[str, Any]) -> list[str]:
    return [mark["expr"] for mark in board["annotations"]["list"]]


def expressions(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for _, target in queries(board)] + marks(board)


def variables(board: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in board["templating"]["list"]}


def test_they_are_what_the_source_says() -> None:
    done = subprocess.run(
        [sys.executable, GENERATE, "--check"], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(BOARDS) == {"fleet", "job", "checkpoints", "operator"}


def test_a_file_that_somebody_changed_is_named(tmp_path: Path) -> None:
    sys.path.insert(0, str(GENERATE.parent))
    try:
        import generate
    finally:
        sys.path.remove(str(GENERATE.parent))
    files = generate.rendered()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    first = next(iter(files))
    (tmp_path / first).write_text(files[first].replace("percentunit", "percent"))
    (tmp_path / "old.json").write_text("{}")
    assert generate.drifted(tmp_path, files) == {first, "old.json"}


def test_each_is_in_grafanas_own_schema(board: dict[str, Any]) -> None:
    """The SDK's types are made from it; what they do not know would not come back."""
    known = json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder))
    for panel, again in zip(board["panels"], known["panels"], strict=True):
        assert again == panel, panel["title"]
    for key in set(board) - {"annotations", "panels"}:
        assert known[key] == board[key], key


def test_it_can_be_found_and_not_be_changed_by_accident(board: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-z0-9-]{1,40}", board["uid"])
    assert board["title"].startswith("Resumable training: ")
    assert board["description"].endswith(".")
    assert board["tags"] == ["resumable-training"]
    assert board["schemaVersion"] >= 39
    assert board["editable"] is False
    assert board["refresh"] == "30s"


def test_every_panel_explains_itself(board: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    titles = [panel["title"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    assert len(set(titles)) == len(titles)
    for panel in board["panels"]:
        assert panel["title"][0].isupper(), panel["title"]
        assert panel["type"] in CORE_PANELS, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
    for panel in panels(board):
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"], panel["title"]
        steps = defaults["thresholds"]["steps"]
        assert steps[0]["value"] is None, panel["title"]
        values = [step["value"] for step in steps[1:]]
        assert values == sorted(values), panel["title"]
        assert panel["targets"], panel["title"]


def test_panels_do_not_overlap_nor_leave_a_row_empty(board: dict[str, Any]) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]
    bottom = max(y for _, y in taken) + 1
    assert {(x, y) for x in range(24) for y in range(bottom)} == set(taken)


def test_the_two_measures_come_first(board: dict[str, Any]) -> None:
    first = sorted(
        board["panels"], key=lambda panel: (panel["gridPos"]["y"], panel["gridPos"]["x"])
    )
    assert [panel["title"] for panel in first[:2]] == ["Progress preserved", "Time to useful work"]


def test_data_source_is_a_variable_everywhere(board: dict[str, Any]) -> None:
    for panel in panels(board):
        assert panel["datasource"] == DATASOURCE, panel["title"]
    for panel, target in queries(board):
        assert target["datasource"] == DATASOURCE, panel["title"]
    for mark in board["annotations"]["list"]:
        assert mark["datasource"] == DATASOURCE
    by_name = variables(board)
    assert by_name["datasource"]["type"] == "datasource"
    assert by_name["datasource"]["query"] == "prometheus"
    for name in set(by_name) - {"datasource"}:
        variable = by_name[name]
        assert variable["datasource"] == DATASOURCE
        assert variable["refresh"] == 2, "on a change of the time range"
        if variable.get("multi"):
            assert variable["includeAll"] is True
            assert variable["allValue"] == ".+"
    if "name" in by_name:
        assert "$namespace" in by_name["name"]["query"]["query"]


def test_a_choice_of_several_is_matched_as_a_pattern_and_one_as_itself(
    board: dict[str, Any],
) -> None:
    for name, variable in variables(board).items():
        used = {
            operator
            for text in expressions(board)
            for operator in re.findall(rf'(=~?)"\${name}"', text)
        }
        if name != "datasource":
            assert used == ({"=~"} if variable.get("multi") else {"="}), name


def test_queries_count_each_job_once_and_follow_the_variables(board: dict[str, Any]) -> None:
    known = set(variables(board))
    for expression in expressions(board):
        names = METRIC.findall(expression)
        assert names or boards.is_of_a_site(expression), expression
        of_jobs = [name for name in names if OF_A_JOB.match(name) or "_sidecar_" in name]
        assert sorted(of_jobs) == sorted(set_of_guarded(expression)), expression
        chosen = set(re.findall(r"\$([a-z]+)\b", expression))
        assert chosen <= known, expression
        if of_jobs and "name" in known:
            assert {"namespace", "name"} <= chosen, expression
        if any(BY_NAMESPACE.match(name) for name in names) and "namespace" in known:
            assert "namespace" in chosen, expression
        assert "delta(" not in expression


def set_of_guarded(expression: str) -> list[str]:
    return [name for name in GUARD.findall(expression) if METRIC.fullmatch(name)]


def test_counters_rise_over_the_range_that_grafana_chooses(board: dict[str, Any]) -> None:
    for panel, target in queries(board):
        text = re.sub(r'"[^"]*"', "", target["expr"])
        assert re.findall(r"\[([^\]]+)\]", text) == ["$__rate_interval"] * text.count("["), text
        assert " offset " not in text, panel["title"]
    for mark in board["annotations"]["list"]:
        # What a mark looks back over is what lies between two of its points.
        assert set(re.findall(r"offset (\w+)", mark["expr"])) == {mark["step"]}
        assert "[" not in mark["expr"]


def test_queries_are_promql(board: dict[str, Any], tmp_path: Path) -> None:
    choice = boards.Choice(start=0, end=0)
    rules = [
        {"record": f"panel:{place}", "expr": choice.put_into(expression)}
        for place, expression in enumerate(expressions(board))
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        [tools.promtool(), "check", "rules", path], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_line_has_a_name(board: dict[str, Any]) -> None:
    for panel, target in queries(board):
        if target.get("instant"):
            continue
        legend = target["legendFormat"]
        assert legend, panel["title"]
        for label in re.findall(r"\{\{(\w+)\}\}", legend):
            assert re.search(rf"\b{label}\b", target["expr"]), f"{panel['title']}: {label}"


def test_restarts_and_fallbacks_are_marked(board: dict[str, Any]) -> None:
    found = {mark["name"]: mark for mark in board["annotations"]["list"]}
    assert set(found) == {"Restarts", "Fallbacks"}
    assert found["Restarts"]["useValueForTime"] is True


def links(board: dict[str, Any]) -> Iterator[str]:
    yield from (link["url"] for link in board["links"])
    for panel in panels(board):
        config = panel["fieldConfig"]
        yield from (link["url"] for link in config["defaults"].get("links", []))
        for override in config.get("overrides", []):
            for each in override["properties"]:
                if each["id"] == "links":
                    yield from (link["url"] for link in each["value"])


def test_each_dashboard_leads_to_the_others(board: dict[str, Any]) -> None:
    by_uid = {each["uid"]: each for each in BOARDS.values()}
    top = {urlsplit(link["url"]).path.removeprefix("/d/") for link in board["links"]}
    assert top == set(by_uid) - {board["uid"]}
    for url in links(board):
        address = urlsplit(url.replace("${datasource:queryparam}", "var-datasource=x"))
        there = by_uid[address.path.removeprefix("/d/")]
        asked = {name.removeprefix("var-") for name in parse_qs(address.query)} - {
            "${__url_time_range}"
        }
        assert asked <= set(variables(there)), url
    for link in board["links"]:
        there = by_uid[urlsplit(link["url"]).path.removeprefix("/d/")]
        # Where one job can be chosen, a choice of all makes no sense.
        one = "name" in variables(there) and not variables(there)["name"].get("multi")
        assert not (link["includeVars"] and one)
        assert link["keepTime"]


def test_each_runbook_that_a_panel_leads_to_is_there(board: dict[str, Any]) -> None:
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    found = [link for panel in board["panels"] for link in panel.get("links", [])]
    assert len(found) >= 5
    for link in found:
        assert link["title"].removeprefix("Runbook ") in alerts
        assert (CHART.parents[1] / link["url"]).is_file(), link["url"]


def test_a_panel_of_a_sites_own_exporters_says_so() -> None:
    foreign = [
        panel
        for board in BOARDS.values()
        for panel, target in queries(board)
        if boards.is_of_a_site(target["expr"])
    ]
    assert len(foreign) == len(boards.OF_A_SITE)
    for panel in foreign:
        assert "Not one of ours: empty where the cluster has no " in panel["description"]


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
    texts = [RULES.read_text(), *(text for board in BOARDS.values() for text in expressions(board))]
    named = [phase for text in texts for phase in re.findall(r'phase=~?"([^"]+)"', text)]
    assert {phase for group in named for phase in group.split("|")} <= phases
    timelines = [
        panel for name in ("fleet", "job") for panel in BOARDS[name]["panels"] if panel["id"] == 6
    ]
    assert len(timelines) == 2
    for timeline in timelines:
        assert timeline["type"] == "state-timeline"
        options = timeline["fieldConfig"]["defaults"]["mappings"][0]["options"]
        assert {option["text"] for option in options.values()} == phases
        for place, option in options.items():
            assert re.search(
                rf'phase="{option["text"]}"[^)]*\)\s\*\s{place}\b', timeline["targets"][0]["expr"]
            )


def test_the_waterfall_has_every_bucket_of_the_ledger_once() -> None:
    buckets = set(TimeBuckets.model_fields)
    for name in ("fleet", "job"):
        [panel] = [each for each in BOARDS[name]["panels"] if each["type"] == "barchart"]
        asked = {target["refId"]: target["expr"] for target in panel["targets"]}
        [whole] = re.findall(r'bucket=~"([^"]+)"', asked["B"])
        assert sorted(whole.split("|")) == sorted(buckets)
        single = [
            bucket for ref in "CDE" for bucket in re.findall(r'bucket=~"([^"]+)"', asked[ref])
        ]
        assert sorted(single) == sorted(buckets)
        assert single == whole.split("|"), "each bar takes off what comes next"
        below = [one.split("|") for one in re.findall(r'bucket=~"([^"]+)"', asked["A"])]
        assert below == [single[place + 1 :] for place in range(len(single) - 1)]
