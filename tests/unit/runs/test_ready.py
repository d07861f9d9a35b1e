"""What the ranks of an attempt agree on through the store: stamped, first word stands, fenced."""

from __future__ import annotations

import itertools

import pytest
from kit.memory_store import MemoryStore
from rtj_api.wire import Resume
from rtj_sidecar.checkpoints.types import Gate, GateResult
from rtj_sidecar.runs import keys
from rtj_sidecar.runs.fence import Claimed, Done, FenceLost
from rtj_sidecar.runs.records import Outcome, ReadyState
from rtj_sidecar.runs.run import Run

_ids = itertools.count()
FIRST = Resume(run="ns/gpt", name="f1-n3-s30", step=30)
OTHER = Resume(run="ns/gpt", name="f1-n2-s20", step=20)


def run_of(store: MemoryStore, rank: int, *, job: str = "job") -> Run:
    return Run(
        store=store,
        run_id="ns/gpt",
        cluster_uid="cluster",
        job_uid=job,
        rank=rank,
        union_gate=lambda layout, parts, world_size: GateResult(Gate.COMPLETENESS, True, ""),
        now=lambda: 1.0,
        new_id=lambda: str(next(_ids)),
        workers=1,
    )


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def claimed(run: Run, *, attempt: int) -> int:
    answer = run.claim(attempt=attempt, world_size=2, may_claim=True)
    assert isinstance(answer, Claimed)
    return answer.fence


def test_the_fence_is_found_only_by_its_own_attempt_and_job(store: MemoryStore) -> None:
    zero, one = run_of(store, 0), run_of(store, 1)
    assert one.agreement.fence_of(1) is None
    fence = claimed(zero, attempt=1)
    found = one.agreement.fence_of(1)
    assert found is not None
    assert found.fence == fence
    assert one.agreement.fence_of(2) is None
    assert run_of(store, 1, job="another").agreement.fence_of(1) is None
    claimed(zero, attempt=2)
    assert one.agreement.fence_of(1) is None, "it has been followed"


def test_every_rank_says_how_far_it_is_and_only_of_this_attempt(store: MemoryStore) -> None:
    zero, one = run_of(store, 0), run_of(store, 1)
    fence = claimed(zero, attempt=4)
    zero.agreement.say(fence=fence, attempt=4, pod_uid="a", state=ReadyState.STOPPED)
    one.agreement.say(fence=fence, attempt=3, pod_uid="b", state=ReadyState.RESTORED)
    assert set(zero.agreement.said(fence=fence, attempt=4)) == {0}
    one.agreement.say(
        fence=fence, attempt=4, pod_uid="b", state=ReadyState.RESTORED, pinned=["x"], url="http://b"
    )
    said = zero.agreement.said(fence=fence, attempt=4)
    assert {rank: record.state for rank, record in said.items()} == {
        0: ReadyState.STOPPED,
        1: ReadyState.RESTORED,
    }
    assert (said[1].pinned, said[1].url, said[1].pod_uid) == (["x"], "http://b", "b")


def test_the_first_choice_stands_and_a_go_comes_once(store: MemoryStore) -> None:
    zero = run_of(store, 0)
    fence = claimed(zero, attempt=1)
    for choice in (FIRST, OTHER):
        answer = zero.agreement.choose(fence=fence, choice=choice)
        assert isinstance(answer, Done)
        assert answer.record.choice == FIRST
    first, second = zero.agreement.go(fence=fence), zero.agreement.go(fence=fence)
    assert isinstance(first, Done)
    assert first == second
    done = zero.agreement.complete(fence=fence)
    assert isinstance(done, Done)
    assert done.record.outcome == Outcome.COMPLETE
    assert done.record.choice == FIRST, "each word is added to those before"


def test_who_was_followed_can_say_nothing_any_more(store: MemoryStore) -> None:
    zero = run_of(store, 0)
    fence = claimed(zero, attempt=1)
    claimed(zero, attempt=2)
    agreement = zero.agreement
    for answer in (
        agreement.choose(fence=fence, choice=FIRST),
        agreement.go(fence=fence),
        agreement.complete(fence=fence),
    ):
        assert isinstance(answer, FenceLost)


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("ready/f3/12.json", (3, 12)),
        ("ready/f3/12.json.tmp", None),
        ("ready/3/12.json", None),
        ("parts/f3/12.json", None),
    ],
)
def test_keys(key: str, place: tuple[int, int] | None) -> None:
    assert keys.parse_ready(key) == place
    if place is not None:
        assert keys.ready_key(*place) == key
