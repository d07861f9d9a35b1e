"""A real API server with this tree's CRD, a namespace, and the operator as a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kit.apiserver import NoCluster, api_server
from kit.kube import Kube, wait_for
from kit.played import eventually
from prometheus_client.parser import text_string_to_metric_families
from rtj_api import crdgen
from rtj_operator.shell.cluster import KubeCluster, load_configuration

ROOT = Path(__file__).parents[3]


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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class OperatorProcess:
    """`python -m rtj_operator`, as a user starts it outside of a cluster."""

    kubeconfig: str
    namespace: str
    log: Path
    health: int = field(default_factory=free_port)
    metrics: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        environ = {
            **os.environ,
            "KUBECONFIG": self.kubeconfig,
            "RTJ_SIDECAR_IMAGE": "played/sidecar:1",
            "RTJ_WATCH_NAMESPACES": self.namespace,
            "RTJ_HEALTH_PORT": str(self.health),
            "RTJ_METRICS_PORT": str(self.metrics),
            "PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'operator'}",
        }
        self.process = self._spawn(environ)
        await eventually(self.is_ready, within=30, what=f"ready; see {self.log}")

    def _spawn(self, environ: dict[str, str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "rtj_operator"], env=environ, stdout=out, stderr=out
            )

    async def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        try:
            return (await self.get("/readyz"))[0] == 200
        except aiohttp.ClientError:
            return False

    async def get(self, path: str) -> tuple[int, str]:
        port = self.metrics if path == "/metrics" else self.health
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status, await response.text()

    async def value(self, series: str, **labels: str) -> float | None:
        """The value of one sample; None if there is none."""
        _, text = await self.get("/metrics")
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == series and sample.labels == labels:
                    return float(sample.value)
        return None

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]

    async def stop(self, *, by: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(by)
        return await asyncio.to_thread(self.process.wait, 30)


@pytest.fixture
async def operator(server: Kube, space: Kube, tmp_path: Path) -> AsyncIterator[OperatorProcess]:
    made = OperatorProcess(server.kubeconfig, space.namespace, tmp_path / "operator.log")
    await made.start()
    yield made
    await made.stop()
