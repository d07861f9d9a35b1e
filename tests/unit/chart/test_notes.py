"""What `helm install` says at its end: the next command, and what is not there and why."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from kit import tools
from kit.chart import CHART


def notes(tmp_path: Path, **values: Any) -> str:
    """Of Helm's own output of an installation that it only plays; no cluster is asked."""
    settings = [f"--set-json={k}={json.dumps(v)}" for k, v in values.items()]
    command = [str(tools.helm()), "install", "rtj", str(CHART), "--dry-run=client"]
    done = subprocess.run(
        [*command, "--namespace=rtj-system", *settings],
        env=os.environ | {"KUBECONFIG": str(tmp_path / "none")},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("NOTES:\n", 1)[1]


def test_the_next_command_and_what_the_cluster_lacks(tmp_path: Path) -> None:
    said = notes(tmp_path)
    assert "helm test rtj -n rtj-system --logs" in said
    assert "rollout status deployment/rtj-resumable-training-operator" in said
    for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
        assert f"  - {kind}: the cluster has no such API." in said
    assert said.count("\n  - ") == 3, said


def test_what_values_have_switched_off_is_said_each_by_its_name(tmp_path: Path) -> None:
    off = {
        "watch.namespaces": ["team-a"],
        "rbac.nodes": False,
        "rbac.create": False,
        "rbac.aggregateRoles": False,
        "clusterUID": "x",
        "replicas": 1,
        "test.enabled": False,
        "crds.install": False,
        "monitoring.serviceMonitor.enabled": False,
        "monitoring.podMonitor.enabled": False,
        "monitoring.rules.enabled": False,
        "monitoring.dashboards.enabled": False,
    }
    said = notes(tmp_path, **off)
    assert "helm test" not in said
    assert "kubectl apply --server-side -f crds/resumabletrainingjobs.yaml" in said
    listed = said.split("Not there:\n", 1)[1].split("\n\n", 1)[0].splitlines()
    for word in (
        "watch.namespaces", "rbac.create=false", "rbac.nodes=false", "rbac.aggregateRoles=false",
        "replicas=1", "ServiceMonitor: off", "PodMonitor: off", "PrometheusRule: off",
        "monitoring.dashboards.enabled=false",
    ):  # fmt: skip
        assert len([line for line in listed if word in line]) == 1, (word, said)
    assert len(listed) == 9, said


def test_everything_there_leaves_nothing_to_say(tmp_path: Path) -> None:
    said = notes(tmp_path, **{"monitoring.renderMode": "alwaysRender", "crds.keep": False})
    assert "Not there" not in said
    assert "EVERY job" in said
