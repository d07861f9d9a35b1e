"""What a cluster puts on the machine outside its own directory, and how all of it goes again.

Everything is found by the cluster's name in the kernel (cgroups, namespaces), never only by
records, so a cluster whose processes were killed or whose records are lost goes as well.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path

from devcluster import cgroups, network, nodeconfig, state
from devcluster.layout import NETNS_DIR, Layout
from devcluster.processes import Registry, kill

PROC_SYS = Path("/proc/sys")
NOTE = ".made-on-this-machine"
LIMITS_NOTE = ".limits-before"
# Each node holds about ten inotify instances; the usual 128 a user is soon spent, and then a
# kubelet ends with "inotify_init: too many open files".
LIMITS = {"fs/inotify/max_user_instances": 8192, "fs/inotify/max_user_watches": 524288}


def found(name: str) -> bool:
    """Whether the kernel still holds anything of a cluster of that name."""
    group = Layout(name, 0).cgroup
    return cgroups.exists(group) or bool(network.namespaces(f"devcluster.{name}."))


def clear(name: str, *, registry: Registry) -> None:
    """End every process of the cluster; remove its cgroups, namespaces, links and routes."""
    for process in registry.all():
        kill(process)
        registry.forget(process.name)
    group = Layout(name, 0).cgroup
    cgroups.kill(group)
    cgroups.remove(group)
    network.remove(name)


def is_mounted(path: Path) -> bool:
    """Also true of a bind mount, which os.path.ismount does not see."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == str(path) for line in lines)


def make_mount_points(root: Path) -> None:
    """Directories that nodes mount their own upon; what is made is noted, to go again."""
    with state.locked(root):
        note = root / NOTE
        made = _noted(root)
        made |= {str(path) for path in nodeconfig.mount_points() if not path.exists()}
        if not is_mounted(NETNS_DIR):
            made.add(str(NETNS_DIR))  # `ip netns` mounts it upon itself at its first use
        note.write_text("\n".join(sorted(made)))
        for path in nodeconfig.mount_points():
            path.mkdir(exist_ok=True)


def raise_limits(root: Path) -> None:
    """Raise kernel limits that are too low for several nodes; the values before are noted."""
    with state.locked(root):
        note = root / LIMITS_NOTE
        before: dict[str, int] = json.loads(note.read_text()) if note.exists() else {}
        for name, wanted in LIMITS.items():
            current = int((PROC_SYS / name).read_text())
            if current < wanted:
                before.setdefault(name, current)
                note.write_text(json.dumps(before))
                (PROC_SYS / name).write_text(str(wanted))


def _restore_limits(root: Path) -> None:
    note = root / LIMITS_NOTE
    for name, value in (json.loads(note.read_text()) if note.exists() else {}).items():
        path = PROC_SYS / name
        # Someone else's later choice stands.
        if int(path.read_text()) == LIMITS.get(name):
            path.write_text(str(value))
    note.unlink(missing_ok=True)


def forget_root(root: Path) -> None:
    """The last cluster to go takes the noted directories, limits and the state root with it."""
    with state.locked(root):
        if state.names(root):
            return
        _restore_limits(root)
        for path in _noted(root):
            # In use by someone else meanwhile: then it is not empty, and stays.
            if path == str(NETNS_DIR) and is_mounted(NETNS_DIR) and not any(NETNS_DIR.iterdir()):
                subprocess.run(["umount", path], capture_output=True)
            with suppress(OSError):
                Path(path).rmdir()
        (root / NOTE).unlink(missing_ok=True)
        with suppress(OSError):
            root.rmdir()


def _noted(root: Path) -> set[str]:
    note = root / NOTE
    return set(note.read_text().split()) if note.exists() else set()
