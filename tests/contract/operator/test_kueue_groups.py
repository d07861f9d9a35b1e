"""The operator's pod groups before the real Kueue, without nodes: what a test says pods have done.

Only where one is at hand, see kit.kueue; it says loudly that it was not run.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.kube import Kube, wait_for
from kit.kueue import LOCAL_QUEUE, VARIABLE, Kueue, directory, kueue
from kit.specs import OWNER, a_pod, a_spec
from rtj_operator.core import gangs
from rtj_operator.core.avoid import keep_off

pytestmark = pytest.mark.contract

GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
SPEC = a_spec(trainer=GPU, scheduling={"gang": "kueue", "queue": LOCAL_QUEUE})


@pytest.fixture
def queue(server: Kube, space: Kube, tmp_path: Path) -> Iterator[Kueue]:
    place = directory()
    if place is None:
        message = f"NOT RUN: {VARIABLE} names no Kueue; see docs/testing.md"
        warnings.warn(message, stacklevel=1)
        pytest.skip(message)
    with kueue(server, space=space, gpus=2, place=place, work=tmp_path) as made:
        yield made


def member(space: Kube, *, rank: int, made_in: int, off: tuple[str, ...] = ()) -> dict[str, Any]:
    pod = gangs.joined(a_pod(SPEC, rank=rank, made_in=made_in), SPEC, owner=OWNER, since=1)
    meta = {k: v for k, v in pod["metadata"].items() if k != "ownerReferences"}
    return keep_off({**pod, "metadata": {**meta, "namespace": space.namespace}}, off)


def name_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def is_let_go(space: Kube, pod: dict[str, Any]) -> bool:
    return not space.get("pod", name_of(pod))["spec"].get("schedulingGates")


def is_now(space: Kube, pod: dict[str, Any], phase: str) -> None:
    change = json.dumps({"status": {"phase": phase}})
    space.run("patch", "pod", name_of(pod), "--subresource=status", "--type=merge", "-p", change)


def binds(space: Kube, pod: dict[str, Any]) -> None:
    target = {"kind": "Node", "name": "node-1"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name_of(pod)}}
    path = f"/api/v1/namespaces/{space.namespace}/pods/{name_of(pod)}/binding"
    space.run("create", "--raw", path, "-f", "-", stdin=json.dumps({**body, "target": target}))
    is_now(space, pod, "Running")


def is_freed(space: Kube, pod: dict[str, Any]) -> None:
    """As the operator does it, and then the kubelet."""
    freed = '{"metadata": {"finalizers": null}}'
    space.run("patch", "pod", name_of(pod), "--type=merge", "-p", freed)
    space.run("delete", "pod", name_of(pod), "--grace-period=0", "--force", "--ignore-not-found")


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_a_replaced_rank_is_let_go_however_the_one_before_ended(
    space: Kube, queue: Kueue, end: str
) -> None:
    first = [member(space, rank=rank, made_in=1) for rank in (0, 1)]
    space.apply(*first)
    for pod in first:
        wait_for(lambda pod=pod: is_let_go(space, pod), within=30, what=f"{name_of(pod)} let go")
        binds(space, pod)
    space.run("delete", "pod", name_of(first[1]), "--wait=false")
    is_now(space, first[1], end)
    # Kueue is to have seen how it ended.
    space.run("annotate", "pod", name_of(first[0]), "seen=1")
    is_freed(space, first[1])
    again = member(space, rank=1, made_in=2, off=("node-1",))
    space.apply(again)
    wait_for(lambda: is_let_go(space, again), within=30, what="the replacement let go")
    assert is_let_go(space, first[0])
    assert queue.reserved() == 1
    (workload,) = queue.workloads().values()
    assert workload["spec"]["podSets"][0]["count"] == 2

    for pod in (first[0], again):
        space.run("delete", "pod", name_of(pod), "--wait=false")
        is_freed(space, pod)
    wait_for(lambda: queue.reserved() == 0, within=30, what="the quota given back")
