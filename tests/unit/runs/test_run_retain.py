"""What retention marks and deletes, and what it must keep."""

from __future__ import annotations

from pathlib import Path

from kit.memory_store import MemoryStore
from kit.ranks import (
    SCRATCH,
    Rank,
    Ranks,
    all_ranks_have_a_shard,
    claimed,
    shipped,
)
from kit.run_writer import run_of
from rtj_sidecar.runs.keeping import Keep
from rtj_sidecar.runs.records import MarkKind
from rtj_sidecar.runs.retain import Retained
from rtj_sidecar.runs.run import Run
from rtj_sidecar.stores.base import Store


def test_retention_marks_then_deletes_and_keeps_what_is_needed(
    store: Store, tmp_path: Path
) -> None:
    clock = [1000.0]
    run = run_of(store, union_gate=all_ranks_have_a_shard, now=lambda: clock[0])
    zero = Rank(run, 0, tmp_path / "disk")
    fence = claimed(zero, 1, parent=SCRATCH)
    for n in range(1, 6):
        shipped(zero, fence, n, 10 * n)
    run.judging.mark(
        "f1-n1-s10", kind=MarkKind.PINNED, reason="Restoring", message="someone restores"
    )
    done = run.tending.retain(fence=fence, keep=Keep(last=2), in_use=["f1-n2-s20"])
    assert done == Retained(("f1-n3-s30",), ())
    assert run.tending.retain(fence=fence, keep=Keep(last=2), in_use=["f1-n2-s20"]) == Retained(
        (), ()
    )
    assert store.head("ns/gpt/checkpoints/f1-n3-s30/ckpt_30") is not None
    clock[0] += 3600
    done = run.tending.retain(fence=fence, keep=Keep(last=2), in_use=["f1-n2-s20"])
    assert done == Retained((), ("f1-n3-s30",))
    assert list(store.list("ns/gpt/checkpoints/f1-n3-s30/")) == []
    listed = [c.name for c in run.candidates(run.history())]
    assert listed == ["f1-n5-s50", "f1-n4-s40", "f1-n2-s20", "f1-n1-s10"]
    assert run.next_n(run.history(), fence) == 6
    assert run.tending.retain(fence=fence, keep=Keep(last=0)) == Retained(
        ("f1-n2-s20", "f1-n4-s40"), ()
    )


def test_nothing_is_deleted_while_a_record_cannot_be_read(tmp_path: Path) -> None:
    store, clock = MemoryStore(), [1000.0]

    def opened() -> Run:
        return run_of(store, union_gate=all_ranks_have_a_shard, now=lambda: clock[0])

    zero = Rank(opened(), 0, tmp_path / "disk")
    fence = claimed(zero, 1, parent=SCRATCH)
    for n in range(1, 5):
        shipped(zero, fence, n, 10 * n)
    assert zero.run.tending.retain(fence=fence, keep=Keep(last=3)) == Retained(("f1-n1-s10",), ())
    clock[0] += 3600
    good = store.objects["ns/gpt/manifests/f1-n4.json"]
    store.put("ns/gpt/manifests/f1-n4.json", b"{torn")
    before = dict(store.objects)
    done = opened().tending.retain(fence=fence, keep=Keep(last=3))
    assert isinstance(done, Retained)
    assert (done.marked, done.deleted) == ((), ())
    assert "f1-n4.json" in (done.held or "")
    opened().publishing.sweep(fence=fence)
    assert set(store.objects) >= set(before)
    store.put("ns/gpt/manifests/f1-n4.json", good[0])
    done = opened().tending.retain(fence=fence, keep=Keep(last=3))
    assert done == Retained((), ("f1-n1-s10",))


def test_only_verified_saves_count_towards_keep_last(ranks: Ranks) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    for n, status in enumerate(("Verified", "Verified", "Verified", "Settled", "Settled"), 1):
        shipped(zero, fence, n, 10 * n, status=status)
    done = zero.run.tending.retain(fence=fence, keep=Keep(last=2))
    assert done == Retained(("f1-n1-s10",), ()), "two settled ones are no two proved ones"


def test_a_save_that_a_newer_one_carries_a_file_of_is_kept(ranks: Ranks) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    best = {"carried": [{"path": "best.pt", "fence": fence, "n": 1, "step": 10}]}
    for n in range(1, 5):
        shipped(zero, fence, n, 10 * n, facts=best if n > 1 else {})
    assert zero.run.tending.retain(fence=fence, keep=Keep(last=1)) == Retained(
        ("f1-n2-s20", "f1-n3-s30"), ()
    )
