"""The CRD of this tree on a real API server, and a namespace of these tests' own."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from kit.apiserver import NoCluster, api_server
from kit.kube import Kube, KubectlError, wait_for
from rtj_api import crdgen

CRD_NAME = crdgen.crd()["metadata"]["name"]


@pytest.fixture(scope="session")
def server() -> Iterator[Kube]:
    try:
        with api_server() as kube:
            yield kube
    except NoCluster as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def space(server: Kube) -> Iterator[Kube]:
    """A namespace, once the server serves this tree's CRD."""
    server.apply(crdgen.crd())

    def established() -> bool:
        found = server.get("crd", CRD_NAME)
        conditions = {c["type"]: c["status"] for c in found["status"]["conditions"]}
        return conditions.get("Established") == "True"

    wait_for(established, within=120, what="the CRD established")
    name = f"crd-{uuid.uuid4().hex[:6]}"
    there = server.make_namespace(name)
    yield there
    server.drop_namespace(name)


def _refused(there: Kube, manifest: dict[str, Any]) -> str:
    """By a dry run on the server: every rule is checked and nothing is stored."""
    try:
        there.run("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))
    except KubectlError as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def refusal(space: Kube, server: Kube) -> Iterator[Any]:
    """`refusal(manifest)`: what kubectl says when it is applied, or "" when it is taken; of a job
    that is new, in a namespace where nothing is ever stored."""
    empty = server.make_namespace(f"dry-{uuid.uuid4().hex[:6]}")
    yield partial(_refused, empty)
    server.drop_namespace(empty.namespace)


@pytest.fixture(scope="session")
def refusal_of_change(space: Kube) -> Any:
    """The same of a job that is there already, in `space`."""
    return partial(_refused, space)
