"""The one loop: take a job, observe, decide, apply, and say when to look again.

The only place that catches errors of a pass. Whatever happens, the job is looked at again: after
a back-off, at the plan's own time, or within minutes at the latest. One JSON line a plan says
what was decided, by which rule, on what evidence and why. Must never hold anything between two
passes that the next could not do without.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from rtj_operator.core.observed import JobKey, Observed
from rtj_operator.core.plan import (
    Action,
    CreatePod,
    CreateSpare,
    DeleteJob,
    DeletePod,
    FreePod,
    PatchDirective,
    Plan,
)
from rtj_operator.shell.api import ApiError, Raw
from rtj_operator.shell.apply import Applier
from rtj_operator.shell.events import Recorder
from rtj_operator.shell.observe import Observer, World
from rtj_operator.shell.queue import KeyQueue

log = logging.getLogger(__name__)

RESYNC_SECONDS = 300.0
# One turn may write a decision and then carry it out, without reading in between.
MAX_PLANS_A_TURN = 8
# Nothing was decided: status shows newer progress.
QUIET_RULES = frozenset({"refresh"})
UNSETTLED_SECONDS = 0.5
SHORTEST_WAIT_SECONDS = 0.02

Decide = Callable[[Observed], Plan]


class Watcher(Protocol):
    """Who is told how passes went: metrics."""

    def job_seen(self, key: JobKey, job: Raw | None) -> None:
        """The job as it now is in the API server; None: it is gone."""
        ...

    def observed(self, observed: Observed) -> None: ...

    def pods_written(self, pods: Sequence[Raw]) -> None:
        """These pods are now as given, by our own doing."""
        ...

    def pass_ended(self, *, result: str, seconds: float) -> None:
        """result: ok, conflict, retry or error."""
        ...

    def decided(self, key: JobKey, plan: Plan) -> None: ...


class Reconciler:
    def __init__(
        self,
        *,
        queue: KeyQueue[JobKey],
        observer: Observer,
        applier: Applier,
        decide: Decide,
        recorder: Recorder,
        watcher: Watcher,
    ) -> None:
        self._queue = queue
        self._observer = observer
        self._applier = applier
        self._decide = decide
        self._recorder = recorder
        self._watcher = watcher

    async def work(self) -> None:
        """One worker. Any number may run: the queue gives a job to one at a time."""
        while True:
            key = await self._queue.get()
            await self.turn(key)

    async def turn(self, key: JobKey) -> None:
        """One job, until there is nothing left to do at once. Never raises."""
        began = time.monotonic()
        result = "ok"
        try:
            wake_after = await self._converge(key)
            if wake_after is None:
                self._queue.forget(key)
            self._queue.done(key)
            if wake_after is not None:
                self._queue.add_after(key, wake_after)
        except asyncio.CancelledError:
            self._queue.done(key)
            raise
        except ApiError as error:
            result = "conflict" if error.is_conflict else "retry"
            delay = self._queue.retry(key, after=error.retry_after)
            level = logging.DEBUG if error.is_conflict else logging.WARNING
            log.log(
                level, "pass ended early", extra={"job": str(key), "why": str(error), "in": delay}
            )
        except Exception:
            result = "error"
            delay = self._queue.retry(key, after=5)
            log.exception("pass failed: a defect", extra={"job": str(key), "in": delay})
        self._watcher.pass_ended(result=result, seconds=time.monotonic() - began)

    async def _converge(self, key: JobKey) -> float | None:
        """Seconds until the next look; None: never, the job is gone."""
        world: World | None = None
        for _ in range(MAX_PLANS_A_TURN):
            began = time.monotonic()
            if world is None or not self._observer.is_fresh(world):
                world = await self._observer.read(key)
            self._watcher.job_seen(key, world.job)
            observed = await self._observer.observe(key, world)
            if observed.job is None:
                plan = self._decide(observed)
                if not plan.is_empty:
                    await self._carry_out(key, plan, observed=observed, world=world)
                return None
            self._watcher.observed(observed)
            plan = self._decide(observed)
            self._queue.spent(key, time.monotonic() - began)
            if plan.is_empty:
                return _until(plan, now=observed.now)
            world = await self._carry_out(key, plan, observed=observed, world=world)
        log.warning("not settled after many plans", extra={"job": str(key)})
        return UNSETTLED_SECONDS

    async def _carry_out(
        self, key: JobKey, plan: Plan, *, observed: Observed, world: World
    ) -> World | None:
        began = time.monotonic()
        outcome = await self._applier.apply(plan, observed=observed, world=world)
        self._watcher.pods_written(outcome.written)
        for name in outcome.created:
            self._observer.accepted(key, pod=name)
        for refused in outcome.refused:
            self._observer.rejected(key, pod=refused.pod, rejection=refused.rejection)
        self._watcher.decided(key, plan)
        _log_plan(key, plan, observed=observed, seconds=time.monotonic() - began)
        if world.job is not None:
            for note in plan.notes:
                self._recorder.post(world.job, note)
        if outcome.world is not None:
            self._watcher.job_seen(key, outcome.world.job)
        return outcome.world


def _until(plan: Plan, *, now: float) -> float:
    resync = RESYNC_SECONDS * random.uniform(0.8, 1.0)
    return (
        resync
        if plan.wake_at is None
        else max(min(plan.wake_at - now, resync), SHORTEST_WAIT_SECONDS)
    )


def _log_plan(key: JobKey, plan: Plan, *, observed: Observed, seconds: float) -> None:
    status = plan.status
    log.log(
        logging.DEBUG if plan.rule in QUIET_RULES else logging.INFO,
        "decided" if status is not None else "acted",
        extra={
            "job": str(key),
            "uid": observed.job.uid if observed.job else None,
            "attempt": (
                status.attempt
                if status is not None
                else (observed.job.status.attempt if observed.job else None)
            ),
            "rule": plan.rule,
            "why": plan.why,
            "evidence": dict(plan.evidence),
            "actions": [_brief(action) for action in plan.actions],
            "apply_seconds": round(seconds, 4),
            "since_observed_seconds": round(time.time() - observed.now, 4),
        },
    )


def _brief(action: Action) -> str:
    match action:
        case CreatePod() | CreateSpare():
            return f"create {action.name}"
        case DeletePod():
            return f"delete {action.name}{' by force' if action.force else ''}"
        case FreePod():
            return f"take the queue's finalizer off {action.name}"
        case DeleteJob():
            return "delete the job"
        case PatchDirective():
            order = action.directive
            return f"direct {action.pod}: attempt {order.attempt} {order.phase}"
