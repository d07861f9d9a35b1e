"""What a Node object says against itself."""

from __future__ import annotations

from typing import Any

import pytest
from rtj_operator.core.node_ledger import NodeFacts
from rtj_operator.shell.node_facts import node_facts


def a_node(**fields: Any) -> dict[str, Any]:
    meta = {"name": "n1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": meta, "spec": {}, "status": {}} | fields


def condition(kind: str, status: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": status, "reason": "Because"}]}}


@pytest.mark.parametrize(
    ("kind", "status", "is_bad"),
    [
        ("KernelDeadlock", "True", True),
        ("KernelDeadlock", "False", False),
        ("KernelDeadlock", "Unknown", False),
        ("AcceleratedHardwareReady", "False", True),
        ("AcceleratedHardwareReady", "True", False),
        ("Ready", "False", False),
        ("MemoryPressure", "True", False),
        ("SomethingOfTheirOwn", "True", False),
    ],
)
def test_only_conditions_with_a_known_meaning_count(kind: str, status: str, is_bad: bool) -> None:
    found = node_facts(a_node(**condition(kind, status)))
    assert bool(found.troubles) is is_bad
    if is_bad:
        assert found.troubles == (f"condition {kind}={status} (Because)",)


@pytest.mark.parametrize(
    ("capacity", "allocatable", "troubles"),
    [
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "7"}, ("1 of 8 nvidia.com/gpu is gone",)),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "6"}, ("2 of 8 nvidia.com/gpu are gone",)),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "8"}, ()),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "0"}, ()),
        ({"nvidia.com/gpu": "8"}, {}, ()),
        ({"cpu": "8", "memory": "8Gi"}, {"cpu": "7", "memory": "7Gi"}, ()),
        ({"x.io/a": "1k"}, {"x.io/a": "900"}, ()),
    ],
)
def test_devices_that_are_gone(
    capacity: dict[str, str], allocatable: dict[str, str], troubles: tuple[str, ...]
) -> None:
    status = {"capacity": capacity, "allocatable": allocatable}
    assert node_facts(a_node(status=status)).troubles == troubles


def test_a_node_that_will_go() -> None:
    taints = [{"key": "nvidia.com/gpu"}, {"key": "node.kubernetes.io/unschedulable"}]
    assert node_facts(a_node(spec={"taints": taints})).leaving == (
        "taint node.kubernetes.io/unschedulable"
    )
    assert node_facts(a_node(spec={"taints": taints[:1]})).leaving is None


def test_a_bare_node_says_nothing() -> None:
    assert node_facts({"metadata": {"name": "n"}}) == NodeFacts(name="n")
