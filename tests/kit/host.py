"""Processes of containers, seen from the machine that all nodes of a devcluster share.

For faults that a container cannot do to itself (SIGKILL of its PID 1). Signals only processes
whose cgroup carries the id of the one container it was asked for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Any


def container_id(pod: dict[str, Any], container: str) -> str:
    """The runtime's id of that container now; KeyError where it has none."""
    status = pod["status"]
    for row in status.get("containerStatuses", []) + status.get("initContainerStatuses", []):
        if row["name"] == container and row.get("containerID"):
            return str(row["containerID"]).split("//", 1)[1]
    raise KeyError(f"{pod['metadata']['name']} has no running container {container}")


def processes(identity: str) -> dict[int, int]:
    """Process id on the machine -> process id inside its own namespace."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if identity not in (entry / "cgroup").read_text():
                continue
            status = (entry / "status").read_text()
        except OSError:
            continue
        line = next(row for row in status.splitlines() if row.startswith("NSpid:"))
        found[int(entry.name)] = int(line.split()[-1])
    return found


def run_in_mounts(pod: dict[str, Any], container: str, *command: str) -> None:
    """Run a command of this machine's root in the container's mount namespace only."""
    identity = container_id(pod, container)
    outer = next(pid for pid, inner in processes(identity).items() if inner == 1)
    subprocess.run(["nsenter", f"--target={outer}", "--mount", *command], check=True, timeout=30)


def kill_container(pod: dict[str, Any], container: str) -> int:
    """SIGKILL to PID 1 of that container, as a crash would be; returns its id on the machine."""
    identity = container_id(pod, container)
    for outer, inner in processes(identity).items():
        if inner == 1:
            os.kill(outer, signal.SIGKILL)
            return outer
    raise KeyError(f"no process 1 in container {container} of {pod['metadata']['name']}")


def kill_all_processes(pod: dict[str, Any], container: str) -> list[int]:
    """SIGKILL to every process of that container at once, as the kernel does on cgroup v2 where
    one of them is out of memory (memory.oom.group, which the kubelet sets)."""
    found = sorted(processes(container_id(pod, container)))
    for outer in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(outer, signal.SIGKILL)
    return found
