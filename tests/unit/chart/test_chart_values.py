"""Values: each is used, a wrong one is refused by name, and the operator understands them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.chart import CHART, render
from kit.chart_objects import VARIANTS, kinds, operator


def test_operator_gets_what_it_reads() -> None:
    container = operator(
        render(
            values={
                "watch.namespaces": ["b", "a"],
                "logLevel": "debug",
                "sidecar.image.digest": f"sha256:{'b' * 64}",
                "sidecar.image.pullPolicy": "Never",
                "image.tag": "7",
                "ports.health": 8081,
                "sidecar.resources": {"limits": {"memory": "2Gi"}},
            }
        )
    )
    plain = {item["name"]: item["value"] for item in container["env"] if "value" in item}
    fields = {
        item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"]
        for item in container["env"]
        if "valueFrom" in item
    }
    assert plain == {
        "RTJ_SIDECAR_IMAGE": f"resumable-training-sidecar@sha256:{'b' * 64}",
        "RTJ_SIDECAR_IMAGE_PULL_POLICY": "Never",
        "RTJ_NODE_LEDGER": "rto-resumable-training-operator-nodes",
        "RTJ_WATCH_NAMESPACES": "b,a",
        "RTJ_LOG_LEVEL": "debug",
        "RTJ_HEALTH_PORT": "8081",
        "RTJ_METRICS_PORT": "9090",
        "RTJ_LEASE": "rto-resumable-training-operator",
        "RTJ_LEASE_SECONDS": "10",
        "RTJ_WORKERS": "16",
        "RTJ_SIDECAR_RESOURCES": '{"limits":{"memory":"2Gi"}}',
    }
    assert fields == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
    assert container["image"] == "resumable-training-operator:7"
    assert container["command"] == ["python3", "-m", "rtj_operator"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"health": 8081, "metrics": 9090}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert container["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert container["livenessProbe"]["timeoutSeconds"] == 5
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"imagee": {}}, "imagee"),
        ({"image.tagg": "1"}, "tagg"),
        ({"monitoring.rules.restartBurst": "three"}, "restartBurst"),
        ({"monitoring.rules.restartsWithoutProgress": 0}, "restartsWithoutProgress"),
        ({"monitoring.renderMode": "maybe"}, "renderMode"),
        ({"watch.namespaces": "default"}, "namespaces"),
        ({"watch.namespaces": ["Team A"]}, "namespaces"),
        ({"image.digest": "sha256:123"}, "digest"),
        ({"ports.health": 80}, "health"),
        ({"logLevel": "loud"}, "logLevel"),
        ({"serviceAccount.create": False}, "serviceAccount.name is needed"),
        ({"replicas": 0}, "replicas"),
        ({"leaderElection.leaseSeconds": 1}, "leaseSeconds"),
        ({"rbac.nodes": False}, "set watch.namespaces"),
        ({"rbac.nodes": False, "watch.namespaces": ["a"]}, "set clusterUID"),
    ],
)
def test_a_wrong_value_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        render(values=values)


def test_it_can_be_a_part_of_an_umbrella_chart(tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v2",
                "name": "umbrella",
                "version": "1.0.0",
                "dependencies": [
                    {
                        "name": CHART.name,
                        "version": "0.1.0",
                        "condition": f"{CHART.name}.enabled",
                    }
                ],
            }
        )
    )
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / CHART.name).symlink_to(CHART)
    values = {"global.imageRegistry": "example.com", f"{CHART.name}.enabled": True}
    assert "Deployment" in kinds(render(chart=tmp_path, values=values))


def leaves(value: Any, *, at: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, at=f"{at}.{key}")
    else:
        yield at


def test_every_value_is_used_and_every_used_value_is_there() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    # `$rules` is the one short name that the templates give to a part of the values.
    short_name = "$rules := .Values.monitoring.rules"
    texts = [path.read_text().replace(short_name, "") for path in (CHART / "templates").iterdir()]
    used = {
        match.replace("$rules", ".monitoring.rules")
        for text in texts
        for match in re.findall(r"(?:\.Values|(?=\$rules\.))((?:\$rules)?(?:\.\w+)+)", text)
    }
    defined = set(leaves(values))
    for name in defined:
        assert any(name == use or name.startswith(f"{use}.") for use in used), f"{name} is unused"
    for use in used:
        assert any(name == use or name.startswith(f"{use}.") for name in defined), (
            f"{use} is used by a template and not in values.yaml"
        )
    assert set(schema["properties"]) == set(values) | {"global", "enabled"}


def test_operator_understands_what_the_chart_sets() -> None:
    settings = pytest.importorskip("rtj_operator.settings")
    container = operator(
        render(values={"sidecar.resources": {"limits": {"cpu": 1}}, "watch.namespaces": ["a"]})
    )
    environment = {item["name"]: item.get("value", "from-the-pod") for item in container["env"]}
    known = {name for name, _, _ in settings.VARIABLES}
    assert set(environment) <= known
    read = settings.settings_from(environment, hostname="host")
    assert read.namespaces == ("a",)
    assert (read.lease_seconds, read.reads_nodes, read.cluster_uid) == (10, True, None)
    few = operator(render(values=VARIANTS["no nodes"]))
    limited = settings.settings_from(
        {item["name"]: item.get("value", "from-the-pod") for item in few["env"]}, hostname="host"
    )
    assert (limited.reads_nodes, limited.cluster_uid) == (False, "ours")
    assert read.sidecar_resources == {"limits": {"cpu": 1}}
    assert read.sidecar_image == "resumable-training-sidecar:0.1.0"
