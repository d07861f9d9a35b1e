"""What the chart makes for other operators where it is asked to: whom alerts go to, dashboards."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from kit.chart import CHART, MONITORING_APIS, render
from kit.chart_objects import find, kinds

RECEIVERS = [{"name": "team", "slackConfigs": [{"channel": "#ml"}]}, {"name": "on-call"}]
ROUTES = [{"receiver": "on-call", "matchers": [{"name": "severity", "value": "critical"}]}]
TOLD = {
    "monitoring.alertmanagerConfig.enabled": True,
    "monitoring.alertmanagerConfig.receivers": RECEIVERS,
    "monitoring.alertmanagerConfig.routes": ROUTES,
    "monitoring.renderMode": "alwaysRender",
}
SHOWN = {
    "monitoring.dashboards.grafanaOperator.enabled": True,
    "monitoring.dashboards.grafanaOperator.instanceSelector": {"dashboards": "grafana"},
    "monitoring.dashboards.grafanaOperator.folder": "Training",
}


def test_nobody_gets_them_unasked() -> None:
    objects = render(values={"monitoring.renderMode": "alwaysRender"})
    assert not {"AlertmanagerConfig", "GrafanaDashboard"} & kinds(objects)


def test_every_alert_of_the_chart_goes_to_the_receivers() -> None:
    spec = find(render(values=TOLD), "AlertmanagerConfig")["spec"]
    assert spec["receivers"] == RECEIVERS
    route = spec["route"]
    assert (route["receiver"], route["routes"]) == ("team", ROUTES)
    [matcher] = route["matchers"]
    assert (matcher["name"], matcher["matchType"]) == ("alertname", "=~")
    groups = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())["groups"]
    alerts = [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]
    for alert in alerts:
        assert re.fullmatch(matcher["value"], alert), alert
    assert not re.fullmatch(matcher["value"], "KubeJobFailed")
    [rule] = spec["inhibitRules"]
    assert rule["equal"] == ["namespace", "name"]


def test_each_dashboard_is_shown_from_its_config_map() -> None:
    objects = render(values=SHOWN)
    maps = {
        (each["metadata"]["name"], key)
        for each in objects
        if each["kind"] == "ConfigMap"
        for key in each.get("data", {})
        if key.endswith(".json")
    }
    shown = [each["spec"] for each in objects if each["kind"] == "GrafanaDashboard"]
    assert {(s["configMapRef"]["name"], s["configMapRef"]["key"]) for s in shown} == maps
    assert len(shown) == len(list((CHART / "files" / "dashboards").glob("*.json"))) > 0
    for spec in shown:
        assert spec["instanceSelector"] == {"matchLabels": {"dashboards": "grafana"}}
        assert spec["folder"] == "Training"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (TOLD | {"monitoring.alertmanagerConfig.receivers": []}, "who is told"),
        (SHOWN | {"monitoring.dashboards.grafanaOperator.instanceSelector": {}}, "labels of your"),
        (SHOWN | {"monitoring.dashboards.enabled": False}, "needs monitoring.dashboards.enabled"),
        (
            TOLD | {"monitoring.renderMode": "failIfMissing"},
            "monitoring.coreos.com/v1alpha1/AlertmanagerConfig is not in this cluster",
        ),
    ],
)
def test_what_cannot_work_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        render(values=values, api_versions=MONITORING_APIS)
