"""The servers of other clouds' stores, each with a proxy before it that misbehaves on demand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.clouds import SERVERS, Cloud
from kit.fault_proxy import FaultProxy
from kit.long import long
from rtj_sidecar.stores.base import Store
from rtj_sidecar.stores.open import open_store
from rtj_sidecar.stores.pace import Pace

# Hadoop's name node takes half a minute, see docs/testing.md.
CLOUDS = ["az", "gs", long("hdfs")]
Open = Callable[..., Store]


@pytest.fixture(scope="module", params=CLOUDS)
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    with SERVERS[request.param]() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(cloud: Cloud) -> Iterator[FaultProxy]:
    with FaultProxy(upstream=cloud.endpoint) as running:
        yield running


@pytest.fixture
def opened(
    cloud: Cloud, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    """Open the cloud's store behind the proxy; what is given replaces what is right."""
    for name in list(os.environ):
        if name.startswith(("AZURE_", "GOOGLE_", "HADOOP_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    proxy.heal()
    made: list[Store] = []

    def start(
        *,
        url: str | None = None,
        endpoint: str | None = None,
        secret: dict[str, str] | None = None,
        patience_s: float = 10,
        pace: Pace | None = None,
    ) -> Store:
        directory = tmp_path / f"secret-{len(made)}"
        directory.mkdir()
        for name, value in (cloud.secret if secret is None else secret).items():
            (directory / name).write_text(value)
        path = cloud.endpoint.partition("//")[2].partition("/")[2]
        store = open_store(
            url or f"{cloud.url}/{tmp_path.name}",
            endpoint=endpoint or f"{proxy.endpoint}/{path}".rstrip("/"),
            credentials_dir=directory,
            patience_s=patience_s,
            transfer_patience_s=patience_s,
            pace=pace,
        )
        made.append(store)
        return store

    yield start
    proxy.heal()
    for store in made:
        store.close()
