"""What a recovery writes to the API server, from the record of its attempt until its first step is
shown: pods + 2 on the fast path, else 3 × pods + 4, in the named stories.

Counted are directives, pods made and removed, and status; not what spares cost, which wait for the
next fault. The 4 are three writes of status and one pod made: each further pod that is made, or
that the operator has to remove, costs its own write. So does what must be shown while a recovery
is under way: a save that becomes durable, a pod that finds no place, ten seconds that pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from kit.scenarios import SCENARIOS
from kit.scenarios_of_leaving import LEAVINGS
from kit.scenarios_of_scaling import SCALINGS
from kit.scenarios_of_spares import SPARES
from kit.scenarios_of_trouble import TROUBLES
from rtj_api.status import Status
from rtj_operator.core.plan import CreatePod, CreateSpare, DeletePod, Plan

STORIES = {**SCENARIOS, **TROUBLES, **LEAVINGS, **SPARES, **SCALINGS}

# What has to be shown on their way.
SHOWN = {
    "begins_small": "pods find no place",
    "bisected": "from where it goes on is recorded",
    "cannot_shrink": "a pod finds no place",
    "crashes_while_small": "a pod finds no place",
    "drained_at_a_step": "the last save of the pod that ends becomes durable",
    "loses_rank_zero": "a pod finds no place",
    "spare_gives_way": "a pod finds no place",
    "spot_notice": "the last save of the pod that ends becomes durable",
    "trouble_follows_the_program": "from where it goes on is recorded",
}


@dataclass(frozen=True, slots=True)
class Recovery:
    """One attempt after the first start. `plans`: from its record to its first step shown."""

    attempt: int
    pods: int
    is_fast: bool
    plans: tuple[Plan, ...]

    @property
    def pods_moved(self) -> int:
        kinds = (CreatePod, DeletePod)
        return sum(isinstance(a, kinds) for p in self.plans for a in p.actions)

    @property
    def writes(self) -> int:
        actions = sum(not isinstance(a, CreateSpare) for p in self.plans for a in p.actions)
        return actions + sum(p.status is not None for p in self.plans)

    @property
    def budget(self) -> int:
        moved = self.pods_moved
        return self.pods + 2 + moved if self.is_fast else 3 * self.pods + 3 + max(1, moved)


def recoveries(plans: list[Plan]) -> Iterator[Recovery]:
    """Those that came to a first step in the attempt that was recorded for the fault."""
    begun: list[Plan] = []
    last: Status | None = None
    for plan in plans:
        status = plan.status
        if status is not None and (last is None or status.attempt != last.attempt):
            begun = []
        begun.append(plan)
        if status is None:
            continue
        last, current = status, status.current
        if current is None or current.first_step_at is None or status.attempt == 1 or not begun:
            continue
        if begun[0].status is not None and begun[0].status.current.first_step_at is None:
            is_fast = status.resume is not None and status.resume.fast
            yield Recovery(status.attempt, len(status.placements), is_fast, tuple(begun))
        begun = []


@pytest.mark.parametrize("name", sorted(STORIES.keys() - SHOWN.keys()))
def test_a_recovery_writes_no_more_than_its_budget(name: str) -> None:
    for found in recoveries(STORIES[name].run().plans):
        rules = [p.rule for p in found.plans if p.status is not None or p.actions]
        assert found.writes <= found.budget, f"attempt {found.attempt}: {rules}"


def test_a_fast_recovery_writes_its_decision_each_directive_and_its_proof() -> None:
    (found,) = recoveries(SCENARIOS["crash_in_place"].run().plans)
    assert found.is_fast
    assert (found.writes, found.budget) == (4, 4)
