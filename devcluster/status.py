"""What is to be said of a running cluster, as plain data and for people."""

from __future__ import annotations

from typing import Any

from devcluster.node import GPU, Node, ready_condition


def node_status(node: Node, known: dict[str, Any] | None) -> dict[str, Any]:
    """`known` is the API's Node object; None where the API is silent or has none."""
    layout = node.layout
    condition = ready_condition(known) if known else None
    power = node.process("init")
    return {
        "name": layout.name,
        "ip": layout.ip,
        "ready": None if known is None else bool(condition and condition["status"] == "True"),
        "power": power is not None,
        "connected": node.plugged,
        "gpus": int(known["status"].get("capacity", {}).get(GPU, 0)) if known else None,
        "podCIDR": layout.pod_cidr,
        "netns": layout.netns,
        "pid": power.pid if power else None,
        "containerdSocket": str(layout.containerd_socket),
        "cgroup": layout.cgroup,
        "directory": str(layout.directory),
    }


def described(status: dict[str, Any]) -> str:
    """The text of `status` for the data of `status --json`."""
    lines = [
        f"cluster {status['name']}: {'ready' if status['ready'] else 'NOT ready'}",
        f"  Kubernetes {status['kubernetesVersion']} at {status['server']}",
        f"  export KUBECONFIG={status['kubeconfig']}",
        f"  this machine, seen from pods: {status['hostAddress']} ({status['hostName']})",
    ]
    dead = [name for name, alive in status["controlPlane"].items() if not alive]
    lines.append(f"  control plane: {'dead: ' + ', '.join(dead) if dead else 'runs'}")
    for node in status["nodes"]:
        state = {True: "Ready", False: "NotReady", None: "unknown"}[node["ready"]]
        fault = " (killed)" if not node["power"] else "" if node["connected"] else " (cut)"
        gpus = "" if node["gpus"] is None else f", {node['gpus']} GPUs"
        lines.append(f"  {node['name']} {node['ip']} {state}{fault}{gpus}")
    return "\n".join(lines)
