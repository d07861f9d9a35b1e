"""A store that ignores conditional writes: what numbers of attempts and second looks keep apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kit.memory_store import MemoryStore
from kit.ranks import SCRATCH, Rank, all_ranks_have_a_shard, claimed, facts, named, shipped
from kit.run_writer import run_of
from kit.s3 import S3Server, s3_server
from kit.s3_quirks import Quirk, gateway
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.conditions import APART
from rtj_sidecar.runs.fence import Claimed, FenceLost, FenceTaken, OwnedByOther, Superseded
from rtj_sidecar.runs.records import MarkKind, Outcome, Parent
from rtj_sidecar.stores.base import Store
from rtj_sidecar.stores.open import open_store

Pods = Callable[..., Rank]
Meanwhile = Callable[[float], None]


def careless() -> MemoryStore:
    store = MemoryStore()
    store.honours_conditions = False
    return store


def no_pause(_: float) -> None:
    return None


@pytest.fixture
def pods(tmp_path: Path) -> Pods:
    def make(
        store: Store, rank: int = 0, *, job: str = "job", meanwhile: Meanwhile = no_pause
    ) -> Rank:
        run = run_of(
            store, job_uid=job, rank=rank, union_gate=all_ranks_have_a_shard, pause=meanwhile
        )
        return Rank(run, rank, tmp_path / f"{job}{rank}")

    return make


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.mark.parametrize("quirk", [Quirk.IGNORES_CONDITIONS, Quirk.REFUSES_CONDITIONS])
def test_a_run_lives_on_a_real_server_without_them(
    pods: Pods, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quirk: Quirk
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    with ExitStack() as stack:
        before = stack.enter_context(gateway(s3, quirk))
        store = open_store(s3.url(f"run-{tmp_path.name}"), endpoint=before.endpoint)
        zero = pods(store)
        fence = claimed(zero, 1, parent=SCRATCH)
        assert not zero.run.honours_conditions
        save = facts(10, layout="sharded")
        ship = named(zero, fence, 1, save, {0: ["shard0"], 1: ["shard1"]})
        for rank in (zero, pods(store, 1)):
            shard = f"shard{rank.rank}"
            files = rank.save(ship.name, {shard: b"weights"})
            rank.run.moving.upload_part(ship, files=files, save=save)
        assert isinstance(zero.run.publishing.try_commit(ship, fence=fence), Committed)
        zero.run.set_outcome(fence=fence, outcome=Outcome.COMPLETE)
        again = pods(store)
        seen = again.run.claim(attempt=2, world_size=2)
        assert isinstance(seen, Claimed)
        assert [c.name for c in again.run.candidates(again.run.history())] == [ship.name]


def test_the_attempt_says_which_fence_is_whose(pods: Pods) -> None:
    store = careless()
    assert claimed(pods(store), 3, parent=SCRATCH) == 3
    assert claimed(pods(store), 3) == 3
    assert claimed(pods(store), 7) == 7
    late = pods(store).run.claim(attempt=5, world_size=2)
    assert late == Superseded(7, 7)


def test_a_zombie_that_had_looked_before_its_successor_claimed_publishes_nothing(
    pods: Pods,
) -> None:
    """It was stopped between its look and its write, for as long as it took."""
    store = careless()
    stopped = store.seen_by_another()
    zombie, heir = pods(stopped), pods(store)
    claimed(zombie, 1, parent=SCRATCH)
    shipped(zombie, 1, 1, 10)

    def successor(key: str) -> None:
        if key.endswith("fences/00000002.json"):
            stopped.before_write = lambda _: None
            fence = claimed(heir, 3, parent=Parent(name="f1-n1-s10", step=10))
            shipped(heir, fence, 1, 20)

    stopped.before_write = successor
    assert zombie.run.claim(attempt=2, world_size=2) == Superseded(3, 3)
    assert isinstance(zombie.run.set_parent(fence=2, parent=SCRATCH), FenceLost)
    names = [c.name for c in heir.run.candidates(heir.run.history())]
    assert names == ["f3-n1-s20", "f1-n1-s10"]


@pytest.mark.parametrize("outcome", [None, Outcome.RELEASED, Outcome.FAILED])
def test_another_jobs_run_needs_a_word_even_where_it_was_released(
    pods: Pods, outcome: Outcome | None
) -> None:
    store = careless()
    mine, other = pods(store), pods(store, job="other")
    fence = claimed(mine, 4, parent=SCRATCH)
    if outcome is not None:
        mine.run.set_outcome(fence=fence, outcome=outcome)
    assert isinstance(other.run.claim(attempt=1, world_size=2), OwnedByOther)
    taken = other.run.claim(attempt=1, world_size=2, may_claim=True, over="cluster/job")
    assert isinstance(taken, Claimed)
    assert taken.fence == fence + APART + 1


def test_a_holder_that_claims_while_its_run_is_taken_over_meets_nobodys_number(
    pods: Pods,
) -> None:
    """The old job's next attempt writes its fence after the new job has claimed: it is lower."""
    store = careless()
    stopped = store.seen_by_another()
    mine, other = pods(stopped), pods(store, job="other")
    claimed(mine, 1, parent=SCRATCH)

    def taken(key: str) -> None:
        if key.endswith("fences/00000002.json"):
            stopped.before_write = lambda _: None
            claim = other.run.claim(attempt=1, world_size=2, may_claim=True, over="cluster/job")
            assert isinstance(claim, Claimed)
            assert other.run.held(claim.fence)

    stopped.before_write = taken
    seen = mine.run.claim(attempt=2, world_size=2)
    assert isinstance(seen, OwnedByOther)
    assert seen.owner == "cluster/other"
    assert not mine.run.held(2)


def test_of_two_jobs_that_begin_a_run_at_once_one_holds_it(pods: Pods) -> None:
    """Both see no fence; the other's record replaces ours before we look again."""
    store = careless()
    other = pods(store, job="other")
    record = "ns/gpt/fences/00000001.json"

    def overwritten(_: float) -> None:
        ours = store.objects.pop(record)
        claimed(other, 1, parent=SCRATCH)
        assert store.objects[record] != ours

    mine = pods(store, meanwhile=overwritten)
    seen = mine.run.claim(attempt=1, world_size=2)
    assert isinstance(seen, OwnedByOther)
    assert seen.owner == "cluster/other"


def test_a_record_that_was_replaced_later_ends_the_right_to_publish(pods: Pods) -> None:
    store = careless()
    mine, other = pods(store), pods(store, job="other")
    fence = claimed(mine, 1, parent=SCRATCH)
    shipped(mine, fence, 1, 10)
    del store.objects["ns/gpt/fences/00000001.json"]
    claimed(other, 1, parent=SCRATCH)
    assert not mine.run.held(fence)
    save = facts(20)
    ship = named(mine, fence, 2, save, {0: [save.root_key]})
    files = mine.save(ship.name, {save.root_key: b"more"})
    mine.run.moving.upload_part(ship, files=files, save=save)
    assert isinstance(mine.run.publishing.try_commit(ship, fence=fence), FenceLost)


def test_the_fast_path_claims_the_attempts_number(pods: Pods) -> None:
    store = careless()
    zero = pods(store)
    held = claimed(zero, 2, parent=SCRATCH)
    shipped(zero, held, 1, 10)
    parent = Parent(name="f2-n1-s10", step=10)
    got = zero.run.claim_next(held=held, attempt=5, world_size=2, parent=parent)
    assert isinstance(got, Claimed)
    assert (got.fence, got.record.parent) == (5, parent)
    late = zero.run.claim_next(held=held, attempt=4, world_size=2, parent=parent)
    assert late == FenceTaken(5, "cluster/job")


def test_a_record_is_written_once_by_who_was_first(pods: Pods) -> None:
    store = careless()
    zero = pods(store)
    fence = claimed(zero, 1, parent=SCRATCH)
    ship = shipped(zero, fence, 1, 10)
    marked = zero.run.judging.mark(
        ship.name, kind=MarkKind.INVALID, reason="MarkedByPerson", message="first"
    )
    other = zero.run.judging.mark(ship.name, kind=MarkKind.PINNED, reason="x", message="second")
    assert marked is not None
    assert other is not None
    assert len([key for key in store.objects if "/marks/" in key]) == 2
    before = {key: value for key, value in store.objects.items() if "/parts/" in key}
    stands = zero.run.publishing.answer_none(ship, why="asked again")
    assert stands.files, "the part written before is the answer"
    assert before == {key: value for key, value in store.objects.items() if "/parts/" in key}


def test_a_run_is_tried_again_once_a_person_has_removed_its_record(pods: Pods) -> None:
    """As docs/stores.md says: no pod of before lives."""
    store = careless()
    first = pods(store)
    held = claimed(first, 4, parent=SCRATCH)
    ship = shipped(first, held, 1, 10)
    store.honours_conditions = True
    assert claimed(pods(store), 5, parent=Parent(name=ship.name, step=10)) == 5
    assert not pods(store).run.honours_conditions  # not by itself
    store.delete("ns/gpt/run.json")
    again = pods(store)
    assert claimed(again, 6) == 6
    assert again.run.honours_conditions
    assert [c.name for c in again.run.candidates(again.run.history())] == [ship.name]
    assert isinstance(pods(store).run.claim(attempt=5, world_size=2), Superseded)
