"""Carry out a plan, in a fixed order: deletes, the gang's group, creates, directives, the job's
own deletion, status; then its events.

Every write is guarded: a delete by UID, a create by a name that says what it is, a directive and
a status by the version they were decided on. So doing it twice, or by two operators at once, does
no harm. The first error ends the pass; the next one looks again. Must never decide anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from rtj_api import contract

from rtj_operator.core import gangs
from rtj_operator.core.avoid import keep_off, shun
from rtj_operator.core.observed import JobKey, Observed, Rejection
from rtj_operator.core.plan import (
    CreatePod,
    CreateSpare,
    DeleteJob,
    DeletePod,
    FreePod,
    PatchDirective,
    Plan,
)
from rtj_operator.core.pod_facts import PodSettings
from rtj_operator.core.pods import desired_pod, desired_spare, labels_of
from rtj_operator.shell.api import ApiError, Cluster, Raw
from rtj_operator.shell.observe import World
from rtj_operator.shell.pod_views import controller_uid
from rtj_operator.shell.push import Pusher
from rtj_operator.shell.views import api_spec, owner_of

T = TypeVar("T")

# Answers that blame our request, not the moment. 404 on a create: the namespace is gone.
REFUSALS = frozenset({400, 403, 404, 405, 413, 422})


@dataclass(frozen=True, slots=True)
class Refused:
    """The API server took no such pod. Nothing of the pass went wrong otherwise."""

    pod: str
    rejection: Rejection


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the world looks like after the plan, as far as the answers tell."""

    world: World | None  # None: it must be read again
    created: tuple[str, ...] = ()
    written: tuple[Raw, ...] = ()  # pods as the API server returned them
    refused: tuple[Refused, ...] = ()


class Applier:
    """`clock` gives Unix seconds."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        settings: PodSettings,
        pusher: Pusher,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._pusher = pusher
        self._settings = settings
        self._clock = clock

    async def apply(self, plan: Plan, *, observed: Observed, world: World) -> Outcome:
        """Raises ApiError; a conflict means that the plan was made on an outdated view."""
        if plan.is_empty:
            return Outcome(world=world)
        if observed.job is None or world.job is None:
            return await self._last_words(plan, world=world)
        key, job = observed.job.key, world.job
        if plan.status is not None:
            stored = await self._cluster.put_status(
                key=key,
                uid=observed.job.uid,
                resource_version=observed.job.resource_version,
                status=plan.status.dump(),
            )
            return Outcome(world=world.with_job(stored))
        deletes = [a for a in plan.actions if isinstance(a, DeletePod)]
        creates = [a for a in plan.actions if isinstance(a, CreatePod | CreateSpare)]
        patches = [a for a in plan.actions if isinstance(a, PatchDirective)]
        frees = [a for a in plan.actions if isinstance(a, FreePod)]
        await _all(self._delete(key, action) for action in deletes)
        await _all(self._free(action, world=world) for action in frees)
        lacking = await self._group(job) if creates else None
        made: list[Raw | Refused] = (
            await _all(self._create(job, action) for action in creates)
            if lacking is None
            else [Refused(action.name, lacking) for action in creates]
        )
        pods = [pod for pod in made if not isinstance(pod, Refused)]
        refused = tuple(pod for pod in made if isinstance(pod, Refused))
        pods += await _all(self._patch(key, action) for action in patches)
        created = tuple(action.name for action in creates)
        for action in plan.actions:
            if isinstance(action, DeleteJob):
                await self._delete_job(key, action)
                return Outcome(world=None)
        if deletes or frees or refused:
            return Outcome(world=None, created=created, written=tuple(pods), refused=refused)
        return Outcome(world=world.with_pods(pods), created=created, written=tuple(pods))

    async def _last_words(self, plan: Plan, *, world: World) -> Outcome:
        """The job is gone: its pods, which follow, are told; whichever went first needs nothing."""
        for action in plan.actions:
            if isinstance(action, FreePod):
                await self._free(action, world=world)
            if not isinstance(action, PatchDirective):
                continue
            meta = world.pods[action.pod]["metadata"]
            key = JobKey(meta["namespace"], meta["labels"][contract.LABEL_JOB])
            try:
                await self._patch(key, action)
            except ApiError as error:
                if not error.is_not_found:
                    raise
        return Outcome(world=world)

    async def _delete(self, key: JobKey, action: DeletePod) -> None:
        try:
            await self._cluster.delete_pod(
                namespace=key.namespace,
                name=action.name,
                uid=action.uid,
                grace_seconds=0 if action.force else action.grace_seconds,
            )
        except ApiError as error:
            # 409: the name has another UID by now, so the one that we meant is gone.
            if not error.is_not_found and not error.is_conflict:
                raise

    async def _free(self, action: FreePod, *, world: World) -> None:
        meta = world.pods[action.name]["metadata"]
        kept = [f for f in meta.get("finalizers") or [] if f != gangs.QUEUE_FINALIZER]
        try:
            await self._cluster.set_pod_finalizers(
                namespace=meta["namespace"],
                name=action.name,
                resource_version=action.resource_version,
                finalizers=kept,
            )
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def _group(self, job: Raw) -> Rejection | None:
        """The gang's PodGroup is made, or made right, before any pod of it; else why it cannot."""
        spec = api_spec(job)
        ways = gangs.ways_to_apply(spec, owner=owner_of(job))
        if not ways:
            return None
        code, said = 404, ""
        for group in ways:
            try:
                await self._cluster.apply_group(group)
            except ApiError as error:
                if error.status not in REFUSALS and not _names_a_field(error):
                    raise
                if code == 404 or error.status != 404:
                    code, said = error.status, error.message
                if not gangs.is_worth_another_way(code=error.status, said=error.message):
                    break
            else:
                return None
        message = gangs.unavailable(spec, code=code, said=said)
        return Rejection(code=code, message=message, at=self._clock())

    async def _delete_job(self, key: JobKey, action: DeleteJob) -> None:
        try:
            await self._cluster.delete_job(
                key=key, uid=action.uid, resource_version=action.resource_version
            )
        except ApiError as error:
            if not error.is_not_found:
                raise

    def _manifest(self, job: Raw, action: CreatePod | CreateSpare) -> Raw:
        spec, owner, made_in = api_spec(job), owner_of(job), action.made_in
        if isinstance(action, CreateSpare):
            return desired_spare(
                spec, owner=owner, spare=action.spare, made_in=made_in, settings=self._settings
            )
        return desired_pod(
            spec, owner=owner, rank=action.rank, made_in=made_in, settings=self._settings
        )

    async def _create(self, job: Raw, action: CreatePod | CreateSpare) -> Raw | Refused:
        owner = owner_of(job)
        manifest = self._manifest(job, action)
        if isinstance(action, CreatePod):
            manifest = gangs.joined(manifest, api_spec(job), owner=owner, since=action.group_since)
            manifest = keep_off(manifest, action.avoid_nodes)
        manifest = shun(manifest, action.shun_nodes)
        try:
            return await self._cluster.create_pod(manifest)
        except ApiError as error:
            if error.is_conflict and error.reason == "AlreadyExists":
                return await self._existing(owner.namespace, action, job_uid=owner.uid)
            # 403 with "exceeded quota" or 409 Conflict of the quota's own object pass by
            # themselves; the rest does not. Both are paced by decide, and shown.
            if error.status in REFUSALS or error.is_conflict or _is_webhook(error):
                return self._refusal(action.name, code=error.status, message=error.message)
            raise

    async def _existing(
        self, namespace: str, action: CreatePod | CreateSpare, *, job_uid: str
    ) -> Raw | Refused:
        pod = await self._cluster.get_pod(namespace=namespace, name=action.name)
        if pod is None:
            raise ApiError(status=409, reason="Conflict", message=f"pod {action.name} just went")
        if controller_uid(pod) != job_uid:
            return self._refusal(
                action.name,
                code=409,
                message=f"a pod named {action.name} exists that is not of this job: remove it",
            )
        return pod

    def _refusal(self, pod: str, *, code: int, message: str) -> Refused:
        return Refused(pod, Rejection(code=code, message=message, at=self._clock()))

    async def _patch(self, key: JobKey, action: PatchDirective) -> Raw:
        text = self._pusher.stamped(action.directive)
        pod = await self._cluster.annotate_pod(
            namespace=key.namespace,
            name=action.pod,
            resource_version=action.resource_version,
            annotations={contract.ANNOTATION_DIRECTIVE: text},
            labels=labels_of(action.directive.rank) if action.labels_rank else {},
        )
        self._pusher.push(text, pod=pod)
        return pod


def _is_webhook(error: ApiError) -> bool:
    """A webhook that does not answer, with failurePolicy: Fail. It looks like a fault of the API
    server, and lasts until somebody mends that webhook: people must read of it."""
    return error.status == 500 and "failed calling webhook" in error.message


def _names_a_field(error: ApiError) -> bool:
    """A field that the kind does not have: a server-side apply answers with 500, as if the server
    were at fault, and would do so for ever."""
    return error.status == 500 and "field not declared in schema" in error.message


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """All at once; every one is waited for, then the first error is raised.

    A transient error goes before a conflict: back off rather than ask again at once.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    errors = [r for r in results if isinstance(r, BaseException)]
    for error in errors:
        if not (isinstance(error, ApiError) and error.is_conflict):
            raise error
    if errors:
        raise errors[0]
    return [r for r in results if not isinstance(r, BaseException)]
