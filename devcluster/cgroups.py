"""One tree of control groups per cluster, in every hierarchy the machine has (v1, hybrid, v2).

The tree is what makes a node's processes findable even when every record of them is lost. It
must never touch a group outside the tree it is given.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")


class CgroupError(RuntimeError):
    """The cgroup file system is not there, or a group does not empty."""


@dataclass(frozen=True)
class Hierarchy:
    mount: Path
    controllers: frozenset[str]
    unified: bool


def parse_mountinfo(text: str) -> list[Hierarchy]:
    """The mounted hierarchies, from the form of proc_pid_mountinfo(5)."""
    found: dict[Path, Hierarchy] = {}
    for line in text.splitlines():
        head, _, rest = line.partition(" - ")
        fields, (kind, _, options) = head.split(), rest.split(maxsplit=2)
        # fields[3] is the root of the mount: a bind mount of a part is no hierarchy.
        if kind in ("cgroup", "cgroup2") and fields[3] == "/":
            mount = Path(fields[4])
            controllers = frozenset(options.split(",")) - {"rw", "ro"}
            unified = kind == "cgroup2"
            found[mount] = Hierarchy(mount, frozenset() if unified else controllers, unified)
    return list(found.values())


def hierarchies() -> list[Hierarchy]:
    found = parse_mountinfo(MOUNTINFO.read_text(encoding="utf-8"))
    if not found:
        raise CgroupError("no cgroup file system is mounted under /sys/fs/cgroup")
    return found


def make(group: str) -> None:
    """Make `group` (like "devcluster-x/node-1") and its parents, ready for processes."""
    for hierarchy in hierarchies():
        directory = hierarchy.mount
        for part in group.split("/"):
            parent, directory = directory, directory / part
            if hierarchy.unified:
                _delegate(parent)
            directory.mkdir(exist_ok=True)
            if "cpuset" in hierarchy.controllers:
                _inherit_cpuset(parent, directory)


def _delegate(parent: Path) -> None:
    available = (parent / "cgroup.controllers").read_text().split()
    for controller in available:
        try:
            (parent / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError:
            continue  # one that cannot be delegated here, such as cpu with realtime tasks


def _inherit_cpuset(parent: Path, directory: Path) -> None:
    # A v1 cpuset group starts empty and takes no process until both files are filled.
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not (directory / name).read_text().strip():
            (directory / name).write_text((parent / name).read_text())


def procs_files(group: str) -> list[Path]:
    """The files a process writes "0" to in order to join `group` everywhere."""
    return [hierarchy.mount / group / "cgroup.procs" for hierarchy in hierarchies()]


def pids(group: str) -> set[int]:
    """Every process in `group` or below it, in any hierarchy."""
    found: set[int] = set()
    for directory in _directories(group):
        try:
            lines = (directory / "cgroup.procs").read_text().split()
        except OSError:
            continue  # removed meanwhile, or a threaded v2 group, whose processes its parent lists
        found.update(int(pid) for pid in lines if pid != "0")
    return found


def exists(group: str) -> bool:
    return any((hierarchy.mount / group).is_dir() for hierarchy in hierarchies())


def _directories(group: str) -> list[Path]:
    """All directories of the tree, children before parents."""
    return [
        Path(directory)
        for hierarchy in hierarchies()
        for directory, _, _ in os.walk(hierarchy.mount / group, topdown=False)
    ]


def kill(group: str, *, timeout: float = 30) -> None:
    """SIGKILL everything in the tree at once, as a power cut would; wait until it is empty."""
    deadline = time.monotonic() + timeout
    while remaining := pids(group):
        # Frozen processes cannot fork away from the signal; it takes effect on thawing.
        _freeze(group, "FROZEN")
        try:
            for pid in pids(group) or remaining:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        finally:
            _freeze(group, "THAWED")
        if time.monotonic() > deadline:
            raise CgroupError(f"processes {sorted(remaining)} of cgroup {group} do not end")
        time.sleep(0.05)


def _freeze(group: str, state: str) -> None:
    for hierarchy in hierarchies():
        file, value = hierarchy.mount / group / "freezer.state", state
        if hierarchy.unified:
            file, value = hierarchy.mount / group / "cgroup.freeze", str(int(state == "FROZEN"))
        if file.exists():
            file.write_text(value)


def remove(group: str, *, timeout: float = 10) -> None:
    """Remove the emptied tree; a group stays busy for a moment after its last process."""
    deadline = time.monotonic() + timeout
    while directories := _directories(group):
        for directory in directories:
            try:
                directory.rmdir()
            except OSError:
                continue
        if not _directories(group):
            return
        if time.monotonic() > deadline:
            raise CgroupError(f"cgroup directories stay busy: {directories[-1]}")
        time.sleep(0.05)
