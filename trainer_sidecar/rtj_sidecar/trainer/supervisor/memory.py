"""What the kernel says about the memory of this container."""

from __future__ import annotations

from .processes import cgroup_text

NEAR_LIMIT = 0.95  # each CPU holds some charged pages back
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
    """How often this container has come up against its own limit: `oom` of cgroup v2's
    memory.events. None where nobody counts it: v1's memory.failcnt stays 0 on newer kernels."""
    for place in places("memory.events", ""):
        try:
            with open(place, encoding="utf-8") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("oom "))
        except (OSError, ValueError, IndexError, StopIteration):
            continue
    return None


def was_below_limit(hits_before):
    """Whether who was killed for memory was so for an ancestor's sake: the pod's, or the node's.

    `hits_before`: `limit_hits()` from before. cgroup v1 tells the container's highest use only,
    and of all its life: with that near the limit, as reading files alone brings it there, nothing
    is proved.
    """
    hits = limit_hits()
    if hits is not None:
        return hits == hits_before
    peak, limit = _number("memory.max_usage_in_bytes"), memory_limit()
    return peak is not None and (limit is None or peak < NEAR_LIMIT * limit)


def _number(legacy):
    for place in places("", legacy):
        try:
            with open(place, encoding="utf-8") as file:
                return int(file.read())
        except (OSError, ValueError):
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
