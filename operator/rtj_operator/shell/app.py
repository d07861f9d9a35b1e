"""All parts of the loop put together, and what kopf's hints do to them.

Must never contain a rule: which job to look at is all that is settled here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence

import aiohttp

from rtj_operator.core.node_marks import marks_of
from rtj_operator.core.observed import JobKey, Observed
from rtj_operator.core.plan import Plan
from rtj_operator.core.pod_facts import PodSettings
from rtj_operator.shell.api import ApiError, Cluster, Raw
from rtj_operator.shell.apply import Applier
from rtj_operator.shell.events import Recorder
from rtj_operator.shell.health import Pulse
from rtj_operator.shell.metrics import OperatorMetrics, QueueGauges
from rtj_operator.shell.node_ledger import KeptLedger
from rtj_operator.shell.nodes import Nodes
from rtj_operator.shell.observe import Observer
from rtj_operator.shell.owners import FenceOwners
from rtj_operator.shell.push import Pusher
from rtj_operator.shell.queue import KeyQueue
from rtj_operator.shell.reconcile import RESYNC_SECONDS, Decide, Reconciler
from rtj_operator.shell.reports import Reports

log = logging.getLogger(__name__)

RESOURCES = ("resumabletrainingjobs", "pods", "nodes")
NAMESPACED = RESOURCES[:2]
MAX_WRITTEN = 20_000
Login = Callable[[], tuple[str, aiohttp.ClientSession]]


class App:
    """The operator without its watches. Made inside a running loop."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        login: Login,
        pods: PodSettings,
        decide: Decide,
        metrics: OperatorMetrics,
        pulse: Pulse,
        instance: str,
        queue: KeyQueue[JobKey],
        reads_nodes: bool = True,
        sees_all_jobs: bool = True,
        namespace: str | None = None,
        node_ledger: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.login = login
        self.pulse = pulse
        self.queue = queue
        self.metrics = metrics
        self._cluster = cluster
        self._clock = clock
        self._nodes = Nodes(cluster, clock=clock, may_read=reads_nodes)
        self.node_ledger = KeptLedger(
            cluster,
            facts=self._nodes.facts,
            namespace=namespace,
            name=node_ledger,
            clock=clock,
        )
        metrics.registry.register(self.node_ledger)
        self._written: dict[str, str] = {}  # pod UID -> version that our own write made
        self._on_node: dict[str, set[JobKey]] = {}
        self._nodes_of: dict[JobKey, frozenset[str]] = {}
        self.reports = Reports(wake=self._report_changed, clock=clock)
        self._pusher = Pusher(clock=clock)
        self._recorder = Recorder(cluster, instance=instance, clock=clock)
        self.reconciler = Reconciler(
            queue=self.queue,
            observer=Observer(
                cluster,
                nodes=self._nodes,
                owners=FenceOwners(
                    cluster, cluster_uid=pods.cluster_uid, sees_all=sees_all_jobs, clock=clock
                ),
                reports=self.reports,
                clock=clock,
                advice=self.node_ledger.advice,
                has_old_key=self._pusher.has_old_key,
            ),
            applier=Applier(cluster, settings=pods, pusher=self._pusher, clock=clock),
            decide=decide,
            recorder=self._recorder,
            watcher=self,
        )
        metrics.read(
            QueueGauges(
                depth=lambda: self.queue.depth,
                oldest_seconds=self.queue.oldest_seconds,
                longest_pass_seconds=self.queue.longest_active_seconds,
                retries=lambda: self.queue.counters.retries,
                followed_pods=lambda: self.reports.followed,
                connected_pods=lambda: self.reports.connected,
            )
        )

    async def run(self, *, workers: int) -> None:
        """Work until cancelled; an error of a task ends it all."""
        await self.node_ledger.load()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._recorder.run(), name="events")
                group.create_task(self.node_ledger.run(), name="node ledger")
                group.create_task(self._resync(), name="resync")
                for number in range(workers):
                    group.create_task(self.reconciler.work(), name=f"worker {number}")
        finally:
            await self.reports.close()
            await self._pusher.close()

    async def drained(self) -> None:
        """All Events that were ordered have been posted."""
        await self._recorder.drained()

    async def _resync(self) -> None:
        """Look at every job now and then, whatever the watches say."""
        while True:
            await asyncio.sleep(RESYNC_SECONDS)
            try:
                jobs = await self._cluster.list_jobs()
            except ApiError as error:
                log.warning("resync put off", extra={"why": str(error)})
                continue
            for number, job in enumerate(jobs):
                meta = job["metadata"]
                key = JobKey(meta["namespace"], meta["name"])
                self.queue.add_after(key, number * RESYNC_SECONDS / 10 / len(jobs))

    # --- hints -----------------------------------------------------------------------------------

    def job_changed(self, key: JobKey, *, resource_version: str | None) -> None:
        self._event("resumabletrainingjobs")
        # Our own write comes back as an event: that version has been looked at already.
        if resource_version is None or resource_version != self.metrics.jobs.version_of(key):
            self.queue.add(key)

    def pod_changed(self, key: JobKey, *, uid: str, resource_version: str | None) -> None:
        self._event("pods")
        written = self._written.pop(uid, None)
        if resource_version is None or resource_version != written:
            self.queue.add(key)

    def node_changed(self, name: str, node: Raw | None) -> None:
        self._event("nodes")
        self._nodes.changed(name, node)
        for key in self._on_node.get(name, ()):
            self.queue.add(key)

    def _report_changed(self, key: JobKey, *, after: float, urgent: bool) -> None:
        if after > 0:
            self.queue.add_after(key, after)
        else:
            self.queue.add(key, urgent=urgent)

    def watch_answered(self, resource: str, refused: str | None = None) -> None:
        if refused is not None:
            self.pulse.refused(resource, refused)
            return
        self.pulse.beat(resource)
        if resource in RESOURCES:
            self.metrics.watched(resource)

    def _event(self, resource: str) -> None:
        self.watch_answered(resource)
        self.metrics.watch_events.labels(resource).inc()

    # --- what the passes tell (Watcher) ------------------------------------------------------

    def job_seen(self, key: JobKey, job: Raw | None) -> None:
        self.metrics.jobs.seen(key, job)
        if job is None:
            self._remember_nodes(key, ())

    def observed(self, observed: Observed) -> None:
        self.metrics.jobs.observed(observed)
        if observed.job is not None:
            if observed.job.managed_elsewhere is None:
                self.node_ledger.count(marks_of(observed.job, now=self._clock()))
            self._remember_nodes(observed.job.key, (pod.node for pod in observed.pods if pod.node))

    def pods_written(self, pods: Sequence[Raw]) -> None:
        if len(self._written) > MAX_WRITTEN:  # events that never came
            self._written.clear()
        for pod in pods:
            self._written[pod["metadata"]["uid"]] = pod["metadata"]["resourceVersion"]

    def pass_ended(self, *, result: str, seconds: float) -> None:
        self.metrics.pass_ended(result=result, seconds=seconds)

    def decided(self, key: JobKey, plan: Plan) -> None:
        self.metrics.decided(key, plan)

    def _remember_nodes(self, key: JobKey, names: Iterable[str]) -> None:
        wanted, known = frozenset(names), self._nodes_of.get(key, frozenset())
        for name in known - wanted:
            self._on_node[name].discard(key)
            if not self._on_node[name]:
                del self._on_node[name]
        for name in wanted - known:
            self._on_node.setdefault(name, set()).add(key)
        if wanted:
            self._nodes_of[key] = wanted
        else:
            self._nodes_of.pop(key, None)
