"""Rendered variants of the chart, and the objects in them."""

from __future__ import annotations

from typing import Any

VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "namespaces": {"watch.namespaces": ["team-a", "team-b"]},
    "no nodes": {"watch.namespaces": ["team-a"], "rbac.nodes": False, "clusterUID": "ours"},
    "one": {"replicas": 1},
    "everything": {
        "fullnameOverride": "rtj",
        "networkPolicy.enabled": True,
        "image.digest": f"sha256:{'a' * 64}",
        "imagePullSecrets": [{"name": "registry"}],
        "args": ["--verbose"],
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com"}],
        "podAnnotations": {"example.com/a": "b"},
        "podLabels": {"team": "ml"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
            }
        ],
        "hostUsers": False,
        "clusterUID": "ours",
        "extraEnvFrom": [{"configMapRef": {"name": "proxy"}}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "their-own"}}
        ],
        "priorityClassName": "system-cluster-critical",
        "crds.annotations": {"example.com/a": "b"},
        "serviceAccount.annotations": {"example.com/a": "b"},
        "monitoring.dashboards.annotations": {"grafana_folder": "Training"},
        "monitoring.labels": {"release": "prometheus"},
        "monitoring.renderMode": "alwaysRender",
    },
    "least": {
        "crds.install": False,
        "rbac.create": False,
        "rbac.aggregateRoles": False,
        "serviceAccount.create": False,
        "serviceAccount.name": "theirs",
        "monitoring.dashboards.enabled": False,
    },
}


def find(objects: list[dict[str, Any]], kind: str, *, name: str | None = None) -> dict[str, Any]:
    found = [
        each
        for each in objects
        if each["kind"] == kind and (name is None or each["metadata"]["name"] == name)
    ]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]


def kinds(objects: list[dict[str, Any]]) -> set[str]:
    return {each["kind"] for each in objects}


def operator(objects: list[dict[str, Any]]) -> dict[str, Any]:
    [container] = find(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found
