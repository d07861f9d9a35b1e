"""Packets that the nodes drop: traffic from one address to one port, as a NetworkPolicy would.

Rules live in a chain of our own in each node's network namespace, so they go with the node and are
found again by whoever clears them. Must never touch the machine's own firewall.
"""

from __future__ import annotations

import ipaddress
import subprocess
from dataclasses import dataclass

CHAIN = "DEVCLUSTER-FIREWALL"
# Before anything is routed, tracked or translated: packets of open connections are dropped too.
TABLE, HOOK = "raw", "PREROUTING"


class FirewallError(RuntimeError):
    """A rule that makes no sense, or that `iptables` refused; the message says which."""


@dataclass(frozen=True)
class Block:
    """Drop TCP packets of `source` (address or CIDR) to `port`, wherever they are sent."""

    source: str
    port: int

    def __post_init__(self) -> None:
        try:
            ipaddress.ip_network(self.source)
        except ValueError as error:
            raise FirewallError(f"--from {self.source}: {error}; use an address or CIDR") from error
        if not 0 < self.port < 65536:
            raise FirewallError(f"--port {self.port}: use 1 to 65535")

    @property
    def rule(self) -> list[str]:
        return ["-s", self.source, "-p", "tcp", "--dport", str(self.port), "-j", "DROP"]


def block(netns: str, what: Block) -> None:
    """Idempotent."""
    if not _holds(netns, "-L", CHAIN, "-n"):
        _iptables(netns, "-N", CHAIN)
    if not _holds(netns, "-C", HOOK, "-j", CHAIN):
        _iptables(netns, "-I", HOOK, "-j", CHAIN)
    if not _holds(netns, "-C", CHAIN, *what.rule):
        _iptables(netns, "-A", CHAIN, *what.rule)


def clear(netns: str) -> None:
    """Drop nothing any more. Idempotent."""
    if not _holds(netns, "-L", CHAIN, "-n"):
        return
    while _holds(netns, "-C", HOOK, "-j", CHAIN):
        _iptables(netns, "-D", HOOK, "-j", CHAIN)
    _iptables(netns, "-F", CHAIN)
    _iptables(netns, "-X", CHAIN)


def _command(netns: str, arguments: tuple[str, ...]) -> list[str]:
    return ["ip", "netns", "exec", netns, "iptables", "-w", "-t", TABLE, *arguments]


def _holds(netns: str, *arguments: str) -> bool:
    return subprocess.run(_command(netns, arguments), capture_output=True).returncode == 0


def _iptables(netns: str, *arguments: str) -> None:
    command = _command(netns, arguments)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise FirewallError(f"{' '.join(command)}: {done.stderr.strip()}")
