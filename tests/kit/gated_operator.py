"""The real operator, which can be made to stand still just before one of its writes.

`python -m kit.gated_operator` is `python -m rtj_operator` with a gate in front of the API server:
while a file `<namespace>.<job>.gate` in $RTJ_TEST_GATES names a write, that write is announced by a
file `….held` and waits until the gate's file is gone. Killed meanwhile, the operator died between
two writes. Must never change a request, nor hold one of another job.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import rtj_operator.__main__ as operator
from rtj_api import contract
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.api import Raw
from rtj_operator.shell.cluster import KubeCluster

GATES = "RTJ_TEST_GATES"
LOOK_SECONDS = 0.01


class Gate:
    """One job's gate, from the test's side: `shut` before, `held` meanwhile, `open` at the end."""

    def __init__(self, directory: Path, *, namespace: str, job: str) -> None:
        self._file = directory / f"{namespace}.{job}.gate"
        self._held = self._file.with_suffix(".held")

    def shut(self, *, before: str, attempt: int, rank: int | None = None) -> None:
        """`before`: create | choose | a directive's phase; of that attempt or a later one."""
        self._held.unlink(missing_ok=True)
        wish = {"before": before, "attempt": attempt, "rank": rank}
        self._file.with_suffix(".new").write_text(json.dumps(wish))
        self._file.with_suffix(".new").rename(self._file)

    @property
    def held(self) -> bool:
        """The operator stands before that write."""
        return self._held.exists()

    def open(self) -> None:
        self._file.unlink(missing_ok=True)

    async def passes(self, *, before: str, attempt: int, rank: int | None) -> None:
        """From the operator's side: returns when this write may go."""
        while True:
            try:
                wish = json.loads(self._file.read_text())
            except FileNotFoundError:
                return
            is_meant = (
                wish["before"] == before
                and attempt >= wish["attempt"]
                and wish["rank"] in (None, rank)
            )
            if not is_meant:
                return
            self._held.touch()
            await asyncio.sleep(LOOK_SECONDS)


class GatedCluster:
    """`shell.api.Cluster`, all of the real one but for the wait."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._real = KubeCluster(*arguments, **options)
        self._gates = Path(os.environ[GATES])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def _gate(self, namespace: str, job: str) -> Gate:
        return Gate(self._gates, namespace=namespace, job=job)

    async def create_pod(self, manifest: Raw) -> Raw:
        meta = manifest["metadata"]
        labels, notes = meta["labels"], meta["annotations"]
        await self._gate(meta["namespace"], labels[contract.LABEL_JOB]).passes(
            before="create",
            attempt=int(notes[contract.ANNOTATION_MADE_IN]),
            rank=int(labels.get(contract.LABEL_RANK, contract.NO_RANK)),
        )
        return await self._real.create_pod(manifest)

    async def annotate_pod(
        self,
        *,
        namespace: str,
        name: str,
        resource_version: str,
        annotations: dict[str, str],
        labels: dict[str, str],
    ) -> Raw:
        order = json.loads(annotations[contract.ANNOTATION_DIRECTIVE])
        job = name.rsplit("-", 3)[0]
        await self._gate(namespace, job).passes(
            before=order["phase"], attempt=order["attempt"], rank=order["rank"]
        )
        return await self._real.annotate_pod(
            namespace=namespace,
            name=name,
            resource_version=resource_version,
            annotations=annotations,
            labels=labels,
        )

    async def put_status(self, *, key: JobKey, uid: str, resource_version: str, status: Raw) -> Raw:
        resume = status.get("resume") or {}
        if resume.get("attempt") == status.get("attempt"):
            await self._gate(key.namespace, key.name).passes(
                before="choose", attempt=status["attempt"], rank=None
            )
        return await self._real.put_status(
            key=key, uid=uid, resource_version=resource_version, status=status
        )


if __name__ == "__main__":
    operator.KubeCluster = GatedCluster  # type: ignore[assignment,misc]
    operator.main()
