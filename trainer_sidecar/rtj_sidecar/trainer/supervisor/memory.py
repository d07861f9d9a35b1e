"""What the kernel says about the memory of this container."""

from __future__ import annotations

from .processes import cgroup_text

UNLIMITED = 1 << 62  # cgroup v1 says a number close to 2**63 where there is no limit


def oom_kills():
    """Processes killed for memory in this container's cgroup since it was made, 0 if unknown.

    cgroup v2: memory.events; v1: memory.oom_control. Both have a line `oom_kill N`.
    """
    for place in places("memory.events", "memory.oom_control"):
        try:
            with open(place, encoding="utf-8") as file:
                for line in file:
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return 0


def limit_hits():
    """How often this container has come up against its own limit; None where nobody tells.

    A process that is killed while this stays as it was is killed for an ancestor's sake: the pod's,
    or the whole node's. cgroup v2: `oom` of memory.events; v1: memory.failcnt, which also counts
    what was reclaimed in time, so that only an unchanged one says anything.
    """
    for place in places("memory.events", "memory.failcnt"):
        try:
            with open(place, encoding="utf-8") as file:
                lines = file.read().splitlines()
            if place.endswith("failcnt"):
                return int(lines[0])
            return next(int(line.split()[1]) for line in lines if line.startswith("oom "))
        except (OSError, ValueError, IndexError, StopIteration):
            continue
    return None


def memory_limit():
    """The container's own limit in bytes, or None where there is none or it is not told."""
    for place in places("memory.max", "memory.limit_in_bytes"):
        try:
            with open(place, encoding="utf-8") as file:
                limit = int(file.read())
        except (OSError, ValueError):
            continue
        return limit if limit < UNLIMITED else None
    return None


def places(unified, legacy):
    """Where a file of this container's memory cgroup may lie, the likeliest first."""
    found = ["/sys/fs/cgroup/" + unified, "/sys/fs/cgroup/memory/" + legacy]
    for line in (cgroup_text("self") or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if path.startswith("/.."):
            continue
        if number == "0" and not controllers:
            found.insert(0, "/sys/fs/cgroup" + path.rstrip("/") + "/" + unified)
        elif "memory" in controllers.split(","):
            found.insert(0, "/sys/fs/cgroup/memory" + path.rstrip("/") + "/" + legacy)
    return found
