"""What a Prometheus of the tests scrapes, and rules that do not make a test wait.

Debian's Prometheus is built without Kubernetes discovery, so pods are looked up here, by kubectl,
and handed over by file. The look-ups say by hand what the chart's monitors say to the Prometheus
operator; they must find the same pods and give the series the same labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rtj_api import contract

from kit.kube import Kube

OPERATOR_JOB = "resumable-training-operator"
SIDECAR_JOB = "sidecars"

Group = dict[str, Any]  # {"targets": ["host:port"], "labels": {…}}, as in a file_sd file


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """A scrape job; `groups` is called again and again for the targets of now."""

    job: str
    groups: Callable[[], list[Group]]
    interval: str = "1s"
    is_believed: bool = True  # its own labels go before those of its target


def static_scrape(job: str, targets: Sequence[str], *, interval: str = "1s") -> Scrape:
    """Fixed `host:port` targets."""
    return Scrape(job=job, groups=lambda: [{"targets": list(targets)}], interval=interval)


def operator_scrape(kube: Kube, *, namespace: str, interval: str = "1s") -> Scrape:
    """What the chart's ServiceMonitor selects."""

    def groups() -> list[Group]:
        pods = kube.within(namespace).list(
            "pods", selector=f"app.kubernetes.io/name={OPERATOR_JOB}"
        )
        return [{"targets": [at]} for pod in pods for at in _ports(pod, name="metrics")]

    return Scrape(job=OPERATOR_JOB, groups=groups, interval=interval)


def sidecar_scrape(kube: Kube, *, interval: str = "1s") -> Scrape:
    """What the chart's PodMonitor selects, with the labels that it gives."""

    def groups() -> list[Group]:
        return [
            {"targets": [at], "labels": _sidecar_labels(pod)}
            for pod in kube.list("pods", selector=contract.LABEL_JOB, everywhere=True)
            for at in _ports(pod, name=contract.PORT_STATUS_NAME)
        ]

    return Scrape(job=SIDECAR_JOB, groups=groups, interval=interval, is_believed=False)


def _sidecar_labels(pod: dict[str, Any]) -> dict[str, str]:
    metadata = pod["metadata"]
    return {
        "name": metadata["labels"][contract.LABEL_JOB],
        "rank": metadata["labels"].get(contract.LABEL_RANK, ""),
        "namespace": metadata["namespace"],
        "pod": metadata["name"],
    }


def _ports(pod: dict[str, Any], *, name: str) -> Iterator[str]:
    """`address:port` of each container port of that name; none before the pod has an address."""
    address = pod.get("status", {}).get("podIP")
    if not address or pod["status"].get("phase") in {"Succeeded", "Failed"}:
        return
    for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
        for port in container.get("ports", []):
            if port.get("name") == name:
                yield f"{address}:{port['containerPort']}"


def hurried(rules: str, *, interval: str = "1s", hold: str = "2s", keep: str = "10s") -> str:
    """The rules with shorter waits: `interval`, `for` (hold) and `keep_firing_for` (keep).

    Expressions stay as they are. Raises `ValueError` when there was nothing to shorten.
    """
    for name, value in (("interval", interval), ("for", hold), ("keep_firing_for", keep)):
        rules, count = re.subn(rf"(?m)^(\s+){name}: \S+$", rf"\g<1>{name}: {value}", rules)
        if not count:
            raise ValueError(f"the rules have no {name!r}: nothing to shorten")
    return rules
