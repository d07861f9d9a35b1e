"""The operator's own configuration, from its environment, read once at the start.

Must never read a job, a Secret or a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SIDECAR_IMAGE = "RTJ_SIDECAR_IMAGE"
SIDECAR_PULL_POLICY = "RTJ_SIDECAR_IMAGE_PULL_POLICY"
SIDECAR_RESOURCES = "RTJ_SIDECAR_RESOURCES"
NAMESPACES = "RTJ_WATCH_NAMESPACES"
LOG_LEVEL = "RTJ_LOG_LEVEL"
HEALTH_PORT = "RTJ_HEALTH_PORT"
METRICS_PORT = "RTJ_METRICS_PORT"
WORKERS = "RTJ_WORKERS"
NODE_LEDGER = "RTJ_NODE_LEDGER"
LEASE = "RTJ_LEASE"
LEASE_SECONDS = "RTJ_LEASE_SECONDS"
READS_NODES = "RTJ_READS_NODES"
CLUSTER_UID = "RTJ_CLUSTER_UID"
POD_NAME = "POD_NAME"
POD_NAMESPACE = "POD_NAMESPACE"

# For --help and the docs: variable, default, meaning.
VARIABLES: tuple[tuple[str, str, str], ...] = (
    (SIDECAR_IMAGE, "required", "Image of the sidecar that is added to each pod."),
    (SIDECAR_PULL_POLICY, "the kubelet's rule", "Always, IfNotPresent or Never."),
    (
        SIDECAR_RESOURCES,
        "250m CPU, 1Gi; for Guaranteed pods 1 CPU, 1Gi as requests and limits",
        "JSON of a container's resources, for sidecars whose job states none.",
    ),
    (NAMESPACES, "all", "Namespaces to serve, separated by commas."),
    (LOG_LEVEL, "INFO", "DEBUG, INFO, WARNING or ERROR. Logs are JSON lines on stderr."),
    (HEALTH_PORT, "8080", "Port of /healthz and /readyz."),
    (METRICS_PORT, "9090", "Port of /metrics."),
    (WORKERS, "16", "Jobs looked at at the same time."),
    (
        NODE_LEDGER,
        "none: kept in memory only",
        "ConfigMap of the operator's own namespace that keeps what was counted against nodes.",
    ),
    (
        LEASE,
        "none: it works at once",
        "Lease of the operator's own namespace; of several replicas the one that holds it works.",
    ),
    (LEASE_SECONDS, "10", "Without a renewal for so long, another replica takes the Lease."),
    (
        READS_NODES,
        "true",
        "false: it may not read nodes and their Leases, so a dead node is noticed only when "
        "Kubernetes deletes its pods.",
    ),
    (
        CLUSTER_UID,
        "the UID of the namespace kube-system",
        "Tells this cluster from others that use the same store.",
    ),
    (POD_NAME, "the host's name", "Named in Events as the reporting instance."),
    (POD_NAMESPACE, "none", "The operator's own namespace, of the node ledger."),
    ("KUBECONFIG", "in a pod: its service account", "Cluster to use from outside of it."),
)


class SettingsError(Exception):
    """A variable is missing or cannot be read; the message names it and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    sidecar_image: str
    sidecar_pull_policy: str | None = None
    sidecar_resources: Mapping[str, Any] | None = None
    namespaces: tuple[str, ...] = ()
    log_level: str = "INFO"
    health_port: int = 8080
    metrics_port: int = 9090
    workers: int = 16
    instance: str = "operator"
    own_namespace: str | None = None
    node_ledger: str | None = None
    lease: str | None = None
    lease_seconds: int = 10
    reads_nodes: bool = True
    cluster_uid: str | None = None


def settings_from(environ: Mapping[str, str], *, hostname: str) -> Settings:
    """Raises SettingsError."""
    image = environ.get(SIDECAR_IMAGE, "").strip()
    if not image:
        raise SettingsError(f"{SIDECAR_IMAGE} is not set: name the image of the sidecar.")
    policy = environ.get(SIDECAR_PULL_POLICY) or None
    if policy not in (None, "Always", "IfNotPresent", "Never"):
        raise SettingsError(f"{SIDECAR_PULL_POLICY}={policy}: use Always, IfNotPresent or Never.")
    level = environ.get(LOG_LEVEL, "INFO").upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise SettingsError(f"{LOG_LEVEL}={level}: use DEBUG, INFO, WARNING or ERROR.")
    lease, own = environ.get(LEASE, "").strip() or None, environ.get(POD_NAMESPACE) or None
    if lease is not None and own is None:
        raise SettingsError(f"{LEASE}={lease}: set {POD_NAMESPACE} to the namespace that it is in.")
    reads_nodes = environ.get(READS_NODES, "").strip() or "true"
    if reads_nodes not in ("true", "false"):
        raise SettingsError(f"{READS_NODES}={reads_nodes}: use true or false.")
    listed = [name.strip() for name in environ.get(NAMESPACES, "").split(",")]
    return Settings(
        sidecar_image=image,
        sidecar_pull_policy=policy,
        sidecar_resources=_resources(environ.get(SIDECAR_RESOURCES)),
        namespaces=tuple(sorted({name for name in listed if name})),
        log_level=level,
        health_port=_number(environ, HEALTH_PORT, default=8080, highest=65535),
        metrics_port=_number(environ, METRICS_PORT, default=9090, highest=65535),
        workers=_number(environ, WORKERS, default=16, highest=256),
        instance=environ.get(POD_NAME) or hostname,
        own_namespace=own,
        node_ledger=environ.get(NODE_LEDGER, "").strip() or None,
        lease=lease,
        lease_seconds=_number(environ, LEASE_SECONDS, default=10, highest=300),
        reads_nodes=reads_nodes == "true",
        cluster_uid=environ.get(CLUSTER_UID, "").strip() or None,
    )


def _number(environ: Mapping[str, str], name: str, *, default: int, highest: int) -> int:
    text = environ.get(name, "").strip() or str(default)
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= highest):
        raise SettingsError(f"{name}={text}: must be a whole number from 1 to {highest}.")
    return int(text)


def _resources(text: str | None) -> Mapping[str, Any] | None:
    if not text or not text.strip():
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{SIDECAR_RESOURCES} is no JSON: {error}.") from error
    known = ("limits", "requests", "claims")
    if not isinstance(found, dict) or not all(key in known for key in found):
        raise SettingsError(
            f'{SIDECAR_RESOURCES}={text}: must be {{"limits": {{…}}, "requests": {{…}}}}.'
        )
    return found or None
