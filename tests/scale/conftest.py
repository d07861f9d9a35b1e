"""A real API server, the operator as a process, and many sidecars that the tests play.

`make test-long` makes everything as large as is meant to work; `make test` takes a size of a few
minutes. Pods name a scheduler that does not exist, so nothing but the operator and the tests
writes to them, and each write can be counted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kit.kube import Kube
from kit.loads import CountedOperator
from kit.on_server import client_of, namespace_in, server_of_this_tree
from rtj_operator.shell.cluster import KubeCluster


@pytest.fixture(scope="session")
def server() -> Iterator[Kube]:
    with server_of_this_tree(name="rtj-scale") as kube:
        yield kube


@pytest.fixture
def space(server: Kube) -> Iterator[Kube]:
    with namespace_in(server, prefix="scale") as space:
        yield space


@pytest.fixture
async def cluster(server: Kube) -> AsyncIterator[KubeCluster]:
    async with client_of(server, user_agent="scale-test") as made:
        yield made


@pytest.fixture
async def operator(server: Kube, space: Kube, tmp_path: Path) -> AsyncIterator[CountedOperator]:
    made = CountedOperator(server.kubeconfig, space.namespace, tmp_path / "operator.log")
    await made.start()
    yield made
    await made.stop()
