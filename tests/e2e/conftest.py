"""One real cluster with the operator for all e2e tests; each test has its own namespace."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kit.kube import Kube
from kit.lanes import own
from kit.stack import Stack, stack

# Each worker of pytest-xdist has a cluster of its own: one node's power cut is nobody else's fault.
# Kubernetes' default grace is 50 s; the kubelet's lease is left at its default.
QUICK_LOSS = ("--node-monitor-grace-period=30s",)
# By how long they take on two cores.
FIRST = (
    "test_main_job",
    "test_pod_shapes",
    "test_store_mode",
    "test_spares",
    "test_runs",
    "test_shared_directory",
    "test_drain",
    "test_habits",
    "test_operator_node",
    "test_elastic",
    "test_causes",
    "test_metrics",
    "test_hold",
)
CLUSTER = own(os.environ.get("RTJ_TEST_CLUSTER", "rtj-test"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.e2e)
        if not any(mark.name == "timeout" for mark in item.iter_markers()):
            item.add_marker(pytest.mark.timeout(600))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[int, str]:
    """The long ones first: then no lane is left with one at the end."""
    stem = item.path.stem
    is_left_out = item.get_closest_marker("skip") is not None
    turn = FIRST.index(stem) if stem in FIRST else len(FIRST)
    return len(FIRST) + 1 if is_left_out else turn, stem


@pytest.fixture(scope="session")
def product() -> Iterator[Stack]:
    """Cluster, S3 and operator. RTJ_TEST_KEEP=1 leaves the cluster up for the next run."""
    if os.geteuid() != 0:
        message = "the e2e tier needs root (namespaces, cgroups): run it as root"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    keep = bool(os.environ.get("RTJ_TEST_KEEP"))
    options = {} if keep else {"kcm_args": QUICK_LOSS}
    with stack(name=CLUSTER, nodes=3, gpus=2, keep=keep, cluster_options=options) as made:
        yield made


@pytest.fixture
def space(product: Stack, request: pytest.FixtureRequest) -> Iterator[Kube]:
    """A namespace of this test's own, with the store's credentials, that takes no pod but those
    that Pod Security calls restricted: what `kit.manifests` builds by default."""
    with _namespace(product, request, restricted=True) as made:
        yield made


@pytest.fixture
def open_space(product: Stack, request: pytest.FixtureRequest) -> Iterator[Kube]:
    """One that takes any pod: for root, the host's network, hostPath (`root=True`)."""
    with _namespace(product, request, restricted=False) as made:
        yield made


@contextmanager
def _namespace(
    product: Stack, request: pytest.FixtureRequest, *, restricted: bool
) -> Iterator[Kube]:
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:30].strip("-")
    name = f"{stem}-{uuid.uuid4().hex[:5]}"
    try:
        yield product.namespace(name, restricted=restricted)
    finally:
        product.drop_namespace(name)
