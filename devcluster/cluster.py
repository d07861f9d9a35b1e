"""One cluster as a whole: up, down, node faults, images, status. The CLI and tests use this."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from devcluster import binaries, cgroups, images, network, nodeconfig, requirements, state
from devcluster.controlplane import ControlPlane
from devcluster.layout import STATE_ROOT, Layout, checked_name
from devcluster.node import Node, ready_condition
from devcluster.processes import Registry, kill

DEFAULT_NODES, DEFAULT_GPUS = 3, 2
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns")
MOUNT_POINTS = ".made-mount-points"


class ClusterError(RuntimeError):
    """The cluster cannot do what was asked; the message names the remedy."""


def say_on_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Cluster:
    """The cluster of that name, whether it exists yet or not."""

    def __init__(
        self,
        name: str = "dev",
        *,
        say: Callable[[str], None] = say_on_stderr,
        state_root: Path = STATE_ROOT,
    ) -> None:
        try:
            self.name = checked_name(name)
        except ValueError as error:
            raise ClusterError(str(error)) from error
        self._say, self._root = say, state_root
        self.directory = state_root / name

    def up(
        self,
        *,
        nodes: int | None = None,
        gpus: int | None = None,
        audit: bool | None = None,
        apiserver_args: Sequence[str] | None = None,
        kcm_args: Sequence[str] | None = None,
    ) -> Cluster:
        """Bring the cluster up, or put right what is dead or cut of it; None keeps a value.

        Idempotent. A running cluster is never changed in size or flags: ClusterError then.
        """
        self._check_machine()
        binaries.ensure(self._say)
        with state.locked(self.directory):
            began = time.monotonic()
            wanted = {
                "nodes": nodes,
                "gpus": gpus,
                "audit": audit,
                "apiserver_args": None if apiserver_args is None else tuple(apiserver_args),
                "kcm_args": None if kcm_args is None else tuple(kcm_args),
            }
            spec = self._settle_spec({key: v for key, v in wanted.items() if v is not None})
            if self._healthy(spec):
                self._say(f"cluster {self.name} is up already")
                return self
            self._start(spec)
            self._say(f"cluster {self.name} is up, in {time.monotonic() - began:.1f} s")
        return self

    def down(self) -> None:
        """Remove the cluster and every trace of it, also of one whose processes were killed."""
        if missing := [item for item in requirements.missing(build=False) if item.what == "root"]:
            raise ClusterError(requirements.explained(missing))
        with state.locked(self.directory):
            for process in Registry(self.directory / "processes").all():
                kill(process)
            group = Layout(self.name, 0).cgroup
            cgroups.kill(group)
            cgroups.remove(group)
            for slot in self._slots():
                network.remove(Layout(self.name, slot))
            shutil.rmtree(self.directory)
        self._forget_root()
        self._say(f"cluster {self.name} is gone")

    def node_kill(self, name: str) -> None:
        """Cut a node's power: every process of it ends at once, nobody is told."""
        self._node(name).kill()

    def node_cut(self, name: str) -> None:
        """Cut a node's network: it is unreachable, its processes go on."""
        node = self._node(name)
        if node.process("init") is None:
            raise ClusterError(f"{name} has no power; `node heal {name}` starts it again")
        network.unplug(node.layout)

    def node_heal(self, name: str) -> None:
        """Plug a cut node in again, or boot a killed one; returns when it is Ready."""
        spec, node = self._spec(), self._node(name)
        api = self._control_plane(spec).api()
        before = api.node(name)
        condition = ready_condition(before) if before else None
        if node.running:
            network.plug(node.layout)
            # Its kubelet never stopped, so its GPUs are as they were; any heartbeat will do.
            node.wait_ready(api, seen_before=None)
            return
        node.start_runtime(pause_archive=self._pause_archive())
        node.start_agents()
        node.wait_ready(api, seen_before=(condition or {}).get("lastHeartbeatTime"))

    def load(self, *paths: Path | str) -> None:
        """Put image archives into all running nodes; what a node has already is skipped."""
        archives = [images.read_archive(Path(path)) for path in paths]
        nodes = [node for node in self._nodes(self._spec()) if node.process("containerd")]

        def into(node: Node) -> None:
            for archive in archives:
                began = time.monotonic()
                new = images.import_archive(archive, socket=node.layout.containerd_socket)
                what = f"loaded in {time.monotonic() - began:.1f} s" if new else "there already"
                self._say(f"{node.layout.name}: {', '.join(archive.names)} {what}")

        _in_parallel(into, nodes)

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    def existing_kubeconfig(self) -> Path:
        """The same path; ClusterError where there is no such cluster."""
        self._spec()
        return self.kubeconfig

    @property
    def kubectl(self) -> Path:
        return binaries.path("kubectl")

    @property
    def host_address(self) -> str:
        """This machine's address as pods and nodes see it."""
        return self._layout(self._spec()).host_ip

    @property
    def exists(self) -> bool:
        return state.read(self.directory) is not None

    def logs(self) -> dict[str, Path]:
        """Component ("kubelet" of a node is "node-1.kubelet") to its log file."""
        directory = self.directory / "logs"
        return {path.name.removesuffix(".log"): path for path in sorted(directory.glob("*.log"))}

    def status(self) -> dict[str, Any]:
        """Plain data, also the output of `status --json`; ready is None if the API is silent."""
        spec = self._spec()
        layout, plane = self._layout(spec), self._control_plane(spec)
        registry = Registry(self.directory / "processes")
        known: dict[str, dict[str, Any]] = {}
        answering = plane.api().ready() if self.kubeconfig.exists() else False
        if answering:
            listed = plane.api().request("GET", "/api/v1/nodes")["items"]
            known = {node["metadata"]["name"]: node for node in listed}
        return {
            "name": self.name,
            "ready": answering and self._healthy(spec),
            "kubernetesVersion": binaries.KUBERNETES_VERSION,
            "kubeconfig": str(self.kubeconfig),
            "kubectl": str(self.kubectl),
            "server": layout.server,
            "hostAddress": layout.host_ip,
            "serviceCIDR": layout.service_cidr,
            "clusterCIDR": layout.cluster_cidr,
            "auditLog": str(plane.audit_log) if spec.audit else None,
            "logs": str(layout.logs),
            "controlPlane": {name: registry.alive(name) is not None for name in CONTROL_PLANE},
            "nodes": [
                _node_status(node, known.get(node.layout.name)) for node in self._nodes(spec)
            ],
        }

    # -- how up does it ------------------------------------------------------------------

    def _check_machine(self) -> None:
        found = requirements.missing(build=not binaries.all_cached())
        if found:
            raise ClusterError(requirements.explained(found))

    def _settle_spec(self, wanted: dict[str, Any]) -> state.Spec:
        """The recorded spec if it agrees with `wanted`, else a new record with a free slot."""
        existing = state.read(self.directory)
        if existing is not None:
            different = {
                key: value for key, value in wanted.items() if getattr(existing, key) != value
            }
            if different:
                asked = ", ".join(f"{key} {value}" for key, value in different.items())
                has = ", ".join(f"{key} {getattr(existing, key)}" for key in different)
                raise ClusterError(
                    f"cluster {self.name} exists with {has}, asked for {asked}; "
                    f"`down --name {self.name}` first, or use another --name"
                )
            return existing
        self._clear_remains()
        spec = state.Spec(self.name, 0, DEFAULT_NODES, DEFAULT_GPUS)
        spec = replace(spec, **wanted)
        with state.locked(self._root):
            slot = state.free_slot(self._root, in_use=network.used_slots())
            spec = replace(spec, slot=slot)
            state.write(self.directory, spec)
        return spec

    def _clear_remains(self) -> None:
        """An earlier cluster of this name whose record is lost."""
        group = Layout(self.name, 0).cgroup
        if cgroups.exists(group) or network.namespaces(f"devcluster.{self.name}."):
            self._say(f"clearing away what an earlier cluster {self.name} left")
            cgroups.kill(group)
            cgroups.remove(group)
            for slot in self._slots():
                network.remove(Layout(self.name, slot))

    def _slots(self) -> Iterable[int]:
        with suppress(state.StateError):
            spec = state.read(self.directory)
            if spec is not None:
                return [spec.slot]
        return [0]

    def _start(self, spec: state.Spec) -> None:
        layout, plane, nodes = self._layout(spec), self._control_plane(spec), self._nodes(spec)
        self._make_mount_points()
        plane.make_certificates()
        network.make_switch(layout, node_count=spec.nodes)
        archive = self._pause_archive()

        def runtime(node: Node) -> None:
            node.make_identity()
            if node.process("init") and not node.plugged:
                network.plug(node.layout)
            node.start_runtime(pause_archive=archive)

        with ThreadPoolExecutor(len(nodes) + 1) as pool:
            store = pool.submit(plane.start_store_and_api)
            for done in [pool.submit(runtime, node) for node in nodes]:
                done.result()
            self._say(f"{len(nodes)} nodes have power and a container runtime")
            store.result()
        self._say("the API server is ready")
        api = plane.api()
        before = {
            node.layout.name: _heartbeat(api, node.layout.name)
            if node.process("kubelet") is None
            else None
            for node in nodes
        }
        plane.start_rest()
        _in_parallel(lambda node: node.start_agents(), nodes)
        _in_parallel(lambda node: node.wait_ready(api, seen_before=before[node.layout.name]), nodes)
        api.wait_default_account()

    def _healthy(self, spec: state.Spec) -> bool:
        registry = Registry(self.directory / "processes")
        if not all(registry.alive(name) for name in CONTROL_PLANE):
            return False
        if not all(node.running and node.plugged for node in self._nodes(spec)):
            return False
        api = self._control_plane(spec).api()
        if not api.ready():
            return False
        for node in self._nodes(spec):
            known = api.node(node.layout.name)
            condition = ready_condition(known) if known else None
            if condition is None or condition["status"] != "True":
                return False
        return True

    def _make_mount_points(self) -> None:
        with state.locked(self._root):
            note = self._root / MOUNT_POINTS
            made = set(note.read_text().split()) if note.exists() else set()
            for directory in nodeconfig.mount_points():
                if not directory.exists():
                    made.add(str(directory))
                    note.write_text("\n".join(sorted(made)))
                    directory.mkdir()

    def _forget_root(self) -> None:
        """The last cluster to go takes the mount points and the state root with it."""
        with state.locked(self._root):
            if state.names(self._root):
                return
            note = self._root / MOUNT_POINTS
            for directory in note.read_text().split() if note.exists() else ():
                with suppress(OSError):
                    Path(directory).rmdir()
            note.unlink(missing_ok=True)
            with suppress(OSError):
                self._root.rmdir()

    def _pause_archive(self) -> Path:
        target = self.directory / "pause.tar"
        if not target.exists():
            images.write_pause_archive(target, program=binaries.path("pause"))
        return target

    # -- parts ---------------------------------------------------------------------------

    def _spec(self) -> state.Spec:
        spec = state.read(self.directory)
        if spec is None:
            others = ", ".join(state.names(self._root)) or "none"
            raise ClusterError(
                f"there is no cluster {self.name} (there are: {others}); "
                f"`python -m devcluster up --name {self.name}` makes it"
            )
        return spec

    def _layout(self, spec: state.Spec) -> Layout:
        return Layout(self.name, spec.slot, self._root)

    def _control_plane(self, spec: state.Spec) -> ControlPlane:
        return ControlPlane(
            self._layout(spec),
            Registry(self.directory / "processes"),
            audit=spec.audit,
            apiserver_args=spec.apiserver_args,
            kcm_args=spec.kcm_args,
        )

    def _nodes(self, spec: state.Spec) -> list[Node]:
        layout, registry = self._layout(spec), Registry(self.directory / "processes")
        return [
            Node(layout.node(index), registry, spec.nodes, spec.gpus)
            for index in range(1, spec.nodes + 1)
        ]

    def _node(self, name: str) -> Node:
        nodes = {node.layout.name: node for node in self._nodes(self._spec())}
        if name not in nodes:
            raise ClusterError(f"no node {name!r}; there are: {', '.join(nodes)}")
        return nodes[name]


def _heartbeat(api: Any, name: str) -> str | None:
    node = api.node(name)
    condition = ready_condition(node) if node else None
    return condition.get("lastHeartbeatTime") if condition else None


def _in_parallel(action: Callable[[Node], None], nodes: Sequence[Node]) -> None:
    with ThreadPoolExecutor(max(1, len(nodes))) as pool:
        for done in [pool.submit(action, node) for node in nodes]:
            done.result()


def _node_status(node: Node, known: dict[str, Any] | None) -> dict[str, Any]:
    layout = node.layout
    condition = ready_condition(known) if known else None
    power = node.process("init")
    return {
        "name": layout.name,
        "ip": layout.ip,
        "ready": None if known is None else bool(condition and condition["status"] == "True"),
        "power": power is not None,
        "connected": node.plugged,
        "gpus": int(known["status"]["capacity"].get("nvidia.com/gpu", 0)) if known else None,
        "podCIDR": layout.pod_cidr,
        "netns": layout.netns,
        "pid": power.pid if power else None,
        "containerdSocket": str(layout.containerd_socket),
        "cgroup": layout.cgroup,
        "directory": str(layout.directory),
    }
