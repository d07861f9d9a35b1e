"""Ready-made observations of a gang, and small changes to them.

A running gang is taken from the simulation, so that its status, directives and reports agree the
way they do in life; tests then change one thing and look at what `decide` makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rtj_api import wire
from rtj_operator.core.decide import decide
from rtj_operator.core.observed import JobSpec, Observed, PodView, ReportView
from rtj_operator.core.plan import Plan

from kit.scenarios import SCENARIOS
from kit.simulated import World
from kit.simulated_operator import Operator


def running(**spec: Any) -> Observed:
    """Two ranks that train in attempt 1, at rest: `decide` wants nothing."""
    story = SCENARIOS["first_start"]
    operator = replace(story, spec=spec).run()
    operator.run(2)
    observed = operator.world.observe()
    assert decide(observed).is_empty
    return observed


def new_job(**spec: Any) -> World:
    return World(spec=JobSpec(replicas=2, run_id="ns/gpt", template_hash="h1", **spec))


def started(world: World) -> Operator:
    operator = Operator(world)
    operator.run_until(lambda: world.state.is_started)
    return operator


def later(observed: Observed, seconds: float) -> Observed:
    return replace(observed, now=observed.now + seconds)


def with_pod(observed: Observed, rank: int, **fields: Any) -> Observed:
    """Rank `rank`'s pod with other fields."""
    pods = tuple(replace(p, **fields) if p.rank == rank else p for p in observed.pods)
    return replace(observed, pods=pods)


def without_pod(observed: Observed, rank: int) -> Observed:
    return replace(observed, pods=tuple(p for p in observed.pods if p.rank != rank))


def pod_of(observed: Observed, rank: int) -> PodView:
    return next(p for p in observed.pods if p.rank == rank)


def with_view(observed: Observed, rank: int, **fields: Any) -> Observed:
    """What is known of rank `rank`'s sidecar, with other fields."""
    uid = pod_of(observed, rank).uid
    return replace(
        observed, reports={**observed.reports, uid: replace(observed.reports[uid], **fields)}
    )


def with_report(
    observed: Observed, rank: int, change: Callable[[wire.Report], wire.Report]
) -> Observed:
    view: ReportView = observed.reports[pod_of(observed, rank).uid]
    assert view.report is not None
    return with_view(observed, rank, report=change(view.report))


def with_exit(observed: Observed, rank: int, *, at: float | None = None, **ended: Any) -> Observed:
    """Rank `rank`'s trainer has ended; `ended` are fields of wire.TrainerView."""
    moment = observed.now - 0.01 if at is None else at

    def change(report: wire.Report) -> wire.Report:
        fields = {"state": wire.TrainerState.EXITED, "ended_at": moment, **ended}
        return report.model_copy(
            update={
                "phase": wire.SidecarPhase.EXITED,
                "trainer": report.trainer.model_copy(update=fields),
            }
        )

    return with_report(observed, rank, change)


def with_job(observed: Observed, **fields: Any) -> Observed:
    assert observed.job is not None
    return replace(observed, job=replace(observed.job, **fields))


def applied(observed: Observed, plan: Plan) -> Observed:
    """The same observation after the plan's status write."""
    assert plan.status is not None
    assert observed.job is not None
    version = str(int(observed.job.resource_version) + 1)
    return with_job(observed, status=plan.status, resource_version=version)
