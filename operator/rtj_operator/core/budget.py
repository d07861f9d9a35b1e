"""How many restarts a job has left, and how long the next one waits.

Budgets count since the last durable progress: work that reached the store refills them. Causes
in the infrastructure are free but paced, each kind by its own count. Pure arithmetic on
status.budgets; whoever writes the result does so in the guarded status write.
"""

from __future__ import annotations

from rtj_api.reasons import Charge
from rtj_api.status import Budgets

from rtj_operator.core.observed import JobSpec

JITTER_SHARE = 0.25


def delay_seconds(count: int, *, spec: JobSpec, jitter: float = 0.0) -> float:
    """Back-off before a restart when `count` of its kind came since the last durable progress.

    The first is immediate; then initial, 2 × initial, 4 × … up to the maximum, each shortened by
    up to a quarter. `jitter`: 0 (nothing) to 1; jobs that failed together come back apart.
    """
    if count <= 0:
        return 0.0
    # 2**60 seconds is beyond any maximum: no overflow however long a job fails.
    whole = min(spec.backoff_max_seconds, spec.backoff_initial_seconds * 2.0 ** min(count - 1, 60))
    return whole * (1.0 - JITTER_SHARE * jitter)


def delay_for(
    charge: Charge, *, budgets: Budgets, spec: JobSpec, started: bool, jitter: float = 0.0
) -> float:
    """The back-off of the next try after a fault with that charge.

    `started`: the attempt that failed had passed the point of no return; else nothing trained,
    and its own, uncounted pace applies.
    """
    if charge == Charge.INTENT:
        return 0.0
    count = budgets.infrastructure_since_progress
    if not started:
        count = budgets.uncounted_since_progress
    elif charge == Charge.USER:
        count = budgets.restarts_since_progress
    return delay_seconds(count, spec=spec, jitter=jitter)


def is_spent(budgets: Budgets, *, spec: JobSpec) -> bool:
    """No restart for a fault of the job's own is left."""
    return budgets.restarts_since_progress >= spec.max_restarts


def next_budgets_at_start(budgets: Budgets, *, charge: Charge, spec: JobSpec) -> Budgets:
    """Counts a start at the point of no return."""
    update: dict[str, int] = {"limit": spec.max_restarts}
    if charge == Charge.USER:
        update["restarts_since_progress"] = budgets.restarts_since_progress + 1
    elif charge in (Charge.INFRASTRUCTURE, Charge.CHECKPOINT):
        update["infrastructure_since_progress"] = budgets.infrastructure_since_progress + 1
    return budgets.model_copy(update=update)


def next_budgets_at_try(budgets: Budgets) -> Budgets:
    """Counts a try that ended before any trainer started: free, but paced."""
    count = budgets.uncounted_since_progress + 1
    return budgets.model_copy(update={"uncounted_since_progress": count})


def next_budgets_at_progress(budgets: Budgets, *, step: int | None) -> Budgets:
    """Newly durable work refills everything."""
    return Budgets(limit=budgets.limit, progress_step=step)
