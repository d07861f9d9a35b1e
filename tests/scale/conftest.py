"""A real API server, the operator as a process, and many sidecars that the tests play.

RTJ_LONG=1 makes everything as large as is meant to work; else a tier takes a few minutes on two
busy cores. Pods name a scheduler that does not exist, so nothing but the operator and the tests
writes to them, and each write can be counted.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kit.apiserver import NoCluster, server_with
from kit.kube import Kube
from kit.loads import CountedOperator
from rtj_api import crdgen
from rtj_operator.shell.cluster import KubeCluster, load_configuration


@pytest.fixture(scope="session")
def server() -> Iterator[Kube]:
    try:
        with server_with(crdgen.crd(), name="rtj-scale") as kube:
            yield kube
    except NoCluster as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture
def space(server: Kube) -> Iterator[Kube]:
    name = f"scale-{uuid.uuid4().hex[:6]}"
    yield server.make_namespace(name)
    server.drop_namespace(name)


@pytest.fixture
async def cluster(server: Kube) -> AsyncIterator[KubeCluster]:
    configuration = await load_configuration(kubeconfig=server.kubeconfig)
    made = KubeCluster(configuration, user_agent="scale-test")
    yield made
    await made.close()


@pytest.fixture
async def operator(server: Kube, space: Kube, tmp_path: Path) -> AsyncIterator[CountedOperator]:
    made = CountedOperator(server.kubeconfig, space.namespace, tmp_path / "operator.log")
    await made.start()
    yield made
    await made.stop()
