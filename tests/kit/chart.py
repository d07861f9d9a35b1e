"""The chart, rendered by the real Helm: what the tests look at is what a user gets.

It must never imitate Helm, and never need a cluster.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kit import tools

CHART = Path(__file__).resolve().parents[2] / "charts" / "resumable-training-operator"
MONITORING_APIS = tuple(
    f"monitoring.coreos.com/v1/{kind}"
    for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule")
)


def render(
    *,
    values: Mapping[str, Any] | None = None,
    api_versions: tuple[str, ...] = (),
    release: str = "rto",
    namespace: str = "rtj-system",
    chart: Path = CHART,
    with_test: bool = False,
    program: Path | None = None,
) -> list[dict[str, Any]]:
    """`helm template` → the objects. `values` maps dotted names to anything JSON can say;
    `with_test`: with those of `helm test`.

    Raises `AssertionError` with Helm's own message when it refuses.
    """
    text = render_text(
        values=values,
        api_versions=api_versions,
        release=release,
        namespace=namespace,
        chart=chart,
        with_test=with_test,
        program=program,
    )
    return [document for document in yaml.safe_load_all(text) if document]


def render_text(
    *,
    values: Mapping[str, Any] | None = None,
    api_versions: tuple[str, ...] = (),
    release: str = "rto",
    namespace: str = "rtj-system",
    chart: Path = CHART,
    with_test: bool = False,
    program: Path | None = None,
) -> str:
    """As `render`, but the text that Helm wrote."""
    helm = str(program or tools.helm())
    command = [helm, "template", release, str(chart), f"--namespace={namespace}"]
    command += [] if with_test else ["--skip-tests"]
    for name, value in (values or {}).items():
        command += ["--set-json", f"{name}={json.dumps(value)}"]
    for api in api_versions:
        command += ["--api-versions", api]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
