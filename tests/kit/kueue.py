"""The real Kueue beside a test cluster, for whoever has built one. Nothing of it is in this tree.

`RTJ_KUEUE` names a directory with the program `kueue`, its CRDs in `crds/` and its webhook
configurations in `webhooks.yaml`: docs/testing.md says how to get them. It runs as a process of
this machine, looks after pods of one namespace alone, and leaves nothing in the cluster.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kit import daemon
from kit.kube import Kube, KubectlError, wait_for
from kit.tls import make_authority

VARIABLE = "RTJ_KUEUE"
CLUSTER_QUEUE, LOCAL_QUEUE = "gpus", "team-a"
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
_ADDRESS = "127.0.0.1"
_OURS = ("--v1-pod", "-kueue-x-k8s-io-")  # of all its webhooks: pods, and its own kinds


def directory() -> Path | None:
    """Where Kueue lies; None: the variable is not set."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else None


@dataclass(frozen=True)
class Kueue:
    """A running Kueue with one ClusterQueue, and the namespace that it serves."""

    process: daemon.Daemon
    space: Kube

    def workloads(self) -> dict[str, dict[str, Any]]:
        found = self.space.list("workloads.kueue.x-k8s.io")
        return {each["metadata"]["name"]: each for each in found}

    def reserved(self) -> int:
        """Workloads that hold quota now."""
        queue = self.space.get("localqueues.kueue.x-k8s.io", LOCAL_QUEUE)
        return int((queue.get("status") or {}).get("reservingWorkloads") or 0)


@contextmanager
def kueue(kube: Kube, *, space: Kube, gpus: int, place: Path, work: Path) -> Iterator[Kueue]:
    """With `gpus` in its one ClusterQueue, which lets the higher priority preempt the lower."""
    crds = [_yaml(path)[0] for path in sorted((place / "crds").glob("*.yaml"))]
    for crd in crds:
        kube.apply(crd)
    wait_for(lambda: _is_served(kube), within=60, what="Kueue's kinds")
    authority, pem = make_authority(work, address=_ADDRESS)
    # For its metrics it reads fixed paths; in a mount namespace of its own they are ours.
    fixed = work / "etc" / "kueue" / "metrics" / "certs"
    fixed.mkdir(parents=True)
    for certs in (work, fixed):
        for name in ("tls.crt", "tls.key"):
            (certs / name).write_bytes(pem.read_bytes())
    port, health = daemon.free_ports(count=2)
    (work / "config.yaml").write_text(yaml.safe_dump(_config(port, health, work, space)))
    hooks = _webhooks(place, authority=authority, port=port, space=space)
    command: list[str | Path] = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    command += ['mount --bind "$0" /etc && exec "$@"', work / "etc"]
    command += [place / "kueue", f"--config={work / 'config.yaml'}", "--zap-log-level=3"]
    command += ["--feature-gates=VisibilityOnDemand=false"]
    process = daemon.start(
        [*command, f"--kubeconfig={kube.kubeconfig}"], log=work / "kueue.log", directory=work
    )
    try:
        wait_for(lambda: _answers(port, process), within=90, what="Kueue's webhooks answer")
        kube.apply(*hooks)
        wait_for(lambda: _applied(kube, space, gpus=gpus), within=60, what="Kueue's queues")
        made = Kueue(process=process, space=space)
        wait_for(lambda: _is_active(made), within=60, what="an active LocalQueue")
        yield made
    finally:
        for hook in hooks:
            kube.run("delete", hook["kind"], hook["metadata"]["name"], "--ignore-not-found")
        _emptied(kube, space)
        process.stop(grace_s=10)
        names = [crd["metadata"]["name"] for crd in crds]
        kube.run("delete", "crd", *names, "--ignore-not-found", "--timeout=60s", timeout=70)


def _yaml(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def _config(port: int, health: int, work: Path, space: Kube) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "default",  # its own may not be one that it serves
        "health": {"healthProbeBindAddress": f"{_ADDRESS}:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": _ADDRESS, "port": port, "certDir": str(work)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["pod"]},
        "managedJobsNamespaceSelector": _only(space),
    }


def _only(space: Kube) -> dict[str, Any]:
    return {"matchLabels": {"kubernetes.io/metadata.name": space.namespace}}


def _webhooks(place: Path, *, authority: Path, port: int, space: Kube) -> list[dict[str, Any]]:
    bundle = base64.b64encode(authority.read_bytes()).decode()
    found = []
    for configuration in _yaml(place / "webhooks.yaml"):
        hooks = []
        for hook in configuration["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            if not any(part in path for part in _OURS):
                continue
            url = f"https://{_ADDRESS}:{port}{path}"
            hooks.append({**hook, "clientConfig": {"url": url, "caBundle": bundle}})
            if path.endswith("--v1-pod"):
                hooks[-1]["namespaceSelector"] = _only(space)
        name = f"kueue-test-{configuration['kind'][:8].lower()}"
        found.append({**configuration, "metadata": {"name": name}, "webhooks": hooks})
    return found


def _answers(port: int, process: daemon.Daemon) -> bool:
    if process.poll() is not None:
        raise AssertionError(f"Kueue has ended:\n{process.log_tail(lines=40)}")
    try:
        return bool(ssl.get_server_certificate((_ADDRESS, port), timeout=2))
    except OSError:
        return False


def _is_served(kube: Kube) -> bool:
    """It ends where its kinds are not there when it starts."""
    found = kube.run("get", "--raw", "/apis/kueue.x-k8s.io/v1beta2", check=False)
    return all(f'"name":"{kind}"' in found for kind in ("workloads", "localqueues", "topologies"))


def _queues(space: Kube, *, gpus: int) -> list[dict[str, Any]]:
    def of(kind: str, name: str, **fields: Any) -> dict[str, Any]:
        meta = {"name": name}
        return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta, **fields}

    quotas = dict(zip(RESOURCES, ("64", "256Gi", str(gpus)), strict=True))
    resources = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
    return [
        of("ResourceFlavor", "any"),
        of(
            "ClusterQueue",
            CLUSTER_QUEUE,
            spec={
                "namespaceSelector": {},
                "preemption": {"withinClusterQueue": "LowerPriority"},
                "resourceGroups": [
                    {
                        "coveredResources": list(RESOURCES),
                        "flavors": [{"name": "any", "resources": resources}],
                    }
                ],
            },
        ),
        of("LocalQueue", LOCAL_QUEUE, spec={"clusterQueue": CLUSTER_QUEUE}),
        of("WorkloadPriorityClass", "low", value=1, description=""),
        of("WorkloadPriorityClass", "high", value=1000, description=""),
    ]


def _applied(kube: Kube, space: Kube, *, gpus: int) -> bool:
    try:
        space.apply(*_queues(space, gpus=gpus))
    except KubectlError:
        return False  # the kinds are not served everywhere yet
    return True


def _is_active(made: Kueue) -> bool:
    queue = made.space.get("localqueues.kueue.x-k8s.io", LOCAL_QUEUE)
    conditions = (queue.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Active" and c["status"] == "True" for c in conditions)


def _emptied(kube: Kube, space: Kube) -> None:
    """While Kueue still runs, which alone takes its finalizers off."""
    space.run("delete", "resumabletrainingjobs", "--all", "--timeout=60s", check=False)
    for kind in ("workloads", "localqueues", "clusterqueues", "resourceflavors"):
        try:
            where = ("--all",) if kind == "workloads" else ("--all", "--timeout=20s")
            space.run("delete", f"{kind}.kueue.x-k8s.io", *where, "--ignore-not-found", timeout=40)
        except KubectlError:
            continue
