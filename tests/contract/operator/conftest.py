"""A real API server with this tree's CRD, a namespace, and the operator as a process."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kit.apiserver import NoCluster, api_server
from kit.kube import Kube, wait_for
from kit.operator_process import OperatorProcess
from rtj_api import crdgen
from rtj_operator.shell.cluster import KubeCluster, load_configuration


@pytest.fixture(scope="session")
def server() -> Iterator[Kube]:
    try:
        with api_server(name="rtj-operator") as kube:
            kube.apply(crdgen.crd())
            name = crdgen.crd()["metadata"]["name"]

            def established() -> bool:
                conditions = kube.get("crd", name)["status"]["conditions"]
                return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

            wait_for(established, within=30, what="the CRD established")
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
