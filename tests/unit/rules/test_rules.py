"""promtool accepts the rules and their tests, as a plain file and as the chart renders them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit import tools
from kit.chart import CHART, render

HERE = Path(__file__).parent
RULES = CHART / "files" / "rules.yaml"
DOCS = CHART.parents[1] / "docs"
PARTS = ["Meaning", "Impact", "Diagnosis", "Mitigation", "False positives"]
ONLY_RULES = {"crds.install": False, "monitoring.renderMode": "alwaysRender"}


def promtool(*arguments: str | Path) -> str:
    """What it says of it; fails with its words where it refuses."""
    done = subprocess.run(
        [tools.promtool(), *arguments], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rendered_rules(values: dict[str, Any]) -> dict[str, Any]:
    rendered = render(values=ONLY_RULES | values)
    [rule] = [each for each in rendered if each["kind"] == "PrometheusRule"]
    spec: dict[str, Any] = rule["spec"]
    return spec


def alerts(groups: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rules = [rule for group in groups["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


def test_plain_file_is_accepted() -> None:
    count = sum(len(group["rules"]) for group in yaml.safe_load(RULES.read_text())["groups"])
    assert f"SUCCESS: {count} rules found" in promtool("check", "rules", RULES)


NAMES = sorted(each.name for each in HERE.glob("*_test.yaml"))
WEEKS = "rules_long_test.yaml"  # half a minute of a core
CASES = [*(n for n in NAMES if n != WEEKS), pytest.param(WEEKS, marks=pytest.mark.long)]


@pytest.mark.parametrize("name", CASES)
def test_plain_file_passes_its_tests(name: str) -> None:
    assert "SUCCESS" in promtool("test", "rules", HERE / name)


def test_rendered_with_defaults_says_the_same(tmp_path: Path) -> None:
    rendered = rendered_rules({})
    assert rendered == yaml.safe_load(RULES.read_text())
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rendered))
    promtool("check", "rules", tmp_path / "rules.yaml")


VALUES = {
    "monitoring.rules.restartBurst": 5,
    "monitoring.rules.startsMinusCompletions": 4,
    "monitoring.rules.startsAbove": 6,
    "monitoring.rules.restartsWithoutProgress": 2,
    "monitoring.rules.runbookURL": "https://runbooks.example.com/rtj/{alert}/",
    "monitoring.rules.alertLabels.team": "ml",
    "nameOverride": "rtj",
}


def test_labels_and_addresses_reach_every_alert(tmp_path: Path) -> None:
    rendered = rendered_rules(VALUES)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rendered))
    promtool("check", "rules", tmp_path / "rules.yaml")
    by_name = alerts(rendered)
    assert 'job="rtj"' in by_name["ResumableTrainingOperatorDown"]["expr"]
    for name, rule in by_name.items():
        assert rule["labels"]["team"] == "ml"
        assert rule["annotations"]["runbook_url"] == (f"https://runbooks.example.com/rtj/{name}/")
    records = [rule for group in rendered["groups"] for rule in group["rules"] if "record" in rule]
    plain = yaml.safe_load(RULES.read_text())
    assert records == [
        rule for group in plain["groups"] for rule in group["rules"] if "record" in rule
    ]


def test_rendered_thresholds_are_where_the_values_say(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rendered_rules(VALUES)))

    def series(metric: str, name: str, values: str) -> dict[str, str]:
        return {"series": f'{metric}{{namespace="n",name="{name}"}}', "values": values}

    inputs = [
        series("training_job_created_timestamp_seconds", "below", "-86400x60"),
        series("training_job_restart_count_total", "below", "0x20 5x40"),
        series("training_job_start_count_total", "below", "6x60"),
        series("training_job_restarts_since_progress", "below", "1x60"),
        series("training_job_created_timestamp_seconds", "above", "-86400x60"),
        series("training_job_restart_count_total", "above", "0x20 6x40"),
        series("training_job_start_count_total", "above", "7x60"),
        series("training_job_restarts_since_progress", "above", "2x60"),
        {"series": 'up{job="rtj"}', "values": "1x60"},
    ]
    firing = [
        ("TrainingJobRestartBurst", "warning"),
        ("TrainingJobStartsWithoutCompletion", "warning"),
        ("TrainingJobRestartingWithoutProgress", "critical"),
    ]
    samples = [
        {
            "labels": f'{{alertname="{alert}",alertstate="firing",namespace="n",name="above",'
            f'severity="{severity}",team="ml"}}',
            "value": 1,
        }
        for alert, severity in firing
    ]
    case = {
        "interval": "30s",
        "input_series": inputs,
        "promql_expr_test": [
            {
                "expr": 'max without (__name__) (ALERTS{alertstate="firing"})',
                "eval_time": "12m13s",
                "exp_samples": samples,
            }
        ],
    }
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "13s", "tests": [case]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document))
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "test.yaml")


def test_an_alert_can_be_left_out_by_name_and_only_by_a_name_there_is() -> None:
    rendered = rendered_rules({"monitoring.rules.disabled": ["TrainingJobRestartBurst"]})
    assert set(alerts(rendered)) == set(alerts(yaml.safe_load(RULES.read_text()))) - {
        "TrainingJobRestartBurst"
    }
    with pytest.raises(AssertionError, match="which is no alert of this chart"):
        rendered_rules({"monitoring.rules.disabled": ["TrainingJobRestartBursts"]})


def test_every_alert_says_what_a_person_needs() -> None:
    pages = {page.stem: page.read_text() for page in (DOCS / "runbooks").glob("*.md")}
    index = pages.pop("index")
    found = alerts(yaml.safe_load(RULES.read_text()))
    for name, rule in found.items():
        annotations = rule["annotations"]
        assert set(annotations) == {"summary", "description", "runbook_url"}
        assert "{{" not in annotations["summary"]
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert annotations["runbook_url"] == f"docs/runbooks/{name}.md"
        if name.startswith("TrainingJob") and not name.startswith("TrainingJobs"):
            assert (
                "kubectl describe rtj -n {{ $labels.namespace }} {{ $labels.name }}"
                in annotations["description"]
            )
        headings = re.findall(r"^##? (.*)$", pages[name], flags=re.MULTILINE)
        assert headings == [name, *PARTS], f"docs/runbooks/{name}.md"
        assert "```sh\n" in pages[name], f"docs/runbooks/{name}.md says how to look, by commands"
        assert f"]({name}.md)" in index
    assert set(pages) == set(found), "docs/runbooks has one page for each alert"
