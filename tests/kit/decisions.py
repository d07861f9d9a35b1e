"""Moments of one decision: what the operator sees just before, and what is read out of its plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rtj_api import wire
from rtj_api.status import Status
from rtj_operator.core.observed import JobView, Observed
from rtj_operator.core.plan import Plan

from kit.observations import new_job, with_job, with_report
from kit.simulated_operator import Operator


def prepared(*, spec: dict[str, Any] | None = None, **report: Any) -> Observed:
    """Attempt 1, all ranks prepared, nothing chosen; rank 0's report with these fields."""
    world = new_job(**(spec or {}))
    operator = Operator(world)

    def ready() -> bool:
        pods = list(world.pods.values())
        return len(pods) == 2 and all(p.machine == wire.SidecarPhase.PREPARED for p in pods)

    while not ready():
        operator.world.tick()
        if not ready() and world.hint:
            operator.run_pass()
    return with_report(world.observe(), 0, updated(**report))


def updated(**fields: Any) -> Callable[[wire.Report], wire.Report]:
    return lambda report: report.model_copy(update=fields)


def asked(observed: Observed, action: wire.RequestAction, **fields: Any) -> Observed:
    return with_job(observed, request=wire.Request(**{"id": "1", "action": action} | fields))


def status_of(plan: Plan) -> Status:
    assert plan.status is not None, plan
    return plan.status


def job_of(observed: Observed) -> JobView:
    assert observed.job is not None
    return observed.job
