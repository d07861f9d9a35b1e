"""Threads that hold bytes: bounded by memory, however many cores the node has."""

from __future__ import annotations

import os

import pytest
from rtj_sidecar.stores.azure import Azure
from rtj_sidecar.stores.gcs import Gcs
from rtj_sidecar.stores.memory import TRANSFER_MEMORY, within_memory
from rtj_sidecar.stores.objects import ObjectStore
from rtj_sidecar.stores.s3 import S3Store
from rtj_sidecar.stores.service import Service
from rtj_sidecar.stores.webhdfs import WebHdfs


def test_no_more_than_fit_and_never_none() -> None:
    assert within_memory(4, each=8 << 20) == 4
    assert within_memory(192, each=8 << 20) == 16
    assert within_memory(192, each=TRANSFER_MEMORY * 2) == 1


@pytest.mark.parametrize("kind", [Gcs, Azure, WebHdfs])
def test_on_a_node_of_192_cores_a_service_holds_no_more_than_its_share(
    kind: type[Gcs] | type[Azure] | type[WebHdfs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(192)))
    service: Service = kind("place", endpoint=None, ca_file=None, credentials_dir=None)
    store = ObjectStore(service)
    assert store._pool._max_workers * service.held(0) <= TRANSFER_MEMORY
    store._pool.shutdown()


def test_s3_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(192)))
    store = S3Store(bucket="b", endpoint="http://127.0.0.1:1", region="x")
    assert store._pool._max_workers == 64
    store.close()
