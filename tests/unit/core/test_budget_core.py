"""Budgets and back-off."""

from __future__ import annotations

import pytest
from rtj_api.reasons import Charge
from rtj_api.status import Budgets
from rtj_operator.core import budget
from rtj_operator.core.observed import JobSpec

SPEC = JobSpec(replicas=1, run_id="r", template_hash="h", max_restarts=3)


@pytest.mark.parametrize(
    ("count", "seconds"),
    [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (9, 256), (10, 300), (11, 300), (10_000, 300)],
)
def test_the_first_restart_is_immediate_then_it_doubles(count: int, seconds: float) -> None:
    assert budget.delay_seconds(count, spec=SPEC) == seconds


@pytest.mark.parametrize(
    ("charge", "started", "expected"),
    [
        (Charge.USER, True, 4),
        (Charge.INFRASTRUCTURE, True, 2),
        (Charge.CHECKPOINT, True, 2),
        (Charge.USER, False, 1),
        (Charge.INFRASTRUCTURE, False, 1),
        (Charge.INTENT, True, 0),
        (Charge.INTENT, False, 0),
    ],
)
def test_each_kind_has_its_own_pace(charge: Charge, started: bool, expected: float) -> None:
    budgets = Budgets(
        restarts_since_progress=3, infrastructure_since_progress=2, uncounted_since_progress=1
    )
    assert budget.delay_for(charge, budgets=budgets, spec=SPEC, started=started) == expected


@pytest.mark.parametrize(
    ("charge", "user", "infrastructure"),
    [
        (Charge.USER, 1, 0),
        (Charge.INFRASTRUCTURE, 0, 1),
        (Charge.CHECKPOINT, 0, 1),
        (Charge.INTENT, 0, 0),
        (Charge.NONE, 0, 0),
    ],
)
def test_only_the_jobs_own_faults_use_its_budget(
    charge: Charge, user: int, infrastructure: int
) -> None:
    after = budget.next_budgets_at_start(Budgets(), charge=charge, spec=SPEC)
    assert after.restarts_since_progress == user
    assert after.infrastructure_since_progress == infrastructure
    assert after.limit == 3


def test_durable_progress_refills_everything() -> None:
    tired = Budgets(
        limit=3,
        restarts_since_progress=3,
        infrastructure_since_progress=7,
        in_place_failures=2,
        uncounted_since_progress=5,
        progress_step=4,
    )
    assert budget.is_spent(tired, spec=SPEC)
    fresh = budget.next_budgets_at_progress(tired, step=8)
    assert fresh == Budgets(limit=3, progress_step=8)
    assert not budget.is_spent(fresh, spec=SPEC)
