"""A real API server for the contract tests: one given by name, or a small cluster of our own.

RTJ_TEST_KUBECONFIG names a cluster to use as it is (RTJ_KUBECTL its kubectl); then nothing is
started or taken down. Else a cluster of one node is brought up for the session. Must never pick up
a person's own KUBECONFIG by accident.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from devcluster import Cluster, binaries
from kit.kube import Kube, kube_of, wait_for
from kit.lanes import own

NAME = "rtj-contract"


class NoCluster(RuntimeError):
    """No API server can be had here; the message says why."""


@contextmanager
def api_server(*, name: str = NAME, apiserver_args: Sequence[str] = ()) -> Iterator[Kube]:
    """kubectl against a real API server, in its default namespace. Raises NoCluster.

    A server that was given by name has the flags that it has."""
    given = os.environ.get("RTJ_TEST_KUBECONFIG")
    if given:
        yield kube_of(kubectl=_kubectl(), kubeconfig=given)
        return
    if os.geteuid() != 0:
        raise NoCluster("a real API server needs root (devcluster), or RTJ_TEST_KUBECONFIG")
    cluster = Cluster(own(name))
    cluster.up(nodes=1, gpus=0, apiserver_args=apiserver_args)
    try:
        facts = cluster.status()
        yield kube_of(kubectl=facts["kubectl"], kubeconfig=facts["kubeconfig"])
    finally:
        cluster.down()


@contextmanager
def server_with(
    definition: dict[str, Any], *, name: str, apiserver_args: Sequence[str] = ()
) -> Iterator[Kube]:
    """Such a server that knows this CustomResourceDefinition. Raises NoCluster."""
    with api_server(name=name, apiserver_args=apiserver_args) as kube:
        kube.apply(definition)

        def is_established() -> bool:
            conditions = (
                kube.get("crd", definition["metadata"]["name"])["status"]["conditions"] or []
            )
            return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

        wait_for(is_established, within=120, what="the CRD established")
        yield kube


def _kubectl() -> str:
    found = os.environ.get("RTJ_KUBECTL") or shutil.which("kubectl")
    if found:
        return found
    if binaries.all_cached():
        return str(binaries.path("kubectl"))
    raise NoCluster("no kubectl: put it on the PATH or name it in RTJ_KUBECTL")
