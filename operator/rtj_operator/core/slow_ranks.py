"""Which ranks all others wait for, by what each tells of its own work; told in a condition.

Pure.
"""

from __future__ import annotations

from rtj_api.reasons import Reason
from rtj_api.rules.straggler import stragglers

from rtj_operator.core.gang import Gang


def step_seconds(gang: Gang) -> dict[int, float]:
    """By rank: its own work in a step of this attempt, where its trainer tells it."""
    return {
        m.rank: m.report.progress.step_seconds
        for m in gang.members
        if m.report is not None
        and m.report.progress.step_seconds is not None
        and m.report.trainer.attempt == gang.attempt
    }


def troubles(gang: Gang) -> list[tuple[str, str]]:
    """For the condition Degraded. No figures: they move."""
    slow = gang.status.straggling.slow if gang.status.straggling is not None else None
    known = (slow.rank,) if slow is not None and slow.attempt == gang.attempt else ()
    ranks = stragglers(step_seconds(gang), known=known)[:8]
    if not ranks:
        return []
    where = ", ".join(f"{rank} on {pod.node}" for rank in ranks if (pod := gang.members[rank].pod))
    return [(Reason.RANK_SLOW, f"all other ranks wait for rank {where}: its steps take longer")]
