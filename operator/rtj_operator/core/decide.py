"""`decide`: what to do about one job, from what one pass saw.

A short list of named rules, the first that has an answer wins. Each rule is a function of the
gang; its docstring is its row in docs/decisions.md. A rule either records a decision in status or
converges the world to recorded decisions, never both; so a crash between any two writes finds the
same way on. Total, deterministic, indifferent to the order of pods. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rtj_operator.core import (
    bisecting,
    clocks,
    deadlines,
    decide_fault,
    decide_life,
    decide_owner,
    decide_run,
    decide_wish,
    scaling,
    stopping,
    storemode,
    straggling,
    suspecting,
)
from rtj_operator.core.absorb import absorbed
from rtj_operator.core.endings import farewells
from rtj_operator.core.gang import Alarm, Gang, gather
from rtj_operator.core.observed import Observed
from rtj_operator.core.plan import Plan
from rtj_operator.core.policy import Policy

Rule = Callable[[Gang], Plan | None]

RULES: tuple[Rule, ...] = (
    clocks.clock,
    decide_wish.wish,
    deadlines.expired,
    decide_life.finished,
    decide_life.refused,
    decide_run.success,
    deadlines.deadline,
    decide_life.suspend,
    decide_life.held,
    decide_life.first_attempt,
    decide_owner.permit,
    stopping.stop,
    scaling.shrink,
    decide_fault.fault,
    decide_owner.steer,
    suspecting.proved,
    bisecting.passed,
    decide_run.undrained,
    decide_run.template_changed,
    scaling.grow,
    straggling.straggler,
    storemode.mode,
    storemode.let_go,
    decide_run.choose,
    decide_run.converge,
    decide_run.refresh,
)


def decide(observed: Observed, policy: Policy | None = None) -> Plan:
    """The plan of one pass. Never raises for anything that `Observed` can hold."""
    policy = policy or Policy()
    job = observed.job
    if job is None:
        return Plan(
            rule="absent",
            why="the job is gone; its pods follow by garbage collection",
            actions=farewells(observed.older_pods),
        )
    if job.managed_elsewhere is not None:
        return Plan(
            rule="managed_elsewhere",
            why=f"spec.managedBy is {job.managed_elsewhere}: that controller looks after the job",
        )
    if job.deleting and job.leaves_pods:
        return Plan(
            rule="deleting",
            why="the job is being deleted without its pods: they are left as they are",
        )
    if job.deleting:
        return Plan(
            rule="deleting",
            why="the job is being deleted; its pods follow",
            actions=farewells(observed.pods),
        )
    if job.spec is None:
        return decide_life.unreadable(job, now=observed.now, policy=policy)
    alarm = Alarm(observed.now)
    gang = gather(observed, policy=policy, alarm=alarm, status=job.status)
    gang = replace(gang, status=absorbed(gang))
    for rule in RULES:
        plan = rule(gang)
        if plan is not None:
            return replace(plan, wake_at=_wake_at(gang, plan))
    return Plan(
        rule="settled",
        why="the world is as recorded",
        wake_at=_wake_at(gang, None),
    )


def _wake_at(gang: Gang, plan: Plan | None) -> float | None:
    """The earliest awaited moment. A job that is over and clean awaits nothing."""
    if gang.status.is_terminal and gang.alarm.at is None and (plan is None or plan.is_empty):
        return None if not gang.observed.pods else gang.now + gang.policy.look_again_seconds
    safety = gang.now + gang.policy.look_again_seconds
    return safety if gang.alarm.at is None else min(gang.alarm.at, safety)
