"""The cables: a switch (a bridge in its own network namespace), this machine and the nodes.

The switch has a namespace of its own so that this machine's firewall and sysctls are neither
needed nor changed, and removing the namespace removes all. Nodes have no default route: nothing
they send can leave the machine.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from devcluster.layout import NETNS_DIR, SLOTS, Layout, NodeLayout
from devcluster.processes import wait_until

BRIDGE = "switch"
UPLINK = "uplink"


class NetworkError(RuntimeError):
    """An `ip` command failed; the message is its own."""


def ip(*arguments: str, netns: str | None = None) -> str:
    command = ["ip", *(("-n", netns) if netns else ()), *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise NetworkError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def namespaces(prefix: str) -> list[str]:
    if not NETNS_DIR.is_dir():
        return []
    return sorted(path.name for path in NETNS_DIR.iterdir() if path.name.startswith(prefix))


def delete_namespace(name: str) -> None:
    """Delete a named namespace, also a name whose mount is gone (a plain file is left then)."""
    try:
        ip("netns", "delete", name)
    except NetworkError:
        (NETNS_DIR / name).unlink(missing_ok=True)


def used_slots() -> set[int]:
    """Slots whose node network has an address on this machine, whoever gave it."""
    used = set()
    for link in json.loads(ip("-j", "-4", "address", "show") or "[]"):
        for address in link.get("addr_info", ()):
            parts = [int(part) for part in address["local"].split(".")]
            if parts[0] == 198 and parts[1] in (18, 19):
                used.add(parts[2] // 16)
    return used & set(range(SLOTS))


def links(netns: str | None = None) -> set[str]:
    return {link["ifname"] for link in _links(netns)}


def _links(netns: str | None = None) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = json.loads(ip("-j", "link", "show", netns=netns) or "[]")
    return shown


def make_switch(layout: Layout, *, node_count: int) -> None:
    """Idempotent: the switch, this machine's address on it and its routes to the pods."""
    if not _has_address(layout):
        remove(layout.name)
        _lay_uplink(layout)
    for index in range(1, node_count + 1):
        node = layout.node(index)
        ip("route", "replace", node.pod_cidr, "via", node.ip, "dev", layout.interface)


def _has_address(layout: Layout) -> bool:
    """Whether the last step of `_lay_uplink` has been done, so all before it too."""
    if layout.switch not in namespaces(layout.switch) or layout.interface not in links():
        return False
    shown = json.loads(ip("-j", "-4", "address", "show", "up", "dev", layout.interface) or "[]")
    found = [a["local"] for link in shown for a in link.get("addr_info", ())]
    return layout.host_ip in found


def _lay_uplink(layout: Layout) -> None:
    ip("netns", "add", layout.switch)
    ip("link", "set", "lo", "up", netns=layout.switch)
    ip("link", "add", BRIDGE, "type", "bridge", netns=layout.switch)
    ip("link", "set", BRIDGE, "up", netns=layout.switch)
    peer = ("peer", "name", UPLINK, "netns", layout.switch)
    ip("link", "add", layout.interface, "type", "veth", *peer)
    ip("link", "set", UPLINK, "master", BRIDGE, "up", netns=layout.switch)
    ip("link", "set", layout.interface, "up")
    ip("address", "add", f"{layout.host_ip}/24", "dev", layout.interface)


def name_namespace(node: NodeLayout, pid: int) -> None:
    """Give the network namespace of the node's first process its name under /run/netns."""
    if node.netns in namespaces(node.netns):
        delete_namespace(node.netns)
    ip("netns", "attach", node.netns, str(pid))


def connect(node: NodeLayout, *, node_count: int) -> None:
    """Plug a fresh node in: eth0 with its address, routes to all pods and the services."""
    layout = node.cluster
    if node.port in links(layout.switch):
        ip("link", "delete", node.port, netns=layout.switch)
    peer = ("peer", "name", "eth0", "netns", node.netns)
    ip("link", "add", node.port, "type", "veth", *peer, netns=layout.switch)
    ip("link", "set", node.port, "master", BRIDGE, "up", netns=layout.switch)
    ip("link", "set", "lo", "up", netns=node.netns)
    ip("address", "add", f"{node.ip}/24", "dev", "eth0", netns=node.netns)
    ip("link", "set", "eth0", "up", netns=node.netns)
    # Never taken (kube-proxy rewrites the address), but the kernel looks a route up before it.
    ip("route", "add", layout.service_cidr, "via", layout.host_ip, netns=node.netns)
    for index in range(1, node_count + 1):
        if index != node.index:
            other = layout.node(index)
            ip("route", "add", other.pod_cidr, "via", other.ip, netns=node.netns)


def unplug(node: NodeLayout) -> None:
    """Frames of the node go nowhere from now on; nobody on either side is told."""
    if node.port in links(node.cluster.switch):
        ip("link", "set", node.port, "nomaster", netns=node.cluster.switch)


def is_plugged(node: NodeLayout) -> bool:
    """Whether the node's cable ends in the switch; False also where there is no cable."""
    if node.cluster.switch not in namespaces(node.cluster.switch):
        return False
    shown = json.loads(
        ip("-j", "link", "show", "master", BRIDGE, netns=node.cluster.switch) or "[]"
    )
    return any(link["ifname"] == node.port for link in shown)


def plug(node: NodeLayout) -> None:
    ip("link", "set", node.port, "master", BRIDGE, netns=node.cluster.switch)


def is_wired(node: NodeLayout) -> bool:
    """Whether a booted node has its cable, plugged in or not."""
    if node.cluster.switch not in namespaces(node.cluster.switch):
        return False
    return node.netns in namespaces(node.netns) and node.port in links(node.cluster.switch)


def remove(cluster: str) -> None:
    """Remove every namespace of the cluster by name, and with them all links and routes."""
    ours = namespaces(f"devcluster.{cluster}.")
    uplinks = {
        link["link_index"]
        for name in ours
        if name.endswith(".switch")
        for link in _links(name)
        if link["ifname"] == UPLINK and "link_index" in link
    }
    for name in ours:
        delete_namespace(name)
    # The kernel takes a namespace apart in the background.
    wait_until(
        lambda: not uplinks & {link["ifindex"] for link in _links()},
        timeout=20,
        what=f"the interfaces of cluster {cluster} to vanish",
    )
