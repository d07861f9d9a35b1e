"""Ports of pods on the hosts' network, where all pods of a node share one set of them.

Each is a function of the job and of what must not meet: the ranks of one job, the pod that a rank
had before, the attempts of one rank 0. Two jobs meet on one node by chance only (about one in
18,000 for each pair of pods there), and then the next attempt has other ports. Pure.
"""

from __future__ import annotations

import hashlib

# Above the common services, below NodePorts (30000) and the kernel's ephemeral range (32768).
BASE = 10_000
SPAN = 18_000


def status_port(job_uid: str, *, place: int, made_in: int, places: int) -> int:
    """Of the sidecar's HTTP server: another one than the place's last pod had, which may still be
    draining on the same node. Places: the ranks, then the spares."""
    return BASE + (_start(f"status/{job_uid}") + place + made_in * places) % SPAN


def rendezvous_port(job_uid: str, *, attempt: int) -> int:
    """Of the trainers' rendezvous, at rank 0's node."""
    return BASE + (_start(f"rendezvous/{job_uid}") + attempt) % SPAN


def _start(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)
