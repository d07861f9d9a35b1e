"""What a Prometheus of the tests scrapes, and rules that do not make a test wait.

The Kubernetes jobs say by hand what the chart's monitors say to the Prometheus operator; they must
find the same pods and give the series the same labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

OPERATOR_JOB = "resumable-training-operator"


def static_scrape(job: str, targets: Sequence[str], *, interval: str = "1s") -> dict[str, Any]:
    """A scrape job of fixed `host:port` targets, with `honor_labels` as our monitors have it."""
    return {
        "job_name": job,
        "honor_labels": True,
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "static_configs": [{"targets": list(targets)}],
    }


def operator_scrape(
    *, kubeconfig: str | Path, namespace: str, interval: str = "1s"
) -> dict[str, Any]:
    """What the chart's ServiceMonitor says, for a Prometheus outside of the cluster."""
    keep = [
        ("__meta_kubernetes_pod_label_app_kubernetes_io_name", OPERATOR_JOB),
        ("__meta_kubernetes_pod_container_port_name", "metrics"),
    ]
    discovery = {"kubeconfig_file": str(kubeconfig), "namespaces": {"names": [namespace]}}
    return _pod_scrape(OPERATOR_JOB, discovery, keep=keep, copy={}, interval=interval)


def sidecar_scrape(*, kubeconfig: str | Path, interval: str = "1s") -> dict[str, Any]:
    """What the chart's PodMonitor says, for a Prometheus outside of the cluster."""
    keep = [
        ("__meta_kubernetes_pod_labelpresent_resumable_training_dev_job", "true"),
        ("__meta_kubernetes_pod_container_port_name", "rtj-metrics"),
    ]
    copy = {
        "name": "__meta_kubernetes_pod_label_resumable_training_dev_job",
        "rank": "__meta_kubernetes_pod_label_resumable_training_dev_rank",
        "namespace": "__meta_kubernetes_namespace",
        "pod": "__meta_kubernetes_pod_name",
    }
    discovery = {"kubeconfig_file": str(kubeconfig)}
    return _pod_scrape("sidecars", discovery, keep=keep, copy=copy, interval=interval)


def _pod_scrape(
    job: str,
    discovery: Mapping[str, Any],
    *,
    keep: Sequence[tuple[str, str]],
    copy: Mapping[str, str],
    interval: str,
) -> dict[str, Any]:
    relabel: list[dict[str, Any]] = [
        {"source_labels": [label], "regex": value, "action": "keep"} for label, value in keep
    ]
    relabel += [{"source_labels": [source], "target_label": name} for name, source in copy.items()]
    return {
        "job_name": job,
        "honor_labels": True,
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "kubernetes_sd_configs": [{"role": "pod", **discovery}],
        "relabel_configs": relabel,
    }


def hurried(rules: str, *, interval: str = "1s", hold: str = "2s", keep: str = "10s") -> str:
    """The rules with shorter waits: `interval`, `for` (hold) and `keep_firing_for` (keep).

    Expressions stay as they are. Raises `ValueError` when there was nothing to shorten.
    """
    for name, value in (("interval", interval), ("for", hold), ("keep_firing_for", keep)):
        rules, count = re.subn(rf"(?m)^(\s+){name}: \S+$", rf"\g<1>{name}: {value}", rules)
        if not count:
            raise ValueError(f"the rules have no {name!r}: nothing to shorten")
    return rules
