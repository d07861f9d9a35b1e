"""What the machine must have before a cluster can run, and how to install what is missing.

It only looks: it never installs, starts or changes anything.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from devcluster.processes import PATH

# Program -> Debian package.
PROGRAMS = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "iptables-restore": "iptables",
    "ip": "iproute2",
    "openssl": "openssl",
    "mount": "mount",
}
CNI_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
CNI_DIRECTORIES = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
GO_MINIMUM = (1, 26)


@dataclass(frozen=True)
class Missing:
    what: str
    remedy: str


def program(name: str) -> str | None:
    return shutil.which(name, path=PATH)


def cni_directory() -> Path | None:
    for directory in CNI_DIRECTORIES:
        if all((directory / plugin).is_file() for plugin in CNI_PLUGINS):
            return directory
    return None


def go_program() -> str | None:
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")


def go_version(go: str) -> tuple[int, int] | None:
    output = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True).stdout
    match = re.match(r"go(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else None


def missing_go() -> list[Missing]:
    wanted = ".".join(map(str, GO_MINIMUM))
    remedy = f"install Go {wanted} or newer (go.dev/doc/install) and put `go` on PATH"
    go = go_program()
    if go is None:
        return [Missing("Go, to build Kubernetes once", remedy)]
    version = go_version(go)
    if version is None or version < GO_MINIMUM:
        return [Missing(f"Go {wanted} ({go} is older)", remedy)]
    return []


def missing(*, build: bool) -> list[Missing]:
    """All that is missing at once; `build` says whether binaries have still to be built."""
    found: list[Missing] = []
    if os.geteuid() != 0:
        found.append(Missing("root", "run it as root, for example with sudo"))
    packages: dict[str, list[str]] = {}
    for name, package in PROGRAMS.items():
        if program(name) is None:
            packages.setdefault(package, []).append(name)
    if cni_directory() is None:
        packages["containernetworking-plugins"] = [f"CNI plugins {', '.join(CNI_PLUGINS)}"]
    for package, names in packages.items():
        found.append(Missing(", ".join(names), f"apt-get install {package}"))
    if not Path("/proc/sys/net/bridge").is_dir():
        found.append(Missing("kernel module br_netfilter", "modprobe br_netfilter"))
    return found + (missing_go() if build else [])


def explained(found: list[Missing]) -> str:
    """The message a person sees."""
    lines = [f"  {item.what}: {item.remedy}" for item in found]
    return "this machine cannot run a cluster yet; missing:\n" + "\n".join(lines)
