"""What every tier on a real API server begins with: the server, a namespace in it, a client."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import pytest
from rtj_api import crdgen
from rtj_operator.shell.cluster import KubeCluster, load_configuration

from kit.apiserver import NoCluster, server_with
from kit.kube import Kube


@contextmanager
def server_of_this_tree(*, name: str, apiserver_args: Sequence[str] = ()) -> Iterator[Kube]:
    """With this tree's CRD. Skips where there is nothing to run one with, but never in CI."""
    try:
        with server_with(crdgen.crd(), name=name, apiserver_args=apiserver_args) as kube:
            yield kube
    except NoCluster as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@contextmanager
def namespace_in(server: Kube, *, prefix: str) -> Iterator[Kube]:
    name = f"{prefix}-{uuid.uuid4().hex[:6]}"
    yield server.make_namespace(name)
    server.drop_namespace(name)


@asynccontextmanager
async def client_of(server: Kube, *, user_agent: str) -> AsyncIterator[KubeCluster]:
    configuration = await load_configuration(kubeconfig=server.kubeconfig)
    made = KubeCluster(configuration, user_agent=user_agent)
    yield made
    await made.close()
