"""Sidecars played by the test itself: pods that no kubelet runs, whose reports a test writes.

The API server, kopf, the client and the operator are real; only what a pod would do is played
here: it says that it runs, answers the long poll on loopback, and follows directives as PROTOCOL
demands. So the whole loop can be tried, and timed, without containers. Must never run trainers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from rtj_api import contract, wire
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.api import ApiError
from rtj_operator.shell.cluster import MERGE_PATCH, KubeCluster
from rtj_operator.shell.views import controller_uid, status_port_of, trainer_name

NOWHERE = {"resumable-training.dev/played": "nowhere"}
LOOK_SECONDS = 0.01


def a_job(*, namespace: str, name: str, replicas: int = 2, **spec: Any) -> dict[str, Any]:
    """A job whose pods fit no node; on the host's network, so that each has a port of its own."""
    return {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "replicas": replicas,
            "checkpoint": {"path": "/checkpoints", "store": {"url": "s3://played/store"}},
            "template": {
                "spec": {
                    "hostNetwork": True,
                    "nodeSelector": dict(NOWHERE),
                    "containers": [
                        {"name": "trainer", "image": "played", "command": ["python", "train.py"]}
                    ],
                }
            },
            **spec,
        },
    }


@dataclass
class PlayedPod:
    """One sidecar. `seen` holds (time, directive) of every directive that was followed."""

    name: str
    report: wire.Report
    runner: web.AppRunner | None = None
    seen: list[tuple[float, wire.Directive]] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _closing: bool = False

    async def say(self, **fields: Any) -> float:
        """Change the report; the time at which it was out."""
        async with self._changed:
            fields.setdefault("sequence", self.report.sequence + 1)
            self.report = self.report.model_copy(update={**fields, "sent_at": time.time()})
            self._changed.notify_all()
        return time.time()

    async def crash(self, *, exit_code: int = 1) -> float:
        """The trainer of the current attempt dies; the time of its death."""
        now = time.time()
        trainer = self.report.trainer.model_copy(
            update={"state": wire.TrainerState.EXITED, "exit_code": exit_code, "ended_at": now}
        )
        await self.say(phase=wire.SidecarPhase.EXITED, trainer=trainer)
        return now

    async def follow(self, order: wire.Directive) -> None:
        """Do at once what a directive asks for."""
        if (order.attempt, order.seq) <= (self.report.attempt, self.report.seq):
            return
        self.seen.append((time.time(), order))
        asked: dict[str, Any] = {"attempt": order.attempt, "seq": order.seq}
        trains = wire.TrainerView(
            state=wire.TrainerState.RUNNING,
            attempt=order.attempt,
            pid=1,
            started_at=time.time(),
        )
        match order.phase:
            case wire.Phase.PREPARE:
                asked |= {"phase": wire.SidecarPhase.PREPARED}
                if order.rank == 0:
                    asked |= {"fence": order.attempt, "listed": True}
            case wire.Phase.RESTORE:
                asked |= {"phase": wire.SidecarPhase.RESTORED}
            case wire.Phase.GO:
                asked |= {"phase": wire.SidecarPhase.TRAINING, "trainer": trains}
            case wire.Phase.STOP:
                ended = self.report.trainer.model_copy(
                    update={
                        "state": wire.TrainerState.EXITED,
                        "exit_code": -15,
                        "asked_to_stop": True,
                    }
                )
                asked |= {"phase": wire.SidecarPhase.DRAINED, "trainer": ended}
        await self.say(**asked)

    async def serve(self, port: int) -> None:
        app = web.Application()
        app.router.add_get(contract.PATH_STATUS, self._status)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", port, reuse_address=True).start()

    async def close(self) -> None:
        async with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self.runner is not None:
            await self.runner.cleanup()

    async def _status(self, request: web.Request) -> web.Response:
        wait = float(request.query.get("wait", 0))
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait_for(
                        lambda: (
                            self._closing or request.query.get("since") != str(self.report.sequence)
                        )
                    )
            if self._closing:
                return web.Response(status=503)
            return web.Response(text=self.report.dump_json(), content_type="application/json")


class PlayedPods:
    """Plays every pod of some jobs. Use as `async with`."""

    def __init__(self, cluster: KubeCluster, *keys: JobKey) -> None:
        self._cluster = cluster
        self.keys = set(keys)
        self.pods: dict[str, PlayedPod] = {}  # by UID; those that are gone are not here
        self._key_of: dict[str, JobKey] = {}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> PlayedPods:
        self._task = asyncio.create_task(self._play())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        for pod in self.pods.values():
            await pod.close()

    def of_rank(self, rank: int) -> PlayedPod:
        """The newest pod of that rank."""
        return [pod for pod in self.pods.values() if pod.report.rank == rank][-1]

    async def _play(self) -> None:
        while True:
            for key in list(self.keys):
                with contextlib.suppress(ApiError):
                    await self._look(key)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, key: JobKey) -> None:
        listed = {pod["metadata"]["uid"]: pod for pod in await self._cluster.list_pods(key)}
        for uid in [uid for uid in self.pods if uid not in listed and self._key_of[uid] == key]:
            await self.pods.pop(uid).close()
        for uid, raw in listed.items():
            if uid not in self.pods:
                await self._start(raw)
            text = (raw["metadata"].get("annotations") or {}).get(contract.ANNOTATION_DIRECTIVE)
            if text:
                await self.pods[uid].follow(wire.Directive.model_validate_json(text))

    async def _start(self, raw: dict[str, Any]) -> None:
        meta, port = raw["metadata"], status_port_of(raw)
        job_uid = controller_uid(raw)
        assert port is not None
        assert job_uid is not None
        pod = PlayedPod(
            name=meta["name"],
            report=wire.Report(
                job_uid=job_uid,
                pod_uid=meta["uid"],
                rank=int(meta["labels"][contract.LABEL_RANK]),
                boot_id=f"boot-{meta['uid'][:8]}",
                sequence=1,
                sent_at=time.time(),
                supervisor_seen=True,
            ),
        )
        await pod.serve(port)
        self.pods[meta["uid"]] = pod
        self._key_of[meta["uid"]] = JobKey(meta["namespace"], meta["labels"][contract.LABEL_JOB])
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        running = {"running": {"startedAt": now}}
        status = {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": now}],
            "initContainerStatuses": [_container(contract.CONTAINER_SIDECAR, running)],
            "containerStatuses": [_container(str(trainer_name(raw["spec"])), running)],
        }
        await self.patch_status(meta["namespace"], meta["name"], status)

    async def patch_status(self, namespace: str, name: str, status: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        await self._cluster._request(
            "PATCH", path, resource="pods", body={"status": status}, content_type=MERGE_PATCH
        )


def _container(name: str, state: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": "played",
        "imageID": "played",
    }


async def eventually(look: Callable[[], Any], *, within: float = 30, what: str = "") -> Any:
    """The first truthy answer of `look`, a coroutine function or a plain one."""
    end = time.monotonic() + within
    seen: Any = None
    while time.monotonic() < end:
        seen = look()
        if asyncio.iscoroutine(seen):
            seen = await seen
        if seen:
            return seen
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {within:.0f} s: {what}; last seen: {json.dumps(seen)}")
