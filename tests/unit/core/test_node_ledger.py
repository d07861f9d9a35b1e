"""What is counted against nodes, how it fades, and who is avoided."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rtj_operator.core.node_ledger import (
    AVOIDED_FROM,
    HALF_LIFE_SECONDS,
    HEAVY,
    LIGHT,
    MAX_AVOIDED,
    MAX_MARKS,
    MAX_NODES,
    PLAIN,
    Mark,
    NodeFacts,
    NodeLedger,
    advice,
    faded,
    most_avoided,
    score_of,
    with_marks,
)

NOW = 1_000_000_000.0
DAY = 86_400.0
FOUR = {f"n{i}": NodeFacts(name=f"n{i}") for i in range(4)}


def mark(node: str = "n1", *, days: float = 0.0, weight: float = PLAIN, **fields: Any) -> Mark:
    at = NOW - days * DAY
    given = {"id": f"{node}/{at}/{weight}/{fields}", "reason": "Xid31", "job": "ns/gpt", **fields}
    return Mark(node=node, at=at, weight=weight, **given)


def ledger(*marks: Mark) -> NodeLedger:
    return with_marks(NodeLedger(), marks, now=NOW)


def avoided(*marks: Mark, facts: dict[str, NodeFacts] | None = None) -> list[str]:
    return [a.node for a in advice(ledger(*marks), facts or FOUR, now=NOW)]


def test_a_mark_has_half_its_weight_after_a_week() -> None:
    assert faded(mark(days=0), now=NOW) == 1.0
    assert faded(mark(days=7), now=NOW) == pytest.approx(0.5)
    assert faded(mark(days=-1), now=NOW) == 1.0, "a clock that was set back makes nothing heavier"


@pytest.mark.parametrize(
    ("marks", "is_avoided"),
    [
        ([mark()], False),
        ([mark(), mark(days=6.9)], True),
        ([mark(), mark(days=7.1)], False),
        ([mark(weight=HEAVY)], True),
        ([mark(weight=HEAVY, days=2)], True),
        ([mark(weight=HEAVY, days=4)], False),
        ([mark(weight=LIGHT, days=0.1 * i) for i in range(4)], True),
        ([mark(weight=LIGHT), mark(weight=LIGHT, days=1)], False),
    ],
)
def test_two_within_a_week_or_one_heavy_mark_make_a_node_avoided(
    marks: list[Mark], is_avoided: bool
) -> None:
    assert avoided(*marks) == (["n1"] if is_avoided else [])


def test_two_on_one_gpu_count_together_and_on_two_do_not() -> None:
    same = [mark(gpu="GPU-a", days=1), mark(gpu="GPU-a")]
    assert avoided(*same) == ["n1"]
    assert avoided(mark(gpu="GPU-a", days=1), mark(gpu="GPU-b")) == []
    both = [mark(gpu="GPU-a", weight=HEAVY)]
    assert avoided(*both) == ["n1"], "a GPU that is broken for sure"


def test_the_same_mark_counts_once_however_often_it_is_told() -> None:
    one = mark(id="job-1/7")
    told = with_marks(ledger(one), [one, one], now=NOW)
    assert told.marks["n1"] == (one,)


def test_a_machine_made_anew_under_an_old_name_begins_clean() -> None:
    facts = {**FOUR, "n1": NodeFacts(name="n1", created_at=NOW - 0.5 * DAY)}
    assert avoided(mark(days=1), mark(days=2), facts=facts) == []
    assert avoided(mark(days=0.1), mark(days=0.2), facts=facts) == ["n1"]


def test_a_node_that_is_gone_is_not_avoided() -> None:
    assert avoided(mark("gone", weight=HEAVY)) == []


def test_troubles_that_show_now_count_without_any_mark() -> None:
    facts = {**FOUR, "n2": NodeFacts(name="n2", troubles=("1 of 8 nvidia.com/gpu is gone",))}
    (found,) = advice(NodeLedger(), facts, now=NOW)
    assert (found.node, found.why) == ("n2", "1 of 8 nvidia.com/gpu is gone")


def test_the_reasons_are_told() -> None:
    (found,) = advice(
        ledger(mark(reason="Xid79", weight=HEAVY), mark(job="ns/other", gpu="GPU-a", days=1)),
        FOUR,
        now=NOW,
    )
    assert found.why == "Xid31 on GPU GPU-a, Xid79 in 2 jobs"


@pytest.mark.parametrize(
    ("nodes", "most"), [(1, 1), (4, 1), (9, 1), (10, 2), (100, 20), (160, 32), (5000, MAX_AVOIDED)]
)
def test_only_a_share_of_the_cluster_is_avoided(nodes: int, most: int) -> None:
    facts = {f"n{i}": NodeFacts(name=f"n{i}") for i in range(nodes)}
    bad = [mark(name, weight=HEAVY, days=0.001 * i) for i, name in enumerate(sorted(facts))]
    assert most_avoided(nodes) == most
    found = avoided(*bad, facts=facts)
    assert found == sorted(facts)[:most], "the worst, here the newest"


def test_nodes_that_leave_do_not_hide_bad_ones() -> None:
    leaving = {
        f"a{i}": NodeFacts(name=f"a{i}", leaving="taint node.kubernetes.io/unschedulable")
        for i in range(6)
    }
    found = avoided(mark("n1", weight=HEAVY), facts={**FOUR, **leaving})
    assert found == ["n1", *sorted(leaving)]


def test_its_size_is_bounded() -> None:
    marks = [mark(f"n{i:04}", days=0.01 * k, id=f"{i}/{k}") for i in range(450) for k in range(10)]
    kept = ledger(*marks)
    assert len(kept.marks) == MAX_NODES
    assert {len(found) for found in kept.marks.values()} == {MAX_MARKS}
    assert all(found[-1].at == NOW for found in kept.marks.values()), "the newest stay"


def test_forgotten_marks_are_dropped() -> None:
    assert ledger(mark(days=29)).marks == {}


@given(
    st.lists(
        st.builds(
            mark,
            st.sampled_from(["n0", "n1", "n2"]),
            days=st.floats(0, 40),
            weight=st.sampled_from([LIGHT, PLAIN, HEAVY]),
            gpu=st.sampled_from([None, "GPU-a", "GPU-b"]),
        ),
        max_size=20,
    )
)
def test_a_score_never_rises_by_itself_and_order_does_not_matter(marks: list[Mark]) -> None:
    there = ledger(*marks)
    assert ledger(*reversed(marks)) == there
    for found in there.marks.values():
        now, later = score_of(found, now=NOW), score_of(found, now=NOW + HALF_LIFE_SECONDS)
        assert later == pytest.approx(now / 2)
        assert 0 <= later <= now
    assert all(a.score >= AVOIDED_FROM for a in advice(there, FOUR, now=NOW))
