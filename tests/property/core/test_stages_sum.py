"""The stages of an attempt sum to the time from the fault, whatever the clocks and the looks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from rtj_api.status import CurrentAttempt, Phases, RestartKind, ResumeDecision
from rtj_operator.core.ledger import phases_of

MOMENTS = ("detected_at", "not_before", "scheduled_at", "restored_at", "training_at")
moment = st.integers(0, 10_000).map(lambda n: 1000.0 + n / 100)


def attempt(*, kind: RestartKind = RestartKind.REPLACE, **moments: float | None) -> CurrentAttempt:
    return CurrentAttempt(attempt=2, kind=kind, cause="PodDeleted", **moments)


def phases(current: CurrentAttempt) -> Phases:
    """Of an attempt whose save was chosen at the moment when all ranks were prepared."""
    return phases_of(current, resume=ResumeDecision(attempt=2, at=current.prepared_at))


@settings(deadline=None)
@given(
    fault_at=moment,
    recorded_at=moment,
    chosen_at=moment,
    first_step_at=moment,
    others=st.fixed_dictionaries({name: st.none() | moment for name in MOMENTS}),
)
def test_the_stages_sum_to_the_whole(
    fault_at: float,
    recorded_at: float,
    chosen_at: float,
    first_step_at: float,
    others: dict[str, float | None],
) -> None:
    current = attempt(
        fault_at=fault_at,
        recorded_at=recorded_at,
        prepared_at=chosen_at,
        first_step_at=first_step_at,
        **others,
    )
    spans = phases(current).model_dump(exclude_none=True).values()
    assert all(span >= 0 for span in spans)
    assert abs(sum(spans) - max(0.0, first_step_at - fault_at)) < 1e-4


def test_a_restore_that_was_noted_late_takes_nothing_from_the_start() -> None:
    """The go is written in the pass that sees all restored; status is written in a later one."""
    current = attempt(
        fault_at=10.0,
        detected_at=10.5,
        recorded_at=10.5,
        scheduled_at=11.0,
        prepared_at=12.0,
        restored_at=14.0,
        training_at=13.0,
        first_step_at=13.5,
    )
    found = phases(current)
    assert (found.restore, found.start, found.warm_up) == (1.0, 0.0, 0.5)


def test_kept_pods_wait_out_the_back_off() -> None:
    current = attempt(
        kind=RestartKind.IN_PLACE,
        fault_at=10.0,
        detected_at=10.0,
        recorded_at=10.0,
        not_before=20.0,
        scheduled_at=10.1,
        prepared_at=21.0,
    )
    found = phases(current)
    assert (found.back_off, found.schedule, found.prepare) == (10.0, 0.0, 1.0)
