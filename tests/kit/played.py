"""Sidecars played by the test itself: pods that no kubelet runs, whose reports a test writes.

The API server, kopf, the client and the operator are real; only what a pod would do is played
here: it says that it runs, answers the long poll on loopback, and follows directives as PROTOCOL
demands. So the whole loop can be tried, and timed, without containers. Must never run trainers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from rtj_api import contract, wire
from rtj_api.rules.news import is_news
from rtj_operator.core.observed import JobKey
from rtj_operator.shell.api import ApiError
from rtj_operator.shell.cluster import MERGE_PATCH, KubeCluster
from rtj_operator.shell.pod_views import controller_uid, status_port_of, trainer_name

from kit.watching import follow

NOWHERE = {"resumable-training.dev/played": "nowhere"}
STARTS_AT_ONCE = 16


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

    key: JobKey
    name: str
    ip: str  # one of loopback's, of this pod alone: ports of many jobs may be equal
    report: wire.Report
    save: str | None = None  # of its job, once it trains
    runner: web.AppRunner | None = None
    seen: list[tuple[float, wire.Directive]] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _closing: bool = False
    _news: int = 1  # sequence of the newest report that told more than progress

    async def say(self, **fields: Any) -> float:
        """Change the report; the time at which it was out."""
        async with self._changed:
            fields.setdefault("sequence", self.report.sequence + 1)
            before, fields["sent_at"] = self.report, time.time()
            self.report = self.report.model_copy(update=fields)
            if is_news(before, self.report):
                self._news = self.report.sequence
            self._changed.notify_all()
        return time.time()

    async def crash(self, *, exit_code: int = 1) -> float:
        """The trainer of the current attempt dies, if one runs; the time of its death."""
        now = time.time()
        if self.report.phase is not wire.SidecarPhase.TRAINING:
            return now
        trainer = self.report.trainer.model_copy(
            update={"state": wire.TrainerState.EXITED, "exit_code": exit_code, "ended_at": now}
        )
        await self.say(phase=wire.SidecarPhase.EXITED, trainer=trainer)
        return now

    async def has_reached(self, step: int) -> None:
        """The trainer has done that step."""
        now = time.time()
        first = self.report.progress.first_step_at or now
        await self.say(
            progress=wire.ProgressView(
                step=step, loss=1 / step, updated_at=now, first_step_at=first
            )
        )

    async def follow(self, order: wire.Directive) -> None:
        """Do at once what a directive asks for."""
        if (order.attempt, order.seq) <= (self.report.attempt, self.report.seq):
            return
        self.seen.append((time.time(), order))
        asked: dict[str, Any] = {"attempt": order.attempt, "seq": order.seq}
        asked |= {"rank": order.rank, "standby": None}  # a spare has taken its rank
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
                if self.save is not None:
                    asked |= self._has_saved(order, self.save)
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

    def _has_saved(self, order: wire.Directive, save: str) -> dict[str, Any]:
        """What it says of the one save of its job, which is durable and pinned on every rank."""
        told: dict[str, Any] = {"pinned": [save]}
        if order.rank == 0:
            ranks = list(range(order.world_size))
            told["fence"] = order.attempt
            told["candidates"] = [wire.Candidate(name=save, step=1, durable=True, needs=ranks)]
            told["checkpoint"] = wire.CheckpointView(
                last_durable_step=1, last_durable_name=save, last_durable_at=1.0, valid=1
            )
        return told

    async def serve(self, port: int) -> None:
        app = web.Application()
        app.router.add_get(contract.PATH_STATUS, self._status)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self.runner.setup()
        await web.TCPSite(self.runner, self.ip, port, reuse_address=True).start()

    async def close(self) -> None:
        async with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self.runner is not None:
            await self.runner.cleanup()

    async def _status(self, request: web.Request) -> web.Response:
        """As `rtj_sidecar.report.Reporter.after` answers: news at once, mere progress later."""
        wait, quiet = (float(request.query.get(name, 0)) for name in ("wait", "quiet"))
        since = int(request.query.get("since", 0))
        async with self._changed:
            for seconds, is_due in (
                (min(wait, quiet), lambda: self._news > since),
                (wait - min(wait, quiet), lambda: self.report.sequence != since),
            ):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._changed.wait_for(lambda due=is_due: self._closing or due())
                        break
            if self._closing:
                return web.Response(status=503)
            return web.Response(text=self.report.dump_json(), content_type="application/json")


class PlayedPods:
    """Plays every pod of some jobs, as a watch shows them. Use as `async with`.

    With `save` each job has one durable save as soon as it trains, on every rank and fetched by
    its spares; else none.
    """

    def __init__(self, cluster: KubeCluster, *keys: JobKey, save: str | None = None) -> None:
        self._cluster = cluster
        self._save = save
        self.keys = frozenset(keys)
        self.pods: dict[str, PlayedPod] = {}  # by UID; those that are gone are not here
        self.made: dict[str, str] = {}  # UID -> name of every pod that was ever seen
        self._raw: dict[str, dict[str, Any]] = {}  # by UID, the newest
        self._numbers = itertools.count(1)
        self._slots = asyncio.Semaphore(STARTS_AT_ONCE)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> PlayedPods:
        self._task = asyncio.create_task(self._play())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await asyncio.gather(*(pod.close() for pod in self.pods.values()))

    def spares(self) -> list[PlayedPod]:
        """Those that wait for a rank."""
        return [p for p in self.pods.values() if p.report.standby is not None]

    def of_rank(self, rank: int, *, key: JobKey | None = None) -> PlayedPod:
        """The newest pod of that rank, of that job where several are played."""
        found = [p for p in self.pods.values() if p.report.rank == rank and key in (None, p.key)]
        return found[-1]

    async def _play(self) -> None:
        async with asyncio.TaskGroup() as group:
            for namespace in {key.namespace for key in self.keys}:
                group.create_task(
                    follow(
                        self._cluster,
                        f"/api/v1/namespaces/{namespace}/pods",
                        saw=lambda raw: self._saw(group, raw),
                        gone=self._gone,
                        selector=contract.LABEL_JOB,
                    )
                )

    async def _saw(self, group: asyncio.TaskGroup, raw: dict[str, Any]) -> None:
        meta = raw["metadata"]
        uid, key = meta["uid"], JobKey(meta["namespace"], meta["labels"][contract.LABEL_JOB])
        if key not in self.keys:
            return
        self._raw[uid] = raw
        if uid not in self.made:
            self.made[uid] = meta["name"]
            group.create_task(self._start(key, raw))
        await self._obey(uid)

    async def _gone(self, raw: dict[str, Any]) -> None:
        uid = raw["metadata"]["uid"]
        self._raw.pop(uid, None)
        pod = self.pods.pop(uid, None)
        if pod is not None:
            await pod.close()

    async def _obey(self, uid: str) -> None:
        pod, raw = self.pods.get(uid), self._raw.get(uid)
        notes = (raw or {"metadata": {}})["metadata"].get("annotations") or {}
        text = notes.get(contract.ANNOTATION_DIRECTIVE)
        if pod is not None and text:
            await pod.follow(wire.Directive.model_validate_json(text))

    async def _start(self, key: JobKey, raw: dict[str, Any]) -> None:
        meta, port = raw["metadata"], status_port_of(raw)
        job_uid = controller_uid(raw)
        assert port is not None
        assert job_uid is not None
        number = next(self._numbers)
        pod = PlayedPod(
            key=key,
            name=meta["name"],
            save=self._save,
            ip=f"127.{number // 65536 + 1}.{number // 256 % 256}.{number % 256}",
            report=wire.Report(
                job_uid=job_uid,
                pod_uid=meta["uid"],
                rank=int(meta["labels"].get(contract.LABEL_RANK, contract.NO_RANK)),
                standby=_standby(meta["name"], meta["labels"], save=self._save),
                boot_id=f"boot-{meta['uid'][:8]}",
                sequence=1,
                sent_at=time.time(),
                supervisor_seen=True,
            ),
        )
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        running = {"running": {"startedAt": now}}
        status = {
            "phase": "Running",
            "podIP": pod.ip,
            "podIPs": [{"ip": pod.ip}],
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": now}],
            "initContainerStatuses": [_container(contract.CONTAINER_SIDECAR, running)],
            "containerStatuses": [_container(str(trainer_name(raw["spec"])), running)],
        }
        async with self._slots:
            await pod.serve(port)
            try:
                await self.patch_status(meta["namespace"], meta["name"], status)
            except ApiError as error:
                if not error.is_not_found:
                    raise
        if meta["uid"] not in self._raw:  # deleted meanwhile
            await pod.close()
            return
        self.pods[meta["uid"]] = pod
        await self._obey(meta["uid"])

    async def patch_status(self, namespace: str, name: str, status: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        await self._cluster._request(
            "PATCH", path, resource="pods", body={"status": status}, content_type=MERGE_PATCH
        )


def _standby(name: str, labels: dict[str, str], *, save: str | None) -> wire.StandbyView | None:
    """What a spare says of itself: its number is in its name, `<job>-s<number>-…`."""
    if labels.get(contract.LABEL_ROLE) != contract.ROLE_SPARE:
        return None
    number = name.removeprefix(f"{labels[contract.LABEL_JOB]}-s").partition("-")[0]
    return wire.StandbyView(spare=int(number), name=save, whole=save is not None)


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


async def eventually(look: Callable[[], Any], *, within: float = 120, what: str = "") -> Any:
    """The first truthy answer of `look`, a coroutine function or a plain one. A look may ask an API
    server: the longer it takes, the rarer they get, so that it is seen at most a tenth later."""
    begun = time.monotonic()
    end = begun + within
    seen: Any = None
    while time.monotonic() < end:
        seen = look()
        if asyncio.iscoroutine(seen):
            seen = await seen
        if seen:
            return seen
        await asyncio.sleep(min(1.0, max(0.02, (time.monotonic() - begun) / 10)))
    raise AssertionError(f"not within {within:.0f} s: {what}; last seen: {json.dumps(seen)}")
