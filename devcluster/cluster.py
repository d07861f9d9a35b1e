"""One cluster as a whole: up, down, node faults, images, status. The CLI and tests use this."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from devcluster import binaries, bringup, firewall, images, leftovers, network, requirements, state
from devcluster.bringup import Parts
from devcluster.controlplane import COMPONENTS, HOST_NAME
from devcluster.layout import STATE_ROOT, Layout, checked_name
from devcluster.node import Node
from devcluster.processes import Registry, stopped
from devcluster.status import node_status

DEFAULT_NODES, DEFAULT_GPUS = 3, 2


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
        self._registry = Registry(self.directory / "processes")

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
            self._clear_firewall(self._parts_of(spec))
            if bringup.healthy(self._parts_of(spec)):
                self._say(f"cluster {self.name} is up already")
                return self
            bringup.start(self._parts_of(spec), say=self._say)
            self._say(f"cluster {self.name} is up, in {time.monotonic() - began:.1f} s")
        return self

    def down(self) -> None:
        """Remove the cluster and every trace of it, also of one whose processes were killed."""
        if missing := [item for item in requirements.missing(build=False) if item.what == "root"]:
            raise ClusterError(requirements.explained(missing))
        with state.locked(self.directory):
            leftovers.clear(self.name, registry=self._registry)
            shutil.rmtree(self.directory)
        leftovers.forget_root(self._root)
        self._say(f"cluster {self.name} is gone")

    def node_kill(self, name: str) -> None:
        """Cut a node's power: every process of it ends at once, nobody is told."""
        with self._node(name) as node:
            node.kill()

    def node_cut(self, name: str) -> None:
        """Cut a node's network: it is unreachable, its processes go on."""
        with self._node(name) as node:
            if node.process("init") is None:
                raise ClusterError(f"{name} has no power; `node heal {name}` starts it again")
            network.unplug(node.layout)

    def node_shutdown(self, name: str) -> None:
        """Shut a node down in order: its kubelet hears of it as from systemd, ends its pods within
        30 s, and says that the node is not Ready. The machine stays up, as one that is stuck."""
        with self._node(name) as node:
            node.tell_shutdown(shuts_down=True)

    def node_heal(self, name: str) -> None:
        """Plug a cut node in again, boot a killed one, or call a shutdown off; returns when it is
        Ready."""
        parts = self._parts()
        with self._node(name) as node:
            if node.process("logind") is not None:
                node.tell_shutdown(shuts_down=False)
            node.start_runtime(pause_archive=bringup.pause_archive(parts.layout))
            bringup.start_agents(node, parts.plane.api())

    @contextmanager
    def paused(self, component: str) -> Iterator[None]:
        """A component (`kube-apiserver`, `node-1.kubelet`) does nothing while the block runs: its
        connections stay open and nobody answers."""
        process = self._registry.alive(component)
        if process is None:
            raise ClusterError(f"{component} does not run in {self.name}; `status` lists what does")
        with stopped(process):
            yield

    def firewall_block(self, *, source: str, port: int) -> None:
        """Every node drops TCP packets of that address or CIDR to that port, those of open
        connections too, until `firewall_clear` or `up`."""
        what = firewall.Block(source, port)
        for node in self._wired(self._parts()):
            firewall.block(node.layout.netns, what)

    def firewall_clear(self) -> None:
        self._clear_firewall(self._parts())

    def _clear_firewall(self, parts: Parts) -> None:
        for node in self._wired(parts):
            firewall.clear(node.layout.netns)

    def _wired(self, parts: Parts) -> list[Node]:
        """Nodes that have power, and so a network namespace."""
        return [
            node
            for node in parts.nodes
            if node.layout.netns in network.namespaces(node.layout.netns)
        ]

    def load(self, *paths: Path | str) -> None:
        """Put image archives into all running nodes; what a node has already is skipped."""
        archives = [images.read_archive(Path(path)) for path in paths]
        nodes = [node for node in self._parts().nodes if node.process("containerd")]

        def into(node: Node) -> None:
            for archive in archives:
                began = time.monotonic()
                new = images.import_archive(archive, socket=node.layout.containerd_socket)
                what = f"loaded in {time.monotonic() - began:.1f} s" if new else "there already"
                self._say(f"{node.layout.name}: {', '.join(archive.names)} {what}")

        bringup.in_parallel(into, nodes)

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
        return self._parts().layout.host_ip

    @property
    def exists(self) -> bool:
        return state.read(self.directory) is not None

    def logs(self) -> dict[str, Path]:
        """Component ("kubelet" of a node is "node-1.kubelet") to its log file."""
        directory = self.directory / "logs"
        return {path.name.removesuffix(".log"): path for path in sorted(directory.glob("*.log"))}

    def status(self) -> dict[str, Any]:
        """Plain data, also the output of `status --json`; a node's `ready` and `gpus` are None
        where the API says nothing of it."""
        parts = self._parts()
        layout, plane, spec = parts.layout, parts.plane, parts.spec
        known: dict[str, dict[str, Any]] = {}
        answering = self.kubeconfig.exists() and plane.api().ready()
        if answering:
            listed = plane.api().request("GET", "/api/v1/nodes")["items"]
            known = {node["metadata"]["name"]: node for node in listed}
        return {
            "name": self.name,
            "ready": answering and bringup.healthy(parts),
            "kubernetesVersion": binaries.KUBERNETES_VERSION,
            "kubeconfig": str(self.kubeconfig),
            "kubectl": str(self.kubectl),
            "server": layout.server,
            "hostAddress": layout.host_ip,
            "hostName": HOST_NAME,
            "serviceCIDR": layout.service_cidr,
            "clusterCIDR": layout.cluster_cidr,
            "auditLog": str(plane.audit_log) if spec.audit else None,
            "logs": str(layout.logs),
            "controlPlane": {name: self._registry.alive(name) is not None for name in COMPONENTS},
            "nodes": [node_status(node, known.get(node.layout.name)) for node in parts.nodes],
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
        if leftovers.found(self.name):
            self._say(f"clearing away what an earlier cluster {self.name} left")
            leftovers.clear(self.name, registry=self._registry)
        spec = state.Spec(self.name, 0, DEFAULT_NODES, DEFAULT_GPUS)
        spec = replace(spec, **wanted)
        with state.locked(self._root):
            slot = state.free_slot(self._root, in_use=network.used_slots())
            spec = replace(spec, slot=slot)
            state.write(self.directory, spec)
        return spec

    def _spec(self) -> state.Spec:
        spec = state.read(self.directory)
        if spec is None:
            others = ", ".join(state.names(self._root)) or "none"
            raise ClusterError(
                f"there is no cluster {self.name} (there are: {others}); "
                f"`python -m devcluster up --name {self.name}` makes it"
            )
        return spec

    def _parts(self) -> Parts:
        return self._parts_of(self._spec())

    def _parts_of(self, spec: state.Spec) -> Parts:
        return Parts(spec, Layout(self.name, spec.slot, self._root), self._registry)

    @contextmanager
    def _node(self, name: str) -> Iterator[Node]:
        """The node of that name, locked against another command."""
        nodes = {node.layout.name: node for node in self._parts().nodes}
        if name not in nodes:
            raise ClusterError(f"no node {name!r}; there are: {', '.join(nodes)}")
        with state.locked(nodes[name].layout.directory):
            yield nodes[name]
