"""Starting a cluster, or what is missing of one, in parallel where nothing has to wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from devcluster import binaries, images, leftovers, network, state
from devcluster.api import Api
from devcluster.controlplane import COMPONENTS, ControlPlane
from devcluster.layout import Layout
from devcluster.node import Node, ready_condition
from devcluster.processes import Registry


@dataclass(frozen=True)
class Parts:
    """The parts of one cluster, as its record describes them; they may run or not."""

    spec: state.Spec
    layout: Layout
    registry: Registry

    @property
    def plane(self) -> ControlPlane:
        spec = self.spec
        return ControlPlane(
            self.layout,
            self.registry,
            audit=spec.audit,
            apiserver_args=spec.apiserver_args,
            kcm_args=spec.kcm_args,
        )

    @property
    def nodes(self) -> list[Node]:
        return [
            Node(self.layout.node(index), self.registry, self.spec.nodes, self.spec.gpus)
            for index in range(1, self.spec.nodes + 1)
        ]


def in_parallel(action: Callable[[Node], None], nodes: Sequence[Node]) -> None:
    """Run it for all nodes at once; the first error is raised when all have ended."""
    with ThreadPoolExecutor(max(1, len(nodes))) as pool:
        for done in [pool.submit(action, node) for node in nodes]:
            done.result()


def start(parts: Parts, *, say: Callable[[str], None]) -> None:
    """Idempotent; returns when every node is Ready and a pod can be made."""
    layout, plane, nodes = parts.layout, parts.plane, parts.nodes
    leftovers.make_mount_points(layout.state_root)
    leftovers.raise_limits(layout.state_root)
    plane.make_certificates()
    network.make_switch(layout, node_count=len(nodes))
    archive = pause_archive(layout)

    def runtime(node: Node) -> None:
        with state.locked(node.layout.directory):
            node.make_identity()
            node.start_runtime(pause_archive=archive)

    with ThreadPoolExecutor(len(nodes) + 1) as pool:
        store = pool.submit(plane.start_store_and_api)
        for done in [pool.submit(runtime, node) for node in nodes]:
            done.result()
        say(f"{len(nodes)} nodes have power and a container runtime")
        store.result()
    say("the API server is ready")
    api = plane.api()
    plane.start_rest()
    in_parallel(lambda node: start_agents(node, api), nodes)
    api.wait_default_account()


def start_agents(node: Node, api: Api) -> None:
    """kubelet and kube-proxy; returns when the node is Ready with its GPUs."""
    before: str | None = None
    if node.process("kubelet") is None:
        known = api.node(node.layout.name)
        condition = ready_condition(known) if known else None
        before = condition.get("lastHeartbeatTime") if condition else None
    node.start_agents()
    node.wait_ready(api, seen_before=before)


def healthy(parts: Parts) -> bool:
    """Whether every process runs, every cable is plugged in and every node is Ready."""
    if not all(parts.registry.alive(name) for name in COMPONENTS):
        return False
    if not all(node.running and node.plugged for node in parts.nodes):
        return False
    api = parts.plane.api()
    if not api.ready():
        return False
    for node in parts.nodes:
        known = api.node(node.layout.name)
        condition = ready_condition(known) if known else None
        if condition is None or condition["status"] != "True":
            return False
    return True


def pause_archive(layout: Layout) -> Path:
    target = layout.directory / "pause.tar"
    if not target.exists():
        images.write_pause_archive(target, program=binaries.path("pause"))
    return target
