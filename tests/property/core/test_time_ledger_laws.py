"""The ledger over statuses and moments in any order: it always sums, and nothing ever falls."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.drawn import observations
from kit.simulated_laws import keeps_time
from rtj_api.status import Status
from rtj_operator.core import time_ledger
from rtj_operator.core.observed import Observed

laws = settings(max_examples=40, deadline=None)
CREATED = 1000.0


@laws
@given(st.lists(observations(), min_size=2, max_size=5), st.data())
def test_it_sums_and_never_falls_whatever_is_written(
    seen: list[Observed], data: st.DataObject
) -> None:
    ledger = None
    for observed, decided in pairwise(seen):
        assert observed.job is not None
        assert decided.job is not None
        before = observed.job.status.model_copy(update={"ledger": ledger})
        kind = data.draw(st.sampled_from(["refresh", "decision"]))
        after = before if kind == "refresh" else decided.job.status
        now = observed.now + data.draw(st.sampled_from([-3600.0, -1.5, 0.0, 0.001, 7.25, 86400.0]))
        found = time_ledger.settled(before, after, now=now, created_at=CREATED)
        keeps_time(ledger, found)
        written = after.model_copy(update={"ledger": found})
        ledger = Status.model_validate(written.dump()).ledger
        assert ledger == found, "what is written is what was found"


@laws
@given(observations(), st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_look_between_two_writes_shows_no_more_than_the_next_write(
    observed: Observed, first: float, then: float
) -> None:
    assert observed.job is not None
    status, now = observed.job.status, observed.now
    early, late = sorted((first, then))
    begun = time_ledger.settled(status, status, now=now, created_at=CREATED)
    status = status.model_copy(update={"ledger": begun})
    look = time_ledger.settled(status, status, now=now + early)
    keeps_time(begun, look)
    keeps_time(look, time_ledger.settled(status, status, now=now + late))
