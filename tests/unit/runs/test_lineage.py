"""Which saves can be reached, and in which order: tables over hand-made histories."""

from __future__ import annotations

import itertools

import pytest
from rtj_api.reasons import Reason
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.keys import SaveId, parse_name, save_name
from rtj_sidecar.runs.lineage import End, candidates, compare, ignored, lineage
from rtj_sidecar.runs.records import (
    FenceRecord,
    FileRecord,
    ManifestRecord,
    MarkKind,
    MarkRecord,
    Parent,
    PartRecord,
    ShipRecord,
)

SCRATCH = Parent(scratch=True)


def fence(number: int, parent: Parent | None) -> FenceRecord:
    return FenceRecord(
        fence=number,
        cluster_uid="c",
        job_uid="j",
        attempt=number,
        world_size=2,
        nonce=str(number),
        claimed_at=0,
        parent=parent,
    )


def manifest(
    at: SaveId, *, step: int | None, epoch: int | None = None, full_state: bool = True
) -> ManifestRecord:
    return ManifestRecord(
        run_id="r",
        name=save_name(at, step),
        fence=at.fence,
        n=at.n,
        root_key="x",
        layout="generic",
        step=step,
        epoch=epoch,
        full_state=full_state,
        status="Verified",
        world_size=2,
        attempt=at.fence,
        job_uid="j",
        cluster_uid="c",
        committed_by_fence=at.fence,
        committed_at=0,
        ranks=[0],
        files=[FileRecord(path="x", key="k", size=5, sha256="", crc64nvme="")],
    )


def ship(at: SaveId, *, step: int, expected: list[int]) -> ShipRecord:
    return ShipRecord(
        fence=at.fence,
        n=at.n,
        name=save_name(at, step),
        root_key="x",
        layout="generic",
        step=step,
        expected=expected,
        world_size=2,
        named_at=0,
    )


def mark(kind: MarkKind) -> MarkRecord:
    return MarkRecord(kind=kind, reason=Reason.CHECKPOINT_CORRUPT, message="", marked_at=0)


def history(
    fences: list[FenceRecord],
    saves: dict[tuple[int, int], int],
    *,
    ships: dict[tuple[int, int], int] | None = None,
    marks: dict[tuple[int, int], MarkKind] | None = None,
) -> History:
    committed = {SaveId(*at): manifest(SaveId(*at), step=step) for at, step in saves.items()}
    pending = {
        SaveId(*at): ship(SaveId(*at), step=step, expected=[0, 1])
        for at, step in (ships or {}).items()
    }
    return History(
        fences=tuple(fences),
        manifests=committed,
        ships=pending,
        marks={SaveId(*at): (mark(kind),) for at, kind in (marks or {}).items()},
        named=frozenset([*committed, *pending]),
    )


def names(found: History) -> list[str]:
    return [str(save) for save in lineage(found).saves]


def test_one_fence_newest_first() -> None:
    found = history([fence(1, SCRATCH)], {(1, 1): 10, (1, 2): 20, (1, 10): 100})
    assert names(found) == ["f1-n10", "f1-n2", "f1-n1"]
    assert lineage(found).end == End.SCRATCH


def test_parent_then_those_before_it() -> None:
    fences = [fence(1, SCRATCH), fence(2, Parent(name="f1-n2-s20", step=20))]
    found = history(fences, {(1, 1): 10, (1, 2): 20, (1, 3): 30, (2, 1): 30})
    assert names(found) == ["f2-n1", "f1-n2", "f1-n1"]
    assert [str(save) for save in lineage(found).branches] == ["f1-n3"]


def test_a_zombies_late_manifest_is_a_branch_once_a_parent_is_named() -> None:
    before = history([fence(1, SCRATCH), fence(2, None)], {(1, 1): 10, (1, 2): 20})
    assert names(before) == ["f1-n2", "f1-n1"]
    fences = [fence(1, SCRATCH), fence(2, Parent(name="f1-n1-s10", step=10))]
    after = history(fences, {(1, 1): 10, (1, 2): 20})
    assert names(after) == ["f1-n1"]
    assert [str(save) for save in lineage(after).branches] == ["f1-n2"]


def test_a_fence_without_parent_is_transparent() -> None:
    fences = [fence(1, SCRATCH), fence(2, None), fence(5, None), fence(6, None)]
    found = history(fences, {(1, 1): 10})
    assert names(found) == ["f1-n1"]
    assert lineage(found).fences == (1,)


def test_scratch_by_right_ends_the_chain() -> None:
    fences = [fence(1, SCRATCH), fence(2, SCRATCH)]
    found = history(fences, {(1, 1): 10})
    assert names(found) == []
    assert [str(save) for save in lineage(found).branches] == ["f1-n1"]
    assert found.ever_durable


def test_an_equal_save_comes_right_after_the_one_resumed_from() -> None:
    fences = [fence(1, SCRATCH), fence(2, Parent(name="f1-n2-s20", step=20))]
    found = history(fences, {(1, 1): 10, (1, 2): 20, (2, 1): 20, (2, 2): 30})
    assert names(found) == ["f2-n2", "f1-n2", "f2-n1", "f1-n1"]


def test_equal_saves_nest() -> None:
    fences = [
        fence(1, SCRATCH),
        fence(2, Parent(name="f1-n1-s10", step=10)),
        fence(3, Parent(name="f2-n1-s10", step=10)),
    ]
    found = history(fences, {(1, 1): 10, (2, 1): 10, (3, 1): 10})
    assert names(found) == ["f1-n1", "f2-n1", "f3-n1"]


def test_an_equal_save_is_not_lost_with_its_parent() -> None:
    fences = [fence(1, SCRATCH), fence(2, Parent(name="f1-n2-s20", step=20))]
    found = history(fences, {(1, 1): 10, (2, 1): 20})
    assert names(found) == ["f2-n1", "f1-n1"]


def test_pending_ships_are_candidates_that_are_not_durable() -> None:
    fences = [fence(1, SCRATCH), fence(2, Parent(name="f1-n2-s20", step=20))]
    found = history(fences, {(1, 1): 10}, ships={(1, 2): 20, (2, 1): 30})
    assert [(c.name, c.durable, c.needs) for c in candidates(found).values()] == [
        ("f2-n1-s30", False, [0, 1]),
        ("f1-n2-s20", False, [0, 1]),
        ("f1-n1-s10", True, [0]),
    ]


def test_a_rank_that_answered_none_is_not_needed_and_an_unexpected_one_is() -> None:
    at = SaveId(1, 1)
    file = FileRecord(path="x", key="k", size=1, sha256="", crc64nvme="")
    parts = {
        0: PartRecord(fence=1, n=1, rank=0, written_at=0),
        2: PartRecord(fence=1, n=1, rank=2, files=[file], written_at=0),
    }
    found = History(
        fences=(fence(1, SCRATCH),),
        ships={at: ship(at, step=1, expected=[0, 1])},
        parts={at: parts},
        named=frozenset([at]),
    )
    assert next(iter(candidates(found).values())).needs == [1, 2]


def test_marks() -> None:
    found = history(
        [fence(1, SCRATCH)],
        {(1, 1): 10, (1, 2): 20, (1, 3): 30},
        ships={(1, 4): 40},
        marks={
            (1, 1): MarkKind.DELETED,
            (1, 2): MarkKind.INVALID,
            (1, 3): MarkKind.PINNED,
            (1, 4): MarkKind.DROPPED,
        },
    )
    assert [(c.name, c.invalid) for c in candidates(found).values()] == [
        ("f1-n3-s30", None),
        ("f1-n2-s20", "CheckpointCorrupt"),
    ]


def test_a_broken_manifest_is_a_condemned_candidate_not_an_absent_one() -> None:
    found = History(
        fences=(fence(1, SCRATCH),),
        broken={"manifests/f1-n2.json": "not JSON"},
        manifests={SaveId(1, 1): manifest(SaveId(1, 1), step=10)},
        ships={SaveId(1, 2): ship(SaveId(1, 2), step=20, expected=[0])},
        named=frozenset([SaveId(1, 1), SaveId(1, 2)]),
    )
    assert [(c.name, c.invalid) for c in candidates(found).values()] == [
        ("f1-n2-s20", "RunDamaged"),
        ("f1-n1-s10", None),
    ]


@pytest.mark.parametrize(
    ("parent", "end"),
    [
        (Parent(name="f7-n1"), End.BROKEN),
        (Parent(name="f1-n9"), End.START),  # a leftover of before, dropped later
        (Parent(name="no name"), End.BROKEN),
        (Parent(run="other", name="f1-n1"), End.OTHER_RUN),
    ],
)
def test_odd_parents_end_the_chain_and_never_loop(parent: Parent, end: End) -> None:
    found = history([fence(1, parent)], {(1, 1): 10})
    assert names(found) == ["f1-n1"]
    assert lineage(found).end == end


@pytest.mark.parametrize(
    ("of_two", "saves", "expected"),
    [
        # Named in prepare by an attempt that never started.
        (None, {(2, 1): 30}, ["f2-n1", "f1-n2", "f1-n1"]),
        # Named in prepare, and then what that attempt started from.
        (Parent(name="f2-n1-s30", step=30), {(2, 1): 30, (2, 2): 40},
         ["f2-n2", "f2-n1", "f1-n2", "f1-n1"]),
        # The same, but its data was lost with its pod.
        (Parent(name="f2-n1-s30", step=30), {}, ["f1-n2", "f1-n1"]),
    ],
    ids=["never started", "started from it", "lost"],
)  # fmt: skip
def test_a_leftover_named_by_the_next_attempt_hides_nothing(
    of_two: Parent | None, saves: dict[tuple[int, int], int], expected: list[str]
) -> None:
    found = history(
        [fence(1, SCRATCH), fence(2, of_two), fence(3, None)], {(1, 1): 10, (1, 2): 20} | saves
    )
    assert names(found) == expected
    assert lineage(found).end == End.SCRATCH


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        ({"step": 1}, {"step": 2}, -1),
        ({"step": 2}, {"step": 2}, 0),
        ({"step": 1000}, {"step": 999}, 1),
        ({"epoch": 1}, {"epoch": 2}, -1),
        ({"step": 1, "epoch": 2}, {"step": 100, "epoch": 1}, 1),  # steps restart with each epoch
        ({"step": 1, "epoch": 0}, {"step": 100, "epoch": 3}, -1),
        ({"step": 100, "epoch": 0}, {"step": 100, "epoch": 3}, -1),
        ({"step": 100, "epoch": 3}, {"step": 100, "epoch": 3}, 0),
        ({"step": 500, "epoch": 0}, {"step": 100, "epoch": 3}, None),  # either may have moved
        ({"step": 1}, {"epoch": 2}, None),
        ({}, {"step": 2}, None),
        ({"step": 1, "epoch": 1}, {"step": 2}, -1),
    ],
)
def test_compare(a: dict[str, int], b: dict[str, int], answer: int | None) -> None:
    assert compare(Parent(**a), Parent(**b)) == answer
    if (
        answer is not None
        and "epoch" not in {*a} ^ {*b}
        and not (a.get("step", 0) > b.get("step", 0) and a.get("epoch", 0) < b.get("epoch", 0))
    ):
        back = compare(Parent(**b), Parent(**a))
        assert back in (-answer, None)


def test_compare_is_reflexive() -> None:
    for step, epoch in itertools.product([None, 0, 5], [None, 0, 5]):
        same = Parent(step=step, epoch=epoch)
        assert compare(same, same) == (None if step is epoch is None else 0)


def test_ignored_names_the_remedy() -> None:
    parent = Parent(name="f1-n2-s20", step=20)
    why = ignored(parent, Parent(step=5))
    assert why is not None
    assert "f1-n2-s20" in why
    assert "checkpoint.resumeArgs" in why
    assert ignored(parent, Parent(step=20)) is None
    assert ignored(parent, Parent()) is None
    assert ignored(SCRATCH, Parent(step=0)) is None
    assert ignored(None, Parent(step=0)) is None


@pytest.mark.parametrize("step", [None, 0, 12])
def test_names_parse_back(step: int | None) -> None:
    assert parse_name(save_name(SaveId(12, 3), step)) == SaveId(12, 3)
    assert parse_name("f12-n3-s") is None
    assert parse_name("f12-n3-s4/../x") is None
