"""Whose a run is: fences claimed, taken, passed over and released, and the parent of an attempt."""

from __future__ import annotations

import pytest
from kit.memory_store import MemoryStore
from kit.ranks import (
    SCRATCH,
    Ranks,
    claimed,
    shipped,
)
from rtj_sidecar.runs.fence import Claimed, Done, FenceTaken, OwnedByOther, Superseded
from rtj_sidecar.runs.keeping import Keep
from rtj_sidecar.runs.records import Outcome, Parent
from rtj_sidecar.stores.base import StoreProblem


def test_the_run_of_another_job(ranks: Ranks) -> None:
    mine, other = ranks(0), ranks(0, job="other")
    fence = claimed(mine, 1, parent=SCRATCH)
    seen = other.run.claim(attempt=1, world_size=2)
    assert isinstance(seen, OwnedByOther)
    assert (seen.owner, seen.fence, seen.complete) == ("cluster/job", 1, False)
    assert seen.record.owner == "cluster/job"
    strange = other.run.claim(attempt=1, world_size=2, may_claim=True, over="cluster/third")
    assert isinstance(strange, OwnedByOther), "only the owner that was named is claimed over"
    mine.run.set_outcome(fence=fence, outcome=Outcome.COMPLETE)
    assert mine.run.history().complete
    done = other.run.claim(attempt=1, world_size=2)
    assert isinstance(done, OwnedByOther)
    assert done.complete
    taken = other.run.claim(attempt=1, world_size=2, may_claim=True, over="cluster/job")
    assert isinstance(taken, Claimed)
    assert taken.fence == 2
    assert isinstance(mine.run.claim(attempt=2, world_size=2), OwnedByOther)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.RELEASED])
def test_a_released_run_may_be_claimed(ranks: Ranks, outcome: Outcome) -> None:
    fence = claimed(ranks(0), 1, parent=SCRATCH)
    ranks(0).run.set_outcome(fence=fence, outcome=outcome)
    assert isinstance(ranks(0, job="other").run.claim(attempt=1, world_size=2), Claimed)


def test_claiming_twice_for_one_attempt_is_once(ranks: Ranks) -> None:
    assert claimed(ranks(0), 1) == claimed(ranks(0), 1) == 1


def test_the_fast_path_claims_exactly_the_next(ranks: Ranks) -> None:
    zero = ranks(0)
    held = claimed(zero, 1, parent=SCRATCH)
    shipped(zero, held, 1, 10)
    parent = Parent(name="f1-n1-s10", step=10)
    got = zero.run.claim_next(held=held, attempt=2, world_size=2, parent=parent)
    assert isinstance(got, Claimed)
    assert (got.fence, got.record.parent) == (2, parent)
    again = zero.run.claim_next(held=held, attempt=2, world_size=2, parent=parent)
    assert isinstance(again, Claimed)
    claimed(ranks(0), 4)
    late = zero.run.claim_next(held=held, attempt=2, world_size=2, parent=parent)
    assert late == FenceTaken(3, "cluster/job")


def test_a_late_claim_of_an_older_attempt_of_the_same_job_is_passed_over(ranks: Ranks) -> None:
    zero = ranks(0)
    held = claimed(zero, 1, parent=SCRATCH)
    shipped(zero, held, 1, 10)
    claimed(ranks(0), 2)  # its prepare was overtaken while the store was slow
    parent = Parent(name="f1-n1-s10", step=10)
    got = zero.run.claim_next(held=held, attempt=3, world_size=2, parent=parent)
    assert isinstance(got, Claimed)
    assert (got.fence, got.record.attempt) == (3, 3)
    zombie = ranks(0)
    assert isinstance(zombie.run.claim(attempt=2, world_size=2), Superseded)
    assert isinstance(
        zombie.run.claim_next(held=held, attempt=2, world_size=2, parent=parent), FenceTaken
    )
    assert [c.name for c in zero.run.candidates(zero.run.history())] == ["f1-n1-s10"]


def test_the_fast_path_never_passes_over_another_jobs_fence(ranks: Ranks) -> None:
    zero = ranks(0)
    held = claimed(zero, 1, parent=SCRATCH)
    claimed(ranks(0), 2)
    taken = ranks(0, job="other").run.claim(attempt=1, world_size=2, may_claim=True)
    assert isinstance(taken, Claimed)
    parent = Parent(scratch=True)
    got = zero.run.claim_next(held=held, attempt=3, world_size=2, parent=parent)
    assert got == FenceTaken(3, "cluster/other")


def test_a_parent_is_set_once(ranks: Ranks) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    assert isinstance(zero.run.set_parent(fence=fence, parent=SCRATCH), Done)
    with pytest.raises(StoreProblem, match="a new attempt needs its own fence"):
        zero.run.set_parent(fence=fence, parent=Parent(name="f1-n1"))


def test_the_same_parent_said_again_after_a_crash_is_done_and_keeps_its_position(
    ranks: Ranks,
) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1)
    known = Parent(name="f1-n1-s10", step=10)
    assert isinstance(zero.run.set_parent(fence=fence, parent=known), Done)
    forgot = Parent(name="f1-n1-s10")
    assert isinstance(zero.run.set_parent(fence=fence, parent=forgot), Done)
    record = zero.run.history().fence(fence)
    assert record is not None
    assert record.parent == known


def test_a_listing_without_the_held_fence_proves_no_loss(ranks: Ranks) -> None:
    store = MemoryStore()
    zero = ranks(0, store=store)
    old = claimed(zero, 1, parent=SCRATCH)
    fence = claimed(zero, 2, parent=SCRATCH)
    listed = store.list
    for seen in (lambda _: iter(()), lambda p: (f for f in listed(p) if str(fence) not in f.key)):
        store.list = seen  # type: ignore[method-assign]
        for ask in (
            lambda: zero.run.held(fence),
            lambda: zero.run.set_parent(fence=fence, parent=SCRATCH),
            lambda: zero.run.tending.retain(fence=fence, keep=Keep(last=1)),
        ):
            with pytest.raises(StoreProblem, match="as the highest") as raised:
                ask()
            assert raised.value.transient
    store.list = listed  # type: ignore[method-assign]
    assert zero.run.held(fence)
    assert not zero.run.held(old)
