"""What the kernel says about the memory of this container."""

from __future__ import annotations

from .processes import cgroup_text


def oom_kills():
    """Processes killed for memory in this container's cgroup since it was made, 0 if unknown.

    cgroup v2: memory.events; v1: memory.oom_control. Both have a line `oom_kill N`.
    """
    places = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"]
    for line in (cgroup_text("self") or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if path.startswith("/.."):
            continue
        if number == "0" and not controllers:
            places.insert(0, "/sys/fs/cgroup" + path.rstrip("/") + "/memory.events")
        elif "memory" in controllers.split(","):
            places.insert(0, "/sys/fs/cgroup/memory" + path.rstrip("/") + "/memory.oom_control")
    for place in places:
        try:
            with open(place, encoding="utf-8") as file:
                for line in file:
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return 0
