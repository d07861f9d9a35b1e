"""What docs/comparison.md says of ourselves is what the files say."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from kit.boards import BOARDS
from kit.chart import CHART
from kit.pages import DOCS, ROOT

PAGE = (DOCS / "comparison.md").read_text(encoding="utf-8")
TEMPLATES = "\n".join(path.read_text() for path in (CHART / "templates").glob("*"))


def ours(feature: str) -> str:
    """The last cell of the row that begins with these words."""
    (row,) = re.findall(rf"^\| {re.escape(feature)} \|(.*)\|$", PAGE, flags=re.MULTILINE)
    return str(row.split("|")[-1].strip())


def test_rules() -> None:
    rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
    every = [rule for group in rules["groups"] for rule in group["rules"]]
    alerts = [rule for rule in every if "alert" in rule]
    assert ours("rules shipped") == (
        f"{len(alerts)} alerts, {len(every) - len(alerts)} recording rules"
    )
    waits = {rule.get("for", "0") for rule in alerts}
    assert set(ours("waits (`for`)").split(" to ")) <= waits
    told = set(ours("severity").split(", "))
    assert {rule["labels"]["severity"] for rule in alerts} == told
    tests = list((ROOT / "tests" / "unit" / "rules").glob("rules*.yaml"))
    assert ours("unit tests by promtool").startswith(f"{len(tests)} files")


def test_dashboards() -> None:
    assert len(BOARDS) == int(ours("dashboard ConfigMap"))
    for name, board in BOARDS.items():
        (row,) = re.findall(rf"^\| ours, {name} \|(.*)\|$", PAGE, flags=re.MULTILINE)
        cells = [cell.strip() for cell in row.split("|")]
        shown: list[dict[str, Any]] = board["panels"]
        defaults = [each.get("fieldConfig", {}).get("defaults", {}) for each in shown]
        text = json.dumps(board)
        fixed = len(re.findall(r"\[\d+[smhd]\]", text))
        assert cells[:5] == [
            str(len(shown)),
            str(sum("unit" in each for each in defaults)),
            str(sum("thresholds" in each for each in defaults)),
            str(sum(bool(each.get("description")) for each in shown)),
            f"{text.count('$__rate_interval')} / {fixed}",
        ]
        marks = ", ".join(mark["name"].lower() for mark in board["annotations"]["list"])
        assert cells[5] == marks
        assert cells[6] == str(len(board["templating"]["list"]))


@pytest.mark.parametrize(
    ("feature", "sign"),
    [
        ("PodDisruptionBudget", "kind: PodDisruptionBudget"),
        ("`helm test` hook", "helm.sh/hook: test"),
        ("extra objects", "extraObjects"),
        ("NetworkPolicy", "kind: NetworkPolicy"),
    ],
)
def test_what_is_there_is_there_and_what_is_not_is_not(feature: str, sign: str) -> None:
    assert (sign in TEMPLATES) == (ours(feature) != "-")


def test_replicas_and_their_election() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert ours("replicas by default / leader election") == f"{values['replicas']}/y"
    assert "kind: Lease" in TEMPLATES
    assert "topologySpreadConstraints" in values
