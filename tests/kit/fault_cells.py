"""One cell of the fault table made to happen: a gang brought into a phase, hurt there, watched on.

Every story begins alike: a gang of two trains to a durable save, then rank 0's pod is deleted by
force, so that the next attempt passes every phase with a new holder. A gate in front of the API
server or of the store stops the world in the phase that is wanted; the fault is struck; the gate
opens. Must never wait for a time where a condition can be waited for.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rtj_api import contract
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.api import ApiError
from rtj_operator.shell.cluster import KubeCluster

from kit import toy_trainer
from kit.cells import Cell, Ending, Part, Phase
from kit.fault_proxy import Fault, FaultProxy, Mode
from kit.gated_operator import Gate
from kit.host_kubelet import SCHEDULER, HostKubelet
from kit.operator_process import OperatorProcess
from kit.played import eventually
from kit.s3 import S3Server

STEPS, EVERY = 60, 10
BEFORE, BETWEEN, END = 20, 35, 10**6  # how far the trainers may go in each part of the story
OUTAGE_SECONDS = 20.0
WITHIN = 180.0  # seconds for each part of a story: many run at once on few cores

# Where the world is stopped. In the store: requests that wait in the proxy. In the operator: the
# write that it stands before, of the new attempt, for a rank or any.
# `{fence}` is the new attempt's.
IN_STORE = {
    Phase.PREPARE: r"^PUT \S*/fences/{fence:08}",
    Phase.RESTORE: r"^GET \S*/checkpoints/f",
    Phase.FIRST_SAVE: r"^PUT \S*/checkpoints/f{fence}-",
    Phase.COMMIT: r"^PUT \S*/manifests/f{fence}-",
}
IN_OPERATOR: dict[Phase, tuple[str, int | None]] = {
    Phase.RECORDED: ("create", None),
    Phase.CHOOSE: ("choose", None),
    Phase.GO: ("go", 1),  # rank 0 has heard it
}


@dataclass
class Story:
    """What one cell left behind, for the laws to be checked on."""

    cell: Cell
    key: JobKey
    statuses: list[dict[str, Any]] = field(default_factory=list)  # every version, in order
    requests: list[tuple[str, int | None]] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)  # of trainers, by pod
    endpoint: str = ""
    steps: int = STEPS
    error: str | None = None  # why it did not come to its end
    before: dict[str, Any] = field(default_factory=dict)  # status when all began

    @property
    def status(self) -> dict[str, Any]:
        return self.statuses[-1] if self.statuses else {}


@dataclass
class Bench:
    """What the stories share. One operator is hurt by its own column only."""

    cluster: KubeCluster
    kubelet: HostKubelet
    operators: dict[str, OperatorProcess]  # by namespace
    gates: Path
    s3: S3Server
    directory: Path
    stories: dict[JobKey, Story] = field(default_factory=dict)
    operator_alone: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def saw(self, raw: dict[str, Any]) -> None:
        """A version of some job."""
        meta = raw["metadata"]
        story = self.stories.get(JobKey(meta["namespace"], meta["name"]))
        if story is not None and "status" in raw:
            story.statuses.append(raw["status"])

    async def gone(self, raw: dict[str, Any]) -> None:
        pass


class CellRun:
    def __init__(self, bench: Bench, cell: Cell, *, namespace: str) -> None:
        self.bench, self.cell = bench, cell
        self.key = JobKey(namespace, cell.id)
        self.story = Story(cell, self.key)
        self.gate = Gate(bench.gates, namespace=namespace, job=cell.id)
        self.limit = bench.directory / f"{cell.id}.limit"
        bench.stories[self.key] = self.story

    async def run(self) -> Story:
        """The whole story, also of one that did not come to its end."""
        async with self._proxy() as self.proxy:
            self.story.endpoint = self.proxy.endpoint
            try:
                await self._tell()
            except Exception as error:
                self.story.error = f"{type(error).__name__}: {error}"
            finally:
                self.story.requests = [(s.request, s.status) for s in list(self.proxy.seen)]
                self.story.outputs = {p.name: p.output for p in self._pods()}
        return self.story

    @asynccontextmanager
    async def _proxy(self) -> AsyncIterator[FaultProxy]:
        with FaultProxy(upstream=self.bench.s3.endpoint) as proxy:
            yield proxy

    async def _is_tidied(self) -> bool:
        if await self.bench.cluster.list_pods(self.key):
            return False
        return not any(pod.trainer.running or pod.sidecar.running for pod in self._pods())

    def _pods(self) -> list[Any]:
        return self.bench.kubelet.of_job(self.key.name)

    async def _make_job(self) -> bool:
        path = f"/apis/{contract.API_VERSION}/namespaces/{self.key.namespace}/{contract.PLURAL}"
        try:
            await self.bench.cluster._request("POST", path, resource="job", body=self._job())
        except ApiError as error:
            if not (error.is_transient or error.is_conflict):
                raise
            return error.is_conflict  # made by a request whose answer never came
        return True

    async def _tell(self) -> None:
        self._let_train(BEFORE)
        await eventually(self._make_job, within=WITHIN, what="the job is made")
        await self._until(lambda s: durable(s) == BEFORE, "the first saves are durable")
        await self._bring_about()
        await eventually(self._is_there, within=WITHIN, what=f"{self.cell.id} is reached")
        await self._strike()
        self._let_train(END)
        await self._until(lambda s: s.get("phase") in ("Succeeded", "Failed"), "the job ends")
        await eventually(self._is_tidied, within=WITHIN, what=f"{self.cell.id}: its pods are gone")

    def _let_train(self, step: int) -> None:
        self.limit.with_suffix(".new").write_text(str(step))
        self.limit.with_suffix(".new").rename(self.limit)

    async def _bring_about(self) -> None:
        """The next attempt begins, and the world will stop in the phase that is wanted."""
        phase = self.cell.phase
        self.story.before = self.story.status
        if phase is Phase.RESTORE:
            # Saves are read while they are proved, too: arm when that is over.
            self.gate.shut(before="choose", attempt=self._attempt)
        elif phase in IN_OPERATOR:
            before, rank = IN_OPERATOR[phase]
            self.gate.shut(before=before, attempt=self._attempt, rank=rank)
        else:
            self._stop_in_store()
        await self._delete_pod(0)
        self._let_train(BETWEEN)
        if phase is Phase.RESTORE:
            await eventually(lambda: self.gate.held, within=WITHIN, what="all are prepared")
            self._stop_in_store()
            self.gate.open()

    @property
    def _attempt(self) -> int:
        return int(self.story.before["attempt"]) + 1

    def _stop_in_store(self) -> None:
        claimed = [int(f) for s in self.proxy.seen for f in FENCE.findall(s.request)]
        only = IN_STORE[self.cell.phase].format(fence=max(claimed) + 1)
        loses = (self.cell.phase, self.cell.part) == (Phase.COMMIT, Part.STORE)
        self.proxy.switch(
            Fault(Mode.LOSE_REPLY, only=only, times=1) if loses else Fault(Mode.HOLD, only=only)
        )

    def _is_there(self) -> bool:
        if self.cell.phase is Phase.GO:
            begun = f"BEGIN attempt {self._attempt} rank 0"
            return self.gate.held and any(begun in pod.output for pod in self._pods())
        if self.cell.phase in IN_OPERATOR:
            return self.gate.held
        return bool(self.proxy.held or self.proxy.hits(Mode.LOSE_REPLY))

    @property
    def victim(self) -> int:
        """Rank 0, the new holder; its pod is not there yet when the attempt is just recorded."""
        return 1 if self.cell.phase is Phase.RECORDED else 0

    async def _strike(self) -> None:
        kubelet, job = self.bench.kubelet, self.key.name
        match self.cell.part:
            case Part.OPERATOR:
                operator = self.bench.operators[self.key.namespace]
                async with self.bench.operator_alone:
                    await operator.stop(by=signal.SIGKILL)
                    self._go_on()
                    await operator.start()
            case Part.SIDECAR:
                kubelet.of_rank(job, self.victim).kill_sidecar()
            case Part.SUPERVISOR:
                kubelet.of_rank(job, self.victim).kill_supervisor()
            case Part.POD:
                await self._delete_pod(self.victim)
            case Part.STORE:
                self.proxy.switch(Fault(Mode.REFUSE))
                self.gate.open()
                await self._suffer()
        self._go_on()

    async def _suffer(self) -> None:
        """The store is away until that has had its effect; where it must have none, for a time."""
        match self.cell.ending:
            case Ending.HELD:
                await self._until(lambda s: s.get("phase") == "Held", "the job is held")
            case Ending.COUNTED:
                given_up = self._attempt
                await self._until(lambda s: s["attempt"] > given_up, "the attempt is given up")
            case _:
                await asyncio.sleep(OUTAGE_SECONDS)

    def _go_on(self) -> None:
        """What was stopped goes on, but for requests of those who are dead."""
        self.gate.open()
        self.proxy.heal(drop=self.cell.part in (Part.SIDECAR, Part.POD))

    async def _delete_pod(self, rank: int) -> None:
        pod = self.bench.kubelet.of_rank(self.key.name, rank)
        await self.bench.cluster.delete_pod(
            namespace=self.key.namespace, name=pod.name, uid=pod.uid, grace_seconds=0
        )

    async def _until(
        self, fact: Callable[[dict[str, Any]], object], what: str, *, within: float = WITHIN
    ) -> None:
        await eventually(
            lambda: bool(self.story.statuses) and bool(fact(self.story.status)),
            within=within,
            what=f"{self.cell.id}: {what}",
        )

    def _job(self) -> dict[str, Any]:
        command = [sys.executable, "-u", toy_trainer.__file__, "--dir", "$(RTJ_CHECKPOINT_DIR)"]
        command += ["--steps", str(STEPS), "--every", str(EVERY), "--limit", str(self.limit)]
        secret = self.bench.s3.environment() | {"AWS_ENDPOINT_URL_S3": self.proxy.endpoint}
        return {
            "apiVersion": contract.API_VERSION,
            "kind": contract.KIND,
            "metadata": {"namespace": self.key.namespace, "name": self.key.name},
            "spec": {
                "replicas": 2,
                "checkpoint": {
                    "path": "/checkpoints",
                    "store": {"url": self.bench.s3.url(), "endpoint": self.proxy.endpoint},
                    "resumeArgs": ["--resume", "$(RTJ_RESUME_CHECKPOINT)"],
                    "local": {"mirror": "never"},
                },
                "sidecar": {
                    "env": [{"name": name, "value": value} for name, value in secret.items()],
                    "drainSeconds": 30,
                },
                "template": {
                    "spec": {
                        "schedulerName": SCHEDULER,
                        "terminationGracePeriodSeconds": 5,
                        "containers": [{"name": "trainer", "image": "host", "command": command}],
                    }
                },
            },
        }


def durable(status: dict[str, Any]) -> int | None:
    return (status.get("checkpoint") or {}).get("lastDurableStep")


FENCE = re.compile(r"^PUT \S*/fences/(\d+)\.json")
