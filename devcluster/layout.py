"""Where a cluster lives: its addresses, interface names, namespaces and files.

Pure: everything follows from a name and a slot. Addresses come only from 198.18.0.0/15, the
benchmarking range (RFC 2544), which is never routed outside a machine.

Slot s (0-15) owns 198.18.(16s).0/20 and 198.19.(16s).0/20. In the first, the /24 numbered 0 is
the node network (.1 this machine, .10+k node k) and number k holds node k's pods; the second
holds the services, with DNS at .10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SLOTS = 16
MAX_NODES = 15
STATE_ROOT = Path("/var/lib/devcluster")
NETNS_DIR = Path("/run/netns")
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?")
API_PORT, DNS_PORT = 6443, 10053


def checked_name(name: str) -> str:
    """The name itself; ValueError with the rule where it cannot name a cluster."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"--name {name!r}: use 1 to 20 of a-z, 0-9 and '-', beginning and ending with "
            "a letter or digit"
        )
    return name


@dataclass(frozen=True)
class NodeLayout:
    """One node, `index` counting from 1."""

    cluster: Layout
    index: int

    @property
    def name(self) -> str:
        return f"node-{self.index}"

    @property
    def ip(self) -> str:
        return f"198.18.{self.cluster.base}.{10 + self.index}"

    @property
    def pod_cidr(self) -> str:
        return f"198.18.{self.cluster.base + self.index}.0/24"

    @property
    def port(self) -> str:
        """The switch's end of this node's cable."""
        return f"n{self.index}"

    @property
    def netns(self) -> str:
        return f"devcluster.{self.cluster.name}.{self.name}"

    @property
    def cgroup(self) -> str:
        return f"{self.cluster.cgroup}/{self.name}"

    @property
    def directory(self) -> Path:
        return self.cluster.directory / self.name

    @property
    def containerd_socket(self) -> Path:
        return self.directory / "containerd.sock"

    def log(self, component: str) -> Path:
        return self.cluster.logs / f"{self.name}.{component}.log"


@dataclass(frozen=True)
class Layout:
    name: str
    slot: int
    state_root: Path = STATE_ROOT

    @property
    def base(self) -> int:
        return 16 * self.slot

    @property
    def host_ip(self) -> str:
        return f"198.18.{self.base}.1"

    @property
    def node_cidr(self) -> str:
        return f"198.18.{self.base}.0/24"

    @property
    def cluster_cidr(self) -> str:
        return f"198.18.{self.base}.0/20"

    @property
    def service_cidr(self) -> str:
        return f"198.19.{self.base}.0/20"

    @property
    def api_service_ip(self) -> str:
        return f"198.19.{self.base}.1"

    @property
    def dns_ip(self) -> str:
        return f"198.19.{self.base}.10"

    @property
    def server(self) -> str:
        return f"https://{self.host_ip}:{API_PORT}"

    @property
    def interface(self) -> str:
        """This machine's cable to the switch; at most 15 characters (IFNAMSIZ)."""
        return f"devcluster{self.slot}"

    @property
    def switch(self) -> str:
        return f"devcluster.{self.name}.switch"

    @property
    def cgroup(self) -> str:
        return f"devcluster-{self.name}"

    @property
    def directory(self) -> Path:
        return self.state_root / self.name

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def certificates(self) -> Path:
        return self.directory / "pki"

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    def node(self, index: int) -> NodeLayout:
        return NodeLayout(self, index)
