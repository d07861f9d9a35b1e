"""Gather all that one pass may look at: the job, its pods, their nodes and their reports.

Truth is read anew from the API server at each pass; a watch event is only a hint to look. The
one exception is a pass that follows at once on a write of ours: it goes on with what was read a
moment ago and what the write returned, for every write is guarded by version, UID or name. Must
never decide anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rtj_operator.core.lastwords import last_words_of
from rtj_operator.core.node_ledger import Advice
from rtj_operator.core.observed import JobKey, JobView, Observed, PodView, Rejection, ReportView
from rtj_operator.shell.api import Cluster, Raw
from rtj_operator.shell.nodes import Nodes
from rtj_operator.shell.owners import FenceOwners
from rtj_operator.shell.pod_views import controller_uid, pod_view
from rtj_operator.shell.queues import Queues
from rtj_operator.shell.reports import Endpoint, Reports
from rtj_operator.shell.troubles import Troubles
from rtj_operator.shell.views import job_view

CARRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class World:
    """Raw objects of one job, as read (or as our own writes returned them)."""

    read_at: float
    job: Raw | None
    pods: Mapping[str, Raw] = field(default_factory=dict)  # by name

    def with_job(self, job: Raw) -> World:
        return replace(self, job=job)

    def with_pods(self, pods: list[Raw]) -> World:
        return replace(self, pods={**self.pods, **{pod["metadata"]["name"]: pod for pod in pods}})


class Observer:
    """`clock` gives Unix seconds."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        nodes: Nodes,
        owners: FenceOwners,
        reports: Reports,
        clock: Callable[[], float],
        advice: Callable[[], tuple[Advice, ...]] = lambda: (),
        has_old_key: Callable[[Raw], bool] = lambda _: False,
    ) -> None:
        self._cluster = cluster
        self._advice = advice
        self._has_old_key = has_old_key
        self._troubles = Troubles(cluster, clock=clock)
        self._queues = Queues(cluster, clock=clock)
        self._owners = owners
        self._nodes = nodes
        self._reports = reports
        self._clock = clock
        self._rejections: dict[JobKey, dict[str, Rejection]] = {}
        self._generations: dict[JobKey, tuple[str, int]] = {}

    async def read(self, key: JobKey) -> World:
        now = self._clock()
        job, pods = await asyncio.gather(self._cluster.get_job(key), self._cluster.list_pods(key))
        return World(read_at=now, job=job, pods={pod["metadata"]["name"]: pod for pod in pods})

    def is_fresh(self, world: World) -> bool:
        return 0 <= self._clock() - world.read_at <= CARRY_SECONDS

    async def observe(self, key: JobKey, world: World) -> Observed:
        if world.job is None:
            self.forget(key)
            left = [pod_view(raw) for raw in world.pods.values() if controller_uid(raw)]
            pods = tuple(view for view in left if view is not None)
            return Observed(now=self._clock(), job=None, older_pods=pods)
        job = job_view(world.job)
        self._forget_rejections_of_older_specs(key, uid=job.uid, generation=job.generation)
        ours: list[PodView] = []
        older: list[PodView] = []
        endpoints: list[Endpoint] = []
        for raw in world.pods.values():
            owner = controller_uid(raw)
            view = pod_view(raw) if owner else None
            if view is None:
                continue
            if job.spec is not None and job.spec.obeys_stop:
                view = replace(view, key_is_old=self._has_old_key(raw))
            (ours if owner == job.uid else older).append(view)
            if owner == job.uid and view.ip and view.status_port and not view.is_terminal:
                endpoints.append(Endpoint(key, job.uid, view.uid, view.ip, view.status_port))
        self._reports.follow(key, endpoints)
        reports = self._reports.views(key)
        nodes = await self._nodes.views(
            (pod.node for pod in (*ours, *older) if pod.node),
            in_doubt=_through_store(job) or any(_is_silent(reports.get(pod.uid)) for pod in ours),
        )
        heard = [*reports.values(), *_last_words(ours)]
        owner_lives = await self._owners.lives(heard, job_uid=job.uid)
        return Observed(
            now=self._clock(),
            job=job,
            pods=await self._troubles.told(ours, namespace=key.namespace),
            older_pods=tuple(older),
            nodes=nodes,
            # Read last: what came while the nodes were asked counts too.
            reports=self._reports.views(key),
            stale_lease_share=self._nodes.stale_share(),
            rejections=dict(self._rejections.get(key, {})),
            owner_lives=owner_lives,
            queue=await self._queues.view(ours, namespace=key.namespace),
            node_advice=self._advice(),
        )

    def rejected(self, key: JobKey, *, pod: str, rejection: Rejection) -> None:
        """Remember that the API server refused this pod's manifest."""
        self._rejections.setdefault(key, {})[pod] = rejection

    def accepted(self, key: JobKey, *, pod: str) -> None:
        self._rejections.get(key, {}).pop(pod, None)

    def forget(self, key: JobKey) -> None:
        """The job is gone: stop listening to its pods."""
        self._reports.follow(key, ())
        self._rejections.pop(key, None)
        self._generations.pop(key, None)

    def _forget_rejections_of_older_specs(self, key: JobKey, *, uid: str, generation: int) -> None:
        if self._generations.get(key) != (uid, generation):
            self._generations[key] = (uid, generation)
            self._rejections.pop(key, None)


def _last_words(pods: list[PodView]) -> list[ReportView]:
    """Reports that the kubelet carried."""
    said = (last_words_of(pod) for pod in pods)
    return [
        ReportView(report=words, received_at=None, connected=False, last_contact=None)
        for words in said
        if words is not None
    ]


def _through_store(job: JobView) -> bool:
    """Reports cannot be had, so heartbeats are what is known of the nodes."""
    return job.status.current is not None and job.status.current.through_store


def _is_silent(view: ReportView | None) -> bool:
    return view is not None and view.last_contact is not None and not view.connected
