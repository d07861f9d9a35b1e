"""A real API server with this tree's CRD, a namespace, and the operator as a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kit.kube import Kube
from kit.on_server import client_of, namespace_in, server_of_this_tree
from kit.operator_process import OperatorProcess
from rtj_operator.shell.cluster import KubeCluster


@pytest.fixture(scope="session")
def server() -> Iterator[Kube]:
    with server_of_this_tree(name="rtj-operator") as kube:
        yield kube


@pytest.fixture
def space(server: Kube) -> Iterator[Kube]:
    with namespace_in(server, prefix="op") as space:
        yield space


@pytest.fixture
async def cluster(server: Kube) -> AsyncIterator[KubeCluster]:
    async with client_of(server, user_agent="contract-test") as made:
        yield made


@pytest.fixture
async def operator(server: Kube, space: Kube, tmp_path: Path) -> AsyncIterator[OperatorProcess]:
    made = OperatorProcess(server.kubeconfig, space.namespace, tmp_path / "operator.log")
    await made.start()
    yield made
    await made.stop()
