"""A real API server with this tree's CRD, a namespace, and the operator as a process."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kit.apiserver import NoCluster, server_with
from kit.kube import Kube
from kit.operator_process import OperatorProcess
from rtj_api import crdgen
from rtj_operator.shell.cluster import KubeCluster, load_configuration


@pytest.fixture(scope="session")
def server() -> Iterator[Kube]:
    try:
        with server_with(crdgen.crd(), name="rtj-operator") as kube:
            yield kube
    except NoCluster as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture
def space(server: Kube) -> Iterator[Kube]:
    name = f"op-{uuid.uuid4().hex[:6]}"
    yield server.make_namespace(name)
    server.drop_namespace(name)


@pytest.fixture
async def cluster(server: Kube) -> AsyncIterator[KubeCluster]:
    configuration = await load_configuration(kubeconfig=server.kubeconfig)
    made = KubeCluster(configuration, user_agent="contract-test")
    yield made
    await made.close()


@pytest.fixture
async def operator(server: Kube, space: Kube, tmp_path: Path) -> AsyncIterator[OperatorProcess]:
    made = OperatorProcess(server.kubeconfig, space.namespace, tmp_path / "operator.log")
    await made.start()
    yield made
    await made.stop()
