"""From the ranks' parts to a manifest: what is committed, what waits, what is dropped for good."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from kit.memory_store import MemoryStore
from kit.ranks import (
    SCRATCH,
    Ranks,
    claimed,
    facts,
    flip,
    named,
)
from rtj_api.reasons import Reason
from rtj_sidecar.runs.commit import Committed, Dropped, Waiting
from rtj_sidecar.runs.fetch import Fetched
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import SAW_NO_FILES
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.stores.base import SourceChanged, Store, StoreProblem


def test_roll_forward_completes_what_has_all_its_parts(ranks: Ranks) -> None:
    zero, one = ranks(0), ranks(1)
    old = claimed(zero, 1, parent=SCRATCH)
    save = facts(10, layout="sharded")
    both = {0: ["shard0"], 1: ["shard1"]}
    whole, half = named(zero, old, 1, save, both), named(zero, old, 2, facts(20), both)
    for ship in (whole, half):
        zero.run.moving.upload_part(ship, files=zero.save(ship.name, {"shard0": b"0"}), save=save)
    one.run.moving.upload_part(whole, files=one.save(whole.name, {"shard1": b"1"}), save=save)

    new = ranks(0)
    fence = claimed(new, 2)
    done = new.run.publishing.roll_forward(new.run.history(), fence=fence)
    assert (done.committed, done.dropped) == (("f1-n1-s10",), ())
    assert [(c.name, c.durable) for c in new.run.candidates(done.history)] == [
        ("f1-n2-s20", False),
        ("f1-n1-s10", True),
    ]
    done = new.run.publishing.roll_forward(new.run.history(), fence=fence, gone=[1])
    assert [name for name, _ in done.dropped] == ["f1-n2-s20"]
    assert "rank 1" in done.dropped[0][1]
    assert [c.name for c in new.run.candidates(new.run.history())] == ["f1-n1-s10"]
    assert new.run.publishing.roll_forward(new.run.history(), fence=fence, gone=[1]).dropped == ()


def test_a_replaced_rank_answers_none_and_the_save_is_dropped(ranks: Ranks) -> None:
    zero, one = ranks(0), ranks(1)
    fence = claimed(zero, 1, parent=SCRATCH)
    ship = named(zero, fence, 1, facts(10), {0: ["a"], 1: ["b"]})
    zero.run.moving.upload_part(ship, files=zero.save("s", {"a": b"0"}), save=facts(10))
    one.run.publishing.answer_none(ship, why="this pod is new")
    outcome = zero.run.publishing.try_commit(ship, fence=fence)
    assert isinstance(outcome, Dropped)
    assert "this pod is new" in outcome.message
    late = one.run.moving.upload_part(ship, files=one.save("s", {"b": b"1"}), save=facts(10))
    assert late.files == []


def test_an_unexpected_rank_may_bring_what_is_missing(ranks: Ranks, store: Store) -> None:
    zero, one = ranks(0), ranks(1)
    fence = claimed(zero, 1, parent=SCRATCH)
    save = facts(10, layout="sharded")
    ship = named(zero, fence, 1, save, {0: ["shard0"]})
    zero.run.moving.upload_part(ship, files=zero.save("s", {"shard0": b"0"}), save=save)
    assert zero.run.publishing.try_commit(ship, fence=fence) == Waiting((1,))
    one.run.moving.upload_part(ship, files=one.save("s", {"shard1": b"1"}), save=save)
    outcome = zero.run.publishing.try_commit(ship, fence=fence)
    assert isinstance(outcome, Committed)
    assert [file.path for file in outcome.manifest.files] == ["shard0", "shard1"]

    torn = named(zero, fence, 2, save, {0: ["shard0"]})
    zero.run.moving.upload_part(torn, files=zero.save("t", {"shard0": b"0"}), save=save)
    one.run.publishing.answer_none(torn, why="nothing here")
    outcome = zero.run.publishing.try_commit(torn, fence=fence)
    assert isinstance(outcome, Dropped)
    assert "shards absent: [1]" in outcome.message


def test_a_path_that_two_ranks_wrote(ranks: Ranks, store: Store, tmp_path: Path) -> None:
    zero, one = ranks(0), ranks(1)
    fence = claimed(zero, 1, parent=SCRATCH)
    save = facts(10)
    seen = {0: ["same", "mine"], 1: ["same", "mine"]}
    ship = named(zero, fence, 1, save, seen)
    for rank in (zero, one):
        files = rank.save("s", {"same": b"equal bytes", "mine": b"of rank %d" % rank.rank})
        rank.run.moving.upload_part(ship, files=files, save=save)
    outcome = zero.run.publishing.try_commit(ship, fence=fence)
    assert isinstance(outcome, Committed)
    assert [(file.path, file.ranks) for file in outcome.manifest.files] == [
        ("mine", [0]),
        ("mine", [1]),
        ("same", None),
    ]
    for rank in (zero, one):
        dest = tmp_path / f"back{rank.rank}"
        assert isinstance(rank.run.moving.fetch(ship.name, dest), Fetched)
        assert (dest / "mine").read_bytes() == b"of rank %d" % rank.rank
        assert (dest / "same").read_bytes() == b"equal bytes"
    stored = {found.key for found in store.list("ns/gpt/checkpoints/")}
    assert "ns/gpt/checkpoints/f1-n1-s10/.rank1/mine" in stored
    if store.url.startswith("s3") or isinstance(store, MemoryStore):
        assert "ns/gpt/checkpoints/f1-n1-s10/.rank1/same" not in stored


def test_an_alias_is_stored_once(ranks: Ranks, store: Store, tmp_path: Path) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    save = facts(10)
    ship = named(zero, fence, 1, save, {0: ["ckpt_10", "last", "best"]})
    files = zero.save("s", {"ckpt_10": b"weights", "last": b"weights", "best": b"WEIGHTS"})
    files = [files[0], *(LocalFile(f.path, f.source, f.size, f.mode, True) for f in files[1:])]
    zero.run.moving.upload_part(ship, files=files, save=save)
    assert isinstance(zero.run.publishing.try_commit(ship, fence=fence), Committed)
    zero.run.moving.fetch(ship.name, tmp_path / "back")
    assert (tmp_path / "back/last").read_bytes() == b"weights"
    assert (tmp_path / "back/best").read_bytes() == b"WEIGHTS"
    stored = sorted(found.key for found in store.list("ns/gpt/checkpoints/"))
    assert [key.rpartition("/")[2] for key in stored] == ["best", "ckpt_10"]


def test_naming_twice_is_once_and_a_number_is_never_used_again(ranks: Ranks) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    first = named(zero, fence, 1, facts(10), {0: ["a"]})
    assert named(zero, fence, 1, facts(10), {0: ["a"], 1: ["b"]}) == first
    assert named(zero, fence, 1, facts(20), {0: ["a"]}).name == "f1-n2-s20"
    assert zero.run.next_n(zero.run.history(), fence) == 3


def test_a_pin_that_changed_ships_nothing(ranks: Ranks) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    ship = named(zero, fence, 1, facts(10), {0: ["a", "b"]})
    files = zero.save("s", {"a": b"1", "b": b"22"})
    files[1].source.write_bytes(b"333")
    with pytest.raises(SourceChanged, match="b: has 3 bytes, had 2"):
        zero.run.moving.upload_part(ship, files=files, save=facts(10))
    files[1].source.unlink()
    with pytest.raises(SourceChanged, match="b: cannot be read any more"):
        zero.run.moving.upload_part(ship, files=files, save=facts(10))
    assert zero.run.publishing.part(SaveId(1, 1), 0) is None


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOSPC])
def test_a_pin_that_cannot_be_read_now_is_tried_again(
    ranks: Ranks, store: Store, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    ship = named(zero, fence, 1, facts(10), {0: ["a"]})
    files = zero.save("s", {"a": b"1"})

    def refuse(key: str, path: Path, **_: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(store, "upload_file", refuse)
        with pytest.raises(StoreProblem, match=r"cannot read .*/s/a to upload it") as raised:
            zero.run.moving.upload_part(ship, files=files, save=facts(10))
    assert raised.value.transient
    assert zero.run.publishing.part(SaveId(1, 1), 0) is None
    assert zero.run.moving.upload_part(ship, files=files, save=facts(10)).files


def test_an_object_damaged_between_part_and_commit_is_never_committed(
    ranks: Ranks, store: Store
) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    ship = named(zero, fence, 1, facts(10), {0: ["a"]})
    zero.run.moving.upload_part(ship, files=zero.save("s", {"a": b"12345"}), save=facts(10))
    flip(store, "checkpoints/f1-n1-s10/a")
    outcome = zero.run.publishing.try_commit(ship, fence=fence)
    assert isinstance(outcome, Dropped)
    assert outcome.reason == Reason.CHECKPOINT_CORRUPT
    assert zero.run.candidates(zero.run.history()) == []


def test_what_was_answered_is_not_sent_again(ranks: Ranks, store: Store) -> None:
    if not isinstance(store, MemoryStore):
        pytest.skip("needs the order of writes")
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    ship = named(zero, fence, 1, facts(10), {0: ["a"]})
    files = zero.save("s", {"a": b"12345"})
    part = zero.run.moving.upload_part(ship, files=files, save=facts(10))
    written: list[str] = []
    store.after_write = written.append
    assert ranks(0).run.moving.upload_part(ship, files=files, save=facts(11)) == part
    assert zero.run.publishing.answer_none(ship, why="too late") == part
    assert written == []


@pytest.mark.parametrize(
    ("why", "later", "is_durable"),
    [
        (SAW_NO_FILES, False, True),
        (SAW_NO_FILES, True, False),  # a pod of the next attempt may have said it
        ("its pinned files were overwritten in place", False, False),
    ],
)
def test_a_none_of_the_version_before_counts_under_the_fence_of_its_own_attempt(
    ranks: Ranks, why: str, later: bool, is_durable: bool
) -> None:
    """It does not tell which attempt its pod was made in."""
    zero, one = ranks(0), ranks(1)
    fence = claimed(zero, 1, parent=SCRATCH)
    save = facts(10)
    answer = zero.run.publishing.name_ship(
        fence=fence,
        n=1,
        save=save,
        seen={0: ["a"]},
        world_size=2,
        parent=SCRATCH,
        made_in=1,
        asked=[1],
    )
    assert isinstance(answer, Named)
    zero.run.moving.upload_part(answer.ship, files=zero.save("s", {"a": b"0"}), save=save)
    one.run.publishing.answer_none(answer.ship, why=why)
    holds = claimed(zero, 2) if later else fence
    assert (
        isinstance(zero.run.publishing.try_commit(answer.ship, fence=holds), Committed)
        is is_durable
    )
