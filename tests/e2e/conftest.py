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
CLUSTER = own(os.environ.get("RTJ_TEST_CLUSTER", "rtj-test"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.e2e)
        if not any(mark.name == "timeout" for mark in item.iter_markers()):
            item.add_marker(pytest.mark.timeout(600))
    # The long ones first: then no lane is left with one at the end.
    items.sort(key=_timeout, reverse=True)


def _timeout(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0]) if mark is not None and mark.args else 600.0


@pytest.fixture(scope="session")
def product() -> Iterator[Stack]:
    """Cluster, S3 and operator. RTJ_TEST_KEEP=1 leaves the cluster up for the next run."""
    if os.geteuid() != 0:
        message = "the e2e tier needs root (namespaces, cgroups): run it as root"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with stack(name=CLUSTER, nodes=3, gpus=2, keep=bool(os.environ.get("RTJ_TEST_KEEP"))) as made:
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
