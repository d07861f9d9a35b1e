"""`monitoring.rules.joinTeam`: alerts about a job carry its team, by the real PromQL engine."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml
from kit import tools
from kit.chart import render

VALUES = {
    "crds.install": False,
    "monitoring.renderMode": "alwaysRender",
    "monitoring.rules.joinTeam": True,
}


def test_each_alert_about_a_job_carries_its_team_and_none_is_lost(tmp_path: Path) -> None:
    [rules] = [each["spec"] for each in render(values=VALUES) if each["kind"] == "PrometheusRule"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))

    def series(metric: str, values: str, **labels: str) -> dict[str, str]:
        text = ",".join(f'{k}="{v}"' for k, v in labels.items())
        return {"series": f"{metric}{{{text}}}", "values": values}

    def failed(name: str) -> list[dict[str, str]]:
        return [
            series("training_job_status_phase", "1x60", namespace="n", name=name, phase="Failed"),
            series("training_job_finished_timestamp_seconds", "60x60", namespace="n", name=name),
        ]

    def alert(name: str, **labels: str) -> dict[str, Any]:
        shown = {"alertname": "TrainingJobFailed", "alertstate": "firing", "namespace": "n"}
        shown |= {"name": name, "severity": "warning", **labels}
        return {"labels": ",".join(f'{k}="{v}"' for k, v in shown.items()), "value": 1}

    info = {"namespace": "n", "uid": "u"}
    inputs = [
        *failed("ours"),
        *failed("nobodys"),
        *failed("unknown"),
        # Scraped twice.
        series("training_job_info", "1x60", name="ours", team="vision", instance="a", **info),
        series("training_job_info", "1x60", name="ours", team="vision", instance="b", **info),
        series("training_job_info", "1x60", name="nobodys", team="", instance="a", **info),
    ]
    expected = [alert("ours", team="vision"), alert("nobodys"), alert("unknown")]
    for each in expected:
        each["labels"] = "{" + each["labels"] + "}"
    case = {
        "interval": "30s",
        "input_series": inputs,
        "promql_expr_test": [
            {
                "expr": 'max without (__name__) (ALERTS{alertname="TrainingJobFailed"})',
                "eval_time": "12m13s",
                "exp_samples": expected,
            },
            # The join of docs/install.md.
            {
                "expr": "training_job_finished_timestamp_seconds{name='ours'}"
                " * on (namespace, name) group_left (team)"
                " max by (namespace, name, team) (training_job_info)",
                "eval_time": "12m13s",
                "exp_samples": [
                    {"labels": '{namespace="n",name="ours",team="vision"}', "value": 60}
                ],
            },
        ],
    }
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "13s", "tests": [case]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document))
    for words in (("check", "rules", "rules.yaml"), ("test", "rules", "test.yaml")):
        done = subprocess.run(
            [tools.promtool(), *words], cwd=tmp_path, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    expressions = {
        rule["alert"]: rule["expr"]
        for group in rules["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    for name, expression in expressions.items():
        about_a_job = name.startswith("TrainingJob") and not name.startswith("TrainingJobs")
        assert ("group_left (team)" in expression) == about_a_job, name
