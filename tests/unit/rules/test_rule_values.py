"""Each value of `monitoring.rules` changes what it says and nothing else."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import yaml
from kit.chart import CHART, render

RULES = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
ONLY_RULES = {"crds.install": False, "monitoring.renderMode": "alwaysRender"}
# Value, another than the default, and the text that changes in the one alert that it is for.
NUMBERS: list[tuple[str, object, str, str, str]] = [
    ("restartBurst", 5, "TrainingJobRestartBurst", "> 3", "> 5"),
    (
        "startsMinusCompletions",
        4,
        "TrainingJobStartsWithoutCompletion",
        "starts_without_completion > 10",
        "starts_without_completion > 4",
    ),
    (
        "startsAbove",
        6,
        "TrainingJobStartsWithoutCompletion",
        "start_count_total:max > 10",
        "start_count_total:max > 6",
    ),
    ("restartsWithoutProgress", 2, "TrainingJobRestartingWithoutProgress", ">= 3", ">= 2"),
    ("checkpointOverdueIntervals", 2.5, "TrainingJobCheckpointOverdue", "3 * max", "2.5 * max"),
    ("workAtRiskSeconds", 600, "TrainingJobWorkAtRisk", "> 7200", "> 600"),
    ("intervalTooLongFactor", 4, "TrainingJobIntervalTooLong", "2 * max", "4 * max"),
    ("lostWorkShare", 0.1, "TrainingJobLostWorkHigh", "> 0.2 * 86400", "> 0.1 * 86400"),
    ("failingShare", 0.75, "TrainingJobsFailingInNamespace", "> 0.5", "> 0.75"),
    ("failingStarts", 20, "TrainingJobsFailingInNamespace", "[6h])) > 5", "[6h])) > 20"),
    ("watchStalledSeconds", 600, "ResumableTrainingOperatorWatchStalled", "> 900", "> 600"),
    ("handlerErrorShare", 0.5, "ResumableTrainingOperatorHandlerErrors", "> 0.2", "> 0.5"),
    ("queueStuckSeconds", 60, "ResumableTrainingOperatorQueueStuck", "> 300", "> 60"),
]


def rendered(values: dict[str, Any]) -> dict[str, Any]:
    objects = render(values=ONLY_RULES | values)
    [rule] = [each for each in objects if each["kind"] == "PrometheusRule"]
    spec: dict[str, Any] = rule["spec"]
    return spec


def by_name(groups: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rules = [rule for group in groups["groups"] for rule in group["rules"]]
    return {rule.get("alert", rule.get("record")): rule for rule in rules}


def test_every_number_reaches_its_rule_and_nothing_else_changes() -> None:
    """All at once: a value that reached another rule's text would show there."""
    found = by_name(rendered({f"monitoring.rules.{name}": to for name, to, *_ in NUMBERS}))
    wanted = deepcopy(by_name(RULES))
    for name, _, alert, before, after in NUMBERS:
        assert before in wanted[alert]["expr"], name
        wanted[alert]["expr"] = wanted[alert]["expr"].replace(before, after)
    for name, rule in wanted.items():
        assert found[name] == rule, name
    assert set(found) == set(wanted)


def test_every_number_of_the_values_is_in_the_list() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())["monitoring"]["rules"]
    numbers = {
        name
        for name, of in values.items()
        if isinstance(of, int | float) and not isinstance(of, bool)
    }
    assert numbers == {name for name, *_ in NUMBERS}


def test_an_alert_can_wait_longer_and_weigh_less() -> None:
    name = "TrainingJobPendingTooLong"
    changed = {"for": "12h", "keepFiringFor": "1h30m", "severity": "info"}
    found = by_name(rendered({"monitoring.rules.overrides": {name: changed}}))
    wanted = deepcopy(by_name(RULES))
    wanted[name] |= {"for": "12h", "keep_firing_for": "1h30m"}
    wanted[name]["labels"]["severity"] = "info"
    assert found == wanted


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"TrainingJobPending": {"for": "1h"}}, "which is no alert of this chart"),
        ({"TrainingJobFailed": {"for": "soon"}}, "for"),
        ({"TrainingJobFailed": {"severity": "page"}}, "severity"),
        ({"TrainingJobFailed": {"expr": "1"}}, "expr"),
    ],
)
def test_a_wrong_override_is_refused_by_name(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        rendered({"monitoring.rules.overrides": overrides})


def test_alerts_about_a_job_lead_to_its_dashboard() -> None:
    there = "https://grafana.example.com/d/resumable-training-job"
    found = by_name(rendered({"monitoring.rules.dashboardURL": there}))
    wanted = f"{there}?var-namespace={{{{ $labels.namespace }}}}&var-name={{{{ $labels.name }}}}"
    for name, rule in found.items():
        if "alert" in rule:
            of_one_job = name.startswith("TrainingJob") and not name.startswith("TrainingJobs")
            assert rule["annotations"].get("dashboard_url") == (wanted if of_one_job else None)
