"""One node: namespaces held by a first process, with containerd, kubelet and kube-proxy inside.

The first process is PID 1 of the node's own pid, mount, network, uts and ipc namespaces. When it
dies the kernel ends every process of the node and drops its mounts: a power cut, and also what
keeps a killed node from leaving anything behind.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster import binaries, certs, cgroups, images, network, nodeconfig, requirements
from devcluster.api import JSON_PATCH, Api, ApiError
from devcluster.layout import NodeLayout
from devcluster.logind import PLACE
from devcluster.processes import Process, ProcessError, Registry, kill, spawn, tail, wait_until

CAP_SYS_RESOURCE = 24
GPU = "nvidia.com/gpu"
COMPONENTS = ("init", "containerd", "logind", "kubelet", "kube-proxy")
LOGIND = Path(__file__).with_name("logind.py")
DEVICE_FILE_SYSTEMS = ("ext2", "ext3", "ext4", "xfs", "btrfs")


def may_lower_oom_score() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def file_system(directory: Path) -> str:
    """Type of the file system that holds a directory, such as "ext4"."""
    best, kind = "", ""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        head, _, rest = line.partition(" - ")
        mount = head.split()[4]
        if Path(mount) in (directory, *directory.parents) and len(mount) >= len(best):
            best, kind = mount, rest.split()[0]
    return kind


@dataclass(frozen=True)
class Node:
    layout: NodeLayout
    registry: Registry
    node_count: int
    gpus: int

    def process(self, component: str) -> Process | None:
        return self.registry.alive(f"{self.layout.name}.{component}")

    @property
    def running(self) -> bool:
        return all(self.process(name) for name in COMPONENTS)

    @property
    def plugged(self) -> bool:
        return network.is_plugged(self.layout)

    def start_runtime(self, *, pause_archive: Path) -> None:
        """Namespaces, cable and containerd with the pause image; needs no API server.

        A node of which any process has died is booted anew, for what else it has is not known.
        """
        if self.running and network.is_wired(self.layout):
            network.plug(self.layout)
            return
        self.clear()
        self._write_files()
        self._boot()
        containerd = self._ensure("containerd", self._containerd())
        socket = self.layout.containerd_socket
        wait_until(
            lambda: _answers(socket), timeout=30, what="containerd to answer", alive=(containerd,)
        )
        images.import_archive(images.read_archive(pause_archive), socket=socket)

    def start_agents(self) -> None:
        """kubelet and kube-proxy; needs the API server's certificates, not its answer."""
        layout = self.layout
        # The kubelet asks once, at its start.
        logind = self._ensure("logind", [sys.executable, "-I", "-S", str(LOGIND)])
        wait_until(
            lambda: Path(f"/proc/{logind.pid}/root{PLACE}").is_socket(),
            timeout=20,
            what="logind to listen",
            alive=(logind,),
            interval=0.05,
        )
        self._ensure(
            "kubelet",
            [
                str(binaries.path("kubelet")),
                f"--config={layout.directory}/kubelet.json",
                f"--kubeconfig={layout.directory}/kubeconfig",
                "--root-dir=/var/lib/kubelet",
                f"--hostname-override={layout.name}",
                f"--node-ip={layout.ip}",
            ],
        )
        self._ensure(
            "kube-proxy",
            [str(binaries.path("kube-proxy")), f"--config={layout.directory}/kube-proxy.json"],
        )

    def make_identity(self) -> None:
        layout, pki = self.layout, self.layout.cluster.certificates
        stem = f"kubelet-{layout.name}"
        names = (layout.name, layout.ip)
        certs.issue(pki, certs.Subject(stem, f"system:node:{layout.name}", "system:nodes", names))
        layout.directory.mkdir(parents=True, exist_ok=True)
        certs.write_kubeconfig(
            layout.directory / "kubeconfig",
            directory=pki,
            stem=stem,
            server=layout.cluster.server,
            name=f"devcluster-{layout.cluster.name}",
        )

    def wait_ready(self, api: Api, *, seen_before: str | None, timeout: float = 60) -> None:
        """Until a kubelet started after heartbeat `seen_before` says Ready, GPUs in place."""
        alive = [p for name in ("kubelet", "containerd") if (p := self.process(name))]
        wait_until(
            lambda: self._ready_with_gpus(api, seen_before),
            timeout=timeout,
            what=f"{self.layout.name} to be Ready",
            alive=alive,
            interval=0.1,
        )

    def _ready_with_gpus(self, api: Api, seen_before: str | None) -> bool:
        try:
            node = api.node(self.layout.name)
            if node is None:
                return False
            condition = ready_condition(node)
            # A kubelet that registers again resets extended resources before its first
            # heartbeat, so only what is patched after that heartbeat stays.
            if condition is None or condition.get("lastHeartbeatTime") == seen_before:
                return False
            if self._patch_needed(node):
                self._patch(api, node)
                return False
            return bool(condition["status"] == "True")
        except (ApiError, OSError):
            return False

    def _patch_needed(self, node: dict[str, Any]) -> bool:
        wanted = str(self.gpus)
        status = node["status"]
        return any(
            status.get(kind, {}).get(GPU, "0") != wanted for kind in ("capacity", "allocatable")
        )

    def _patch(self, api: Api, node: dict[str, Any]) -> None:
        key = GPU.replace("/", "~1")
        operations = [
            {"op": "add", "path": f"/status/{kind}/{key}", "value": str(self.gpus)}
            for kind in ("capacity", "allocatable")
        ]
        path = f"/api/v1/nodes/{self.layout.name}/status"
        api.request("PATCH", path, operations, content_type=JSON_PATCH)

    def tell_shutdown(self, *, shuts_down: bool) -> None:
        """What systemd says of the machine; ProcessError where nobody runs to say it."""
        logind = self.process("logind")
        if logind is None:
            raise ProcessError(f"{self.layout.name} has no power")
        os.kill(logind.pid, signal.SIGUSR1 if shuts_down else signal.SIGUSR2)

    def kill(self) -> None:
        """A power cut. The cable goes first: a dead machine sends no FIN and no RST."""
        network.unplug(self.layout)
        self.clear()

    def clear(self) -> None:
        """End whatever is left of the node and remove its namespaces and cgroups."""
        init = self.process("init")
        if init is not None:
            kill(init)
        cgroups.kill(self.layout.cgroup)
        cgroups.remove(self.layout.cgroup)
        if self.layout.netns in network.namespaces(self.layout.netns):
            network.delete_namespace(self.layout.netns)
        for component in COMPONENTS:
            self.registry.forget(f"{self.layout.name}.{component}")

    def _write_files(self) -> None:
        layout = self.layout
        cni_bin = requirements.cni_directory()
        assert cni_bin is not None, "requirements.missing() is asked before"
        texts = nodeconfig.files(
            layout,
            cni_bin=cni_bin,
            restrict_oom=not may_lower_oom_score(),
            isolate_storage=file_system(layout.cluster.state_root) in DEVICE_FILE_SYSTEMS,
        )
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name in nodeconfig.OWN_DIRECTORIES:
            (layout.directory / name).mkdir(exist_ok=True)
        layout.containerd_socket.unlink(missing_ok=True)

    def _boot(self) -> None:
        layout = self.layout
        system = f"{layout.cgroup}/system"
        cgroups.make(system)
        pause = binaries.path("pause")
        script = nodeconfig.desired_boot_script(layout, pause=pause)
        init = spawn(
            f"{layout.name}.init",
            ["/bin/sh", "-ec", script],
            log=layout.log("init"),
            cgroups=cgroups.procs_files(system),
            unshare=True,
        )
        self.registry.record(init)
        wait_until(
            lambda: _program(init.pid) == pause,
            timeout=20,
            what=f"{layout.name} to boot",
            alive=(init,),
            interval=0.01,
        )
        network.name_namespace(layout, init.pid)
        network.connect(layout, node_count=self.node_count)

    def _containerd(self) -> list[str]:
        program = requirements.program("containerd")
        assert program is not None
        return [program, "--config", f"{self.layout.directory}/containerd.toml"]

    def _ensure(self, component: str, argv: list[str]) -> Process:
        running = self.process(component)
        if running is not None:
            return running
        init = self.process("init")
        if init is None:
            log = self.layout.log("init")
            raise ProcessError(f"{self.layout.name} is down; last lines of {log}:\n{tail(log)}")
        process = spawn(
            f"{self.layout.name}.{component}",
            argv,
            log=self.layout.log(component),
            cgroups=cgroups.procs_files(f"{self.layout.cgroup}/system"),
            join=init.pid,
        )
        self.registry.record(process)
        return process


def ready_condition(node: dict[str, Any]) -> dict[str, Any] | None:
    conditions = node["status"].get("conditions") or ()
    return next((each for each in conditions if each["type"] == "Ready"), None)


def _program(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/exe").readlink()
    except OSError:
        return None


def _answers(socket: Path) -> bool:
    if not socket.exists():
        return False
    try:
        images.runtime_version(socket)
    except images.ImageError:
        return False
    return True
