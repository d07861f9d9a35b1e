"""The operator as a process of its own, as a user starts it outside of a cluster.

For contract tests and benchmarks. Must never use a person's own KUBECONFIG: the file is named.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from kit import daemon
from kit.played import eventually

ROOT = Path(__file__).parents[2]


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
    module: str = "rtj_operator"
    environment: dict[str, str] = field(default_factory=dict)  # beyond what is set here
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def start(self) -> None:
        self.begin()
        await eventually(self.is_ready, within=120, what=f"ready; see {self.log}")

    def begin(self) -> None:
        """It runs; whether it is ready is another's question."""
        environ = {
            **os.environ,
            "KUBECONFIG": self.kubeconfig,
            "RTJ_SIDECAR_IMAGE": "played/sidecar:1",
            "RTJ_WATCH_NAMESPACES": self.namespace,
            "RTJ_HEALTH_PORT": str(self.health),
            "RTJ_METRICS_PORT": str(self.metrics),
            "PYTHONPATH": f"{ROOT / 'crds'}:{ROOT / 'operator'}",
            **self.environment,
        }
        self.process = self._spawn(environ)

    def _spawn(self, environ: dict[str, str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", self.module],
                env=environ,
                stdout=out,
                stderr=out,
                preexec_fn=daemon.die_with_parent(),
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
