"""A kubelet whose containers are processes of this machine: no runtime, no images, no network.

It binds pods that ask for its scheduler to a node that it keeps alive, starts their containers in
order, brings annotations, restarts what ends, honours a deletion's grace, and says all of it in
the pods' status. With it the real operator, API server, sidecars and supervisors make a gang of
which each part can be hurt at an exact moment. Must never touch a pod of another scheduler.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import signal
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rtj_api import contract
from rtj_operator.shell.api import ApiError
from rtj_operator.shell.cluster import MERGE_PATCH, KubeCluster

from kit.host_pod import Container, HostPod, Raw, stamp
from kit.watching import follow

SCHEDULER = "host-kubelet"
LEASE_SECONDS = 5.0
RESTART_SECONDS = 1.0  # what a kubelet needs to see an end and start anew
BACK_OFF_SECONDS = 10.0  # before the second restart, doubled with each more
STOP_SECONDS = 2.0  # of a sidecar, and of a pod that was deleted by force
STARTS_AT_ONCE = 4
AGAIN_SECONDS = 0.5  # until a request that found no API server is made anew
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@dataclass
class HostKubelet:
    """`async with HostKubelet(cluster, directory=…, namespaces=(…,)) as kubelet:`"""

    cluster: KubeCluster
    directory: Path
    namespaces: tuple[str, ...]
    node: str = field(default_factory=lambda: f"host-{random.randrange(10**6)}")
    pods: dict[str, HostPod] = field(default_factory=dict)  # by UID, also those that are gone
    errors: dict[str, str] = field(default_factory=dict)  # of this kubelet itself, by UID
    _workers: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _leaving: dict[str, asyncio.Event] = field(default_factory=dict)
    _tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # A part of loopback's network that another kubelet of this kind hardly has.
        first = random.randrange(64, 250)
        self._addresses = (f"127.{first}.{n // 200 + 1}.{n % 200 + 1}" for n in itertools.count(0))
        self._slots = asyncio.Semaphore(STARTS_AT_ONCE)

    async def __aenter__(self) -> HostKubelet:
        await self._make_node()
        self._tasks = [asyncio.create_task(self._beat())]
        for namespace in self.namespaces:
            path = f"/api/v1/namespaces/{namespace}/pods"
            watch = follow(
                self.cluster, path, saw=self._saw, gone=self._gone, selector=contract.LABEL_JOB
            )
            self._tasks.append(asyncio.create_task(watch))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (*self._tasks, *self._workers.values()):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._workers.values(), return_exceptions=True)
        for pod in self.pods.values():
            await pod.kill_all()
        for path in (f"{LEASES}/{self.node}", f"/api/v1/nodes/{self.node}"):
            with contextlib.suppress(ApiError):
                await self._ask("DELETE", path)

    def of_job(self, job: str) -> list[HostPod]:
        """Every pod that the job ever had here, oldest first."""
        return [pod for pod in self.pods.values() if pod.job == job]

    def told(self, job: str) -> list[str]:
        """A line for each pod that the job ever had here: what runs of it, whether it is gone."""
        lines = []
        for pod in self.of_job(job):
            leaves, is_gone = self._leaving[pod.uid].is_set(), self._workers[pod.uid].done()
            runs = [c.name for c in (pod.trainer, pod.sidecar) if c.running]
            lines.append(f"{pod.name}: {leaves=} {runs=} {is_gone=} {self.errors.get(pod.uid, '')}")
        return lines

    def of_rank(self, job: str, rank: int) -> HostPod:
        """The newest pod of that rank that still runs. KeyError where there is none."""
        for pod in reversed(self.of_job(job)):
            if pod.rank == rank and not self._leaving[pod.uid].is_set():
                return pod
        raise KeyError(f"{job} has no pod of rank {rank}")

    # --- the node ---

    async def _make_node(self) -> None:
        await self._ask(
            "POST",
            "/api/v1/nodes",
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}},
        )
        await self._say_ready()
        await self._ask(
            "POST",
            LEASES,
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.node},
                "spec": self._lease(),
            },
        )

    async def _counts_as_ready(self) -> bool:
        """Where a beat came late the control plane has said otherwise, and leaves it at that."""
        node = await self._ask("GET", f"/api/v1/nodes/{self.node}")
        said = {c["type"]: c["status"] for c in node["status"].get("conditions") or []}
        return said.get("Ready") == "True"

    async def _say_ready(self) -> None:
        now = stamp(time.time())
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "host"}
        ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
        room = {"cpu": "64", "memory": "64Gi", "pods": "500"}
        status = {"conditions": [ready], "capacity": room, "allocatable": room}
        await self._ask("PATCH", f"/api/v1/nodes/{self.node}/status", {"status": status})

    def _lease(self) -> Raw:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        return {"holderIdentity": self.node, "leaseDurationSeconds": 40, "renewTime": moment}

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS)
            with contextlib.suppress(ApiError):
                await self._ask("PATCH", f"{LEASES}/{self.node}", {"spec": self._lease()})
                if not await self._counts_as_ready():
                    await self._say_ready()

    # --- pods ---

    async def _saw(self, raw: Raw) -> None:
        meta, spec = raw["metadata"], raw["spec"]
        if spec.get("schedulerName") != SCHEDULER:
            return
        uid = meta["uid"]
        if "nodeName" not in spec:
            if "deletionTimestamp" not in meta:
                await self._bind(meta)
            return
        pod = self.pods.get(uid)
        if pod is None:
            pod = HostPod(raw=raw, root=self.directory / uid, ip=next(self._addresses))
            self.pods[uid], self._leaving[uid] = pod, asyncio.Event()
            self._workers[uid] = asyncio.create_task(self._run(pod))
        pod.raw = raw
        pod.bring_directive()
        if "deletionTimestamp" in meta:
            self._leaving[uid].set()

    async def _gone(self, raw: Raw) -> None:
        uid = raw["metadata"]["uid"]
        if uid in self.pods:
            # By force: nobody asked us first. The last version tells the grace.
            self.pods[uid].raw = raw
            self._leaving[uid].set()

    async def _bind(self, meta: Raw) -> None:
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding"
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        about = {"name": meta["name"], "uid": meta["uid"]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": about, "target": target}
        with contextlib.suppress(ApiError):
            await self._ask("POST", path, body)

    async def _run(self, pod: HostPod) -> None:
        """The life of one pod, from its first container to its removal."""
        life = asyncio.create_task(self._told_of(pod, self._live(pod)))
        try:
            await self._leaving[pod.uid].wait()
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
        await self._told_of(pod, self._end(pod))

    async def _told_of(self, pod: HostPod, part: Awaitable[None]) -> None:
        """An error of this kubelet is kept for the test; its pod is looked after all the same."""
        try:
            await part
        except Exception as error:
            self.errors[pod.uid] = repr(error)

    async def _live(self, pod: HostPod) -> None:
        async with asyncio.TaskGroup() as group:
            async with self._slots:
                await pod.start_sidecar()
                keeper = group.create_task(self._keep(pod, pod.sidecar, pod.start_sidecar))
                await self._tell(pod)
                while not pod.is_installed:
                    await asyncio.sleep(0.02)
                await pod.start_trainer()
                await self._tell(pod)
            await self._keep(pod, pod.trainer, pod.start_trainer, until_clean=True)
            keeper.cancel()
        await self._stop(pod.sidecar)
        await self._tell(pod, phase="Succeeded")

    async def _keep(
        self, pod: HostPod, container: Container, start: Any, *, until_clean: bool = False
    ) -> None:
        """Restart it whenever it ends; `until_clean`: restartPolicy OnFailure."""
        while True:
            assert container.process is not None
            code = await container.process.wait()
            message = pod.termination_message() if container is pod.trainer else ""
            container.ended(message=message)
            if until_clean and code == 0:
                return
            await self._tell(pod)
            more = container.restarts
            pause = BACK_OFF_SECONDS * 2 ** (more - 1) if more else RESTART_SECONDS
            await asyncio.sleep(pause)
            container.restarts += 1
            await start()
            await self._tell(pod)

    async def _end(self, pod: HostPod) -> None:
        """SIGTERM, the grace, SIGKILL; then the object goes, if it is there still."""
        meta = pod.raw["metadata"]
        grace = max(meta.get("deletionGracePeriodSeconds") or 0, STOP_SECONDS)
        if pod.signal_supervisor(signal.SIGTERM):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pod.trainer.process.wait(), grace)  # type: ignore[union-attr]
        await self._stop(pod.sidecar)
        await pod.kill_all()
        await self._remove(pod)

    async def _remove(self, pod: HostPod) -> None:
        """Asked for until the API server has no such pod any more."""
        meta = pod.raw["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        while True:
            try:
                await self._ask(
                    "DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions"} | body
                )
            except ApiError as error:
                if error.is_not_found or not await self._is_there(pod):
                    return
            await asyncio.sleep(AGAIN_SECONDS)

    async def _is_there(self, pod: HostPod) -> bool:
        """Still, and not another one of that name."""
        meta = pod.raw["metadata"]
        try:
            there = await self._ask(
                "GET", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            )
        except ApiError as error:
            if error.is_not_found:
                return False
            raise
        return bool(there["metadata"]["uid"] == pod.uid)

    async def _stop(self, container: Container) -> None:
        if not container.running:
            return
        process = container.process
        assert process is not None
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):  # it ended at this very moment
                process.kill()
            await process.wait()

    async def _tell(self, pod: HostPod, *, phase: str | None = None) -> None:
        meta = pod.raw["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        while True:
            try:
                body = {"metadata": {"uid": pod.uid}, "status": pod.status(phase=phase)}
                await self._ask("PATCH", path, body)
                return
            except ApiError as error:
                if not (error.is_not_found or error.is_conflict):
                    raise
                # Its end is told by the watch; else another wrote at each of the server's tries.
                if error.is_not_found or not await self._is_there(pod):
                    return
            await asyncio.sleep(AGAIN_SECONDS)

    async def _ask(self, verb: str, path: str, body: Raw | None = None) -> Raw:
        """As a kubelet does, until the API server has said yes or no."""
        kind = MERGE_PATCH if verb == "PATCH" else "application/json"
        while True:
            try:
                return await self.cluster._request(
                    verb, path, resource="host", body=body, content_type=kind
                )
            except ApiError as error:
                if not error.is_transient:
                    raise
            await asyncio.sleep(AGAIN_SECONDS)
