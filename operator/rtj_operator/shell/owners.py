"""Whether the job that holds a run's fence still exists: may it be claimed over?

A job that was deleted lives on in its pods, which may still drain its last save. Must never say
that a job has ended which merely could not be seen: of another cluster, or of a namespace that
this operator does not serve, nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from rtj_operator.core.observed import JobKey, ReportView
from rtj_operator.shell.api import Cluster
from rtj_operator.shell.pod_views import controller_uid, pod_view

LIST_SECONDS = 5.0
LOST_SECONDS = 120.0
# RFC 1123: a namespace, and a job whose name fits the label of its pods. A report may hold
# anything.
SPACE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
JOB_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


class FenceOwners:
    """`sees_all`: jobs of all namespaces are listed. `clock` gives Unix seconds."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        cluster_uid: str,
        sees_all: bool,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._cluster_uid = cluster_uid
        self._sees_all = sees_all
        self._clock = clock
        self._uids: frozenset[str] = frozenset()
        self._read_at: float | None = None

    async def lives(self, heard: Iterable[ReportView], *, job_uid: str) -> Mapping[str, bool]:
        """By owner ("<clusterUID>/<jobUID>") that these reports name and that is not this job."""
        reports = list(heard)
        named = {
            view.report.fence_owner
            for view in reports
            if view.report is not None and view.report.fence_owner
        }
        places = {
            told.owner: JobKey(told.namespace, told.job)
            for view in reports
            if view.report is not None
            and (told := view.report.holder) is not None
            and told.namespace
            and SPACE_NAME.fullmatch(told.namespace)
            and told.job
            and JOB_NAME.fullmatch(told.job)
        }
        strangers = {
            owner: uid
            for owner in named
            for cluster, _, uid in [owner.partition("/")]
            if cluster == self._cluster_uid and uid and uid != job_uid
        }
        if not strangers:
            return {}
        await self._read()
        found = {owner: uid in self._uids for owner, uid in strangers.items()}
        if self._sees_all:
            for owner in [owner for owner, lives in found.items() if not lives]:
                found[owner] = await self._drains(places.get(owner), uid=strangers[owner])
        return {owner: lives for owner, lives in found.items() if lives or self._sees_all}

    async def _drains(self, place: JobKey | None, *, uid: str) -> bool:
        """Whether pods of a job that is gone are still there and may write. One whose node never
        ended it is not waited for much longer than its grace."""
        if place is None:
            return False
        raw = [pod for pod in await self._cluster.list_pods(place) if controller_uid(pod) == uid]
        pods = [view for pod in raw if (view := pod_view(pod)) is not None]
        late = self._clock() - LOST_SECONDS
        return any(
            not pod.is_terminal and (pod.deletion_deadline is None or pod.deletion_deadline > late)
            for pod in pods
        )

    async def _read(self) -> None:
        now = self._clock()
        if self._read_at is None or now - self._read_at > LIST_SECONDS:
            jobs = await self._cluster.list_jobs()
            self._uids = frozenset(job["metadata"]["uid"] for job in jobs)
            self._read_at = now
