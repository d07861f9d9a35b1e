"""A run's life through the facade, on a directory and on a real S3 server."""

from __future__ import annotations

import errno
import functools
import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.memory_store import MemoryStore
from kit.s3 import S3Server, s3_server
from rtj_api.reasons import Reason
from rtj_sidecar.checkpoints.types import Gate, GateResult, PartFiles
from rtj_sidecar.runs.commit import Committed, Dropped, Waiting
from rtj_sidecar.runs.fence import Claimed, Done, FenceLost, FenceTaken, OwnedByOther, Superseded
from rtj_sidecar.runs.fetch import Fetched, FetchFailed
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.records import MarkKind, Outcome, Parent, SaveFacts, ShipRecord
from rtj_sidecar.runs.retain import Retained
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.ships import Ignored, Named
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.stores.base import SourceChanged, Store, StoreProblem
from rtj_sidecar.stores.open import open_store

SCRATCH = Parent(scratch=True)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["memory", "file", "s3"])
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> Store:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "file":
        return open_store((tmp_path / "store").as_uri())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    return open_store(s3.url(f"run-{tmp_path.name}"), endpoint=s3.endpoint)


def all_ranks_have_a_shard(layout: str, parts: Sequence[PartFiles], world: int) -> GateResult:
    if layout != "sharded":
        return GateResult(Gate.SET, None, "no rule")
    absent = [r for r in range(world) if not any(f"shard{r}" in part.files for part in parts)]
    return GateResult(Gate.SET, not absent, f"shards absent: {absent}")


@dataclass
class Rank:
    """One rank's sidecar of one attempt, with its disk."""

    run: Run
    rank: int
    disk: Path

    def save(self, name: str, files: dict[str, bytes]) -> list[LocalFile]:
        made = []
        for path, body in files.items():
            source = self.disk / name / path
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_bytes(body)
            made.append(LocalFile(path=path, source=source, size=len(body), mode=0o640))
        return made


Ranks = Callable[..., Rank]


@pytest.fixture
def ranks(store: Store, tmp_path: Path) -> Ranks:
    def make(rank: int, *, job: str = "job", store: Store = store) -> Rank:
        return Rank(
            Run(
                store=store,
                run_id="ns/gpt",
                cluster_uid="cluster",
                job_uid=job,
                rank=rank,
                union_gate=all_ranks_have_a_shard,
            ),
            rank,
            tmp_path / f"disk{rank}",
        )

    return make


def facts(step: int | None, **more: object) -> SaveFacts:
    given = {"root_key": f"ckpt_{step}", "layout": "generic", "full_state": True} | more
    given.setdefault("status", "Verified")
    return SaveFacts(step=step, **given)


def claimed(rank: Rank, attempt: int, *, parent: Parent | None = None) -> int:
    outcome = rank.run.claim(attempt=attempt, world_size=2)
    assert isinstance(outcome, Claimed)
    if parent is not None:
        assert isinstance(rank.run.set_parent(fence=outcome.fence, parent=parent), Done)
    return outcome.fence


def named(
    rank: Rank, fence: int, n: int, save: SaveFacts, seen: dict[int, list[str]]
) -> ShipRecord:
    outcome = rank.run.name_ship(fence=fence, n=n, save=save, seen=seen, world_size=2, parent=None)
    assert isinstance(outcome, Named)
    return outcome.ship


def shipped(
    rank: Rank, fence: int, n: int, step: int, body: bytes | None = None, **more: object
) -> ShipRecord:
    """A save that only this rank writes, from name to manifest."""
    save = facts(step, **more)
    ship = named(rank, fence, n, save, {rank.rank: [save.root_key]})
    files = rank.save(ship.name, {save.root_key: body or f"weights of step {step}".encode()})
    rank.run.moving.upload_part(ship, files=files, save=save)
    assert isinstance(rank.run.try_commit(ship, fence=fence), Committed)
    return ship


def data(store: Store, run_key: str) -> bytes:
    found = store.get(f"ns/gpt/{run_key}")
    assert found is not None
    return found.data


def test_from_first_start_to_the_second_attempt(ranks: Ranks, store: Store) -> None:
    zero, one = ranks(0), ranks(1)
    fence = claimed(zero, 1)
    assert fence == 1
    assert zero.run.candidates(zero.run.history()) == []
    assert not zero.run.history().ever_durable
    assert isinstance(zero.run.set_parent(fence=fence, parent=SCRATCH), Done)

    save = facts(10, layout="sharded")
    ship = named(zero, fence, 1, save, {0: ["shard0"], 1: ["shard1"]})
    assert ship.name == "f1-n1-s10"
    assert one.run.read_ships(fence=1) == [ship]
    assert one.run.read_ships(fence=1, since=1) == []
    zero.run.moving.upload_part(ship, files=zero.save("a", {"shard0": b"0" * 99}), save=save)
    assert zero.run.try_commit(ship, fence=fence) == Waiting((1,))
    [pending] = zero.run.candidates(zero.run.history())
    assert (pending.durable, pending.needs, pending.step) == (False, [0, 1], 10)
    one.run.moving.upload_part(ship, files=one.save("a", {"shard1": b"1" * 98}), save=save)
    outcome = zero.run.try_commit(ship, fence=fence)
    assert isinstance(outcome, Committed)
    assert [file.key for file in outcome.manifest.files] == [
        "checkpoints/f1-n1-s10/shard0",
        "checkpoints/f1-n1-s10/shard1",
    ]
    assert outcome.manifest.files[0].mode == 0o640
    assert data(store, "checkpoints/f1-n1-s10/shard1") == b"1" * 98

    again = ranks(0)
    fence = claimed(again, 2)
    assert fence == 2
    history = again.run.history()
    [found] = again.run.candidates(history)
    assert (found.name, found.durable, found.needs, found.bytes) == (ship.name, True, [0, 1], 197)
    parent = again.run.position_of(history, found.name)
    assert parent == Parent(name="f1-n1-s10", step=10)
    again.run.set_parent(fence=fence, parent=parent)
    shipped(again, fence, again.run.next_n(history, fence), 20)
    listed = [c.name for c in again.run.candidates(again.run.history())]
    assert listed == ["f2-n1-s20", "f1-n1-s10"]

    index = json.loads(data(store, "manifest.json"))
    assert [(c["step"], c["is_valid"]) for c in index["checkpoints"]] == [(10, True), (20, True)]
    assert index["latest_valid_checkpoint"].endswith("/ns/gpt/checkpoints/f2-n1-s20/ckpt_20")
    assert {"path", "epoch", "validation_loss", "timestamp"} <= set(index["checkpoints"][0])


def test_the_manifest_is_the_last_write_before_the_index(ranks: Ranks, store: Store) -> None:
    if not isinstance(store, MemoryStore):
        pytest.skip("needs the order of writes")
    written: list[str] = []
    store.after_write = written.append
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    shipped(zero, fence, 1, 10)
    assert [key.removeprefix("ns/gpt/") for key in written] == [
        "run.json",
        "fences/00000001.json",
        "fences/00000001.json",
        "ships/f1/1.json",
        "checkpoints/f1-n1-s10/ckpt_10",
        "parts/f1/1/0.json",
        "manifests/f1-n1.json",
        "manifest.json",
    ]


def test_what_a_zombie_publishes_is_refused(ranks: Ranks) -> None:
    zombie, new = ranks(0), ranks(0)
    old = claimed(zombie, 1, parent=SCRATCH)
    shipped(zombie, old, 1, 10)
    save = facts(20)
    ship = named(zombie, old, 2, save, {0: ["ckpt_20"]})
    fence = claimed(new, 2)
    new.run.set_parent(fence=fence, parent=Parent(name="f1-n1-s10", step=10))
    zombie.run.moving.upload_part(ship, files=zombie.save("z", {"ckpt_20": b"late"}), save=save)
    assert zombie.run.try_commit(ship, fence=old) == FenceLost(fence)
    assert zombie.run.set_parent(fence=old, parent=SCRATCH) == FenceLost(fence)
    assert zombie.run.set_outcome(fence=old, outcome=Outcome.COMPLETE) == FenceLost(fence)
    assert zombie.run.retain(fence=old, keep_last=1) == FenceLost(fence)
    assert zombie.run.claim(attempt=1, world_size=2) == Superseded(2, fence)
    assert not zombie.run.held(old)
    assert [c.name for c in new.run.candidates(new.run.history())] == ["f1-n1-s10"]


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
    done = new.run.roll_forward(new.run.history(), fence=fence)
    assert (done.committed, done.dropped) == (("f1-n1-s10",), ())
    assert [(c.name, c.durable) for c in new.run.candidates(done.history)] == [
        ("f1-n2-s20", False),
        ("f1-n1-s10", True),
    ]
    done = new.run.roll_forward(new.run.history(), fence=fence, gone=[1])
    assert [name for name, _ in done.dropped] == ["f1-n2-s20"]
    assert "rank 1" in done.dropped[0][1]
    assert [c.name for c in new.run.candidates(new.run.history())] == ["f1-n1-s10"]
    assert new.run.roll_forward(new.run.history(), fence=fence, gone=[1]).dropped == ()


def test_a_replaced_rank_answers_none_and_the_save_is_dropped(ranks: Ranks) -> None:
    zero, one = ranks(0), ranks(1)
    fence = claimed(zero, 1, parent=SCRATCH)
    ship = named(zero, fence, 1, facts(10), {0: ["a"], 1: ["b"]})
    zero.run.moving.upload_part(ship, files=zero.save("s", {"a": b"0"}), save=facts(10))
    one.run.answer_none(ship, why="this pod is new")
    outcome = zero.run.try_commit(ship, fence=fence)
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
    assert zero.run.try_commit(ship, fence=fence) == Waiting((1,))
    one.run.moving.upload_part(ship, files=one.save("s", {"shard1": b"1"}), save=save)
    outcome = zero.run.try_commit(ship, fence=fence)
    assert isinstance(outcome, Committed)
    assert [file.path for file in outcome.manifest.files] == ["shard0", "shard1"]

    torn = named(zero, fence, 2, save, {0: ["shard0"]})
    zero.run.moving.upload_part(torn, files=zero.save("t", {"shard0": b"0"}), save=save)
    one.run.answer_none(torn, why="nothing here")
    outcome = zero.run.try_commit(torn, fence=fence)
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
    outcome = zero.run.try_commit(ship, fence=fence)
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
    assert isinstance(zero.run.try_commit(ship, fence=fence), Committed)
    zero.run.moving.fetch(ship.name, tmp_path / "back")
    assert (tmp_path / "back/last").read_bytes() == b"weights"
    assert (tmp_path / "back/best").read_bytes() == b"WEIGHTS"
    stored = sorted(found.key for found in store.list("ns/gpt/checkpoints/"))
    assert [key.rpartition("/")[2] for key in stored] == ["best", "ckpt_10"]


def flip(store: Store, key: str) -> None:
    body = bytearray(data(store, key))
    body[len(body) // 2] ^= 1
    store.put(f"ns/gpt/{key}", bytes(body))


def test_newest_flipped_next_missing_third_taken(
    ranks: Ranks, store: Store, tmp_path: Path
) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    for n in (1, 2, 3):
        shipped(zero, fence, n, 10 * n)
    flip(store, "checkpoints/f1-n3-s30/ckpt_30")
    store.delete("ns/gpt/checkpoints/f1-n2-s20/ckpt_20")

    new = ranks(0)
    fence = claimed(new, 2)
    history = new.run.history()
    judged = new.run.judging.vet(
        new.run.candidates(history), incoming=tmp_path / "incoming", fence=fence
    )
    assert [(c.name, c.invalid) for c in judged] == [
        ("f1-n3-s30", "CheckpointCorrupt"),
        ("f1-n2-s20", "CheckpointObjectMissing"),
        ("f1-n1-s10", None),
    ]
    assert (tmp_path / "incoming/f1-n1-s10/ckpt_10").read_bytes() == b"weights of step 10"
    moved = new.run.moving.fetch("f1-n1-s10", tmp_path / "incoming/f1-n1-s10")
    assert moved == Fetched(files=1, bytes_from_peers=0, bytes_from_store=0, bytes_kept=18)
    history = new.run.history()
    assert [c.invalid for c in new.run.candidates(history)] == [c.invalid for c in judged]
    [flipped] = history.marks[SaveId(1, 3)]
    assert flipped.evidence["file"] == "ckpt_30"
    assert flipped.evidence["expected"] != flipped.evidence["got"]
    index = json.loads(data(store, "manifest.json"))
    assert [c["is_valid"] for c in index["checkpoints"]] == [True, False, False]
    assert index["latest_valid_checkpoint"].endswith("ckpt_10")

    store.delete("ns/gpt/checkpoints/f1-n1-s10/ckpt_10")
    judged = new.run.judging.vet(new.run.candidates(history), incoming=None, fence=fence)
    assert [c.invalid is None for c in judged] == [False, False, False]


def test_bytes_that_rot_under_an_unchanged_checksum_are_found_by_reading(
    ranks: Ranks, store: Store, tmp_path: Path
) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    shipped(zero, fence, 1, 10)
    if isinstance(store, MemoryStore) or store.url.startswith("s3"):
        pytest.skip("needs a store whose bytes can change under it")
    path = tmp_path / "store/ns/gpt/checkpoints/f1-n1-s10/ckpt_10"
    at = path.stat()
    with path.open("r+b") as file:
        file.write(b"W")
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    found = zero.run.candidates(zero.run.history())
    assert [c.invalid for c in zero.run.judging.vet(found, incoming=None)] == [None]
    [judged] = zero.run.judging.vet(found, incoming=tmp_path / "in")
    assert judged.invalid == "CheckpointCorrupt"
    assert list((tmp_path / "in/f1-n1-s10").iterdir()) == []


def test_a_pinned_save_is_not_fetched_to_be_proved(ranks: Ranks, tmp_path: Path) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    shipped(zero, fence, 1, 10)
    found = zero.run.candidates(zero.run.history())
    zero.run.judging.vet(found, pinned=["f1-n1-s10"], incoming=tmp_path / "in")
    assert not (tmp_path / "in").exists()


def test_a_trainer_that_ignored_its_checkpoint_publishes_nothing(ranks: Ranks) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    shipped(zero, fence, 1, 100)
    fence = claimed(zero, 2)
    parent = Parent(name="f1-n1-s100", step=100)
    zero.run.set_parent(fence=fence, parent=parent)
    refused = zero.run.name_ship(
        fence=fence, n=1, save=facts(10), seen={0: ["a"]}, world_size=2, parent=parent
    )
    assert isinstance(refused, Ignored)
    # Named by someone who did not know the step, it is still caught before the manifest.
    ship = named(zero, fence, 1, facts(None), {0: ["a"]})
    zero.run.moving.upload_part(ship, files=zero.save("x", {"a": b"1"}), save=facts(10))
    assert isinstance(zero.run.try_commit(ship, fence=fence), Ignored)
    claimed(zero, 3)
    history = zero.run.history()
    assert zero.run.roll_forward(history, fence=3).committed == ()
    assert [c.name for c in zero.run.candidates(history)] == ["f1-n1-s100"]
    equal = named(zero, fence, 2, facts(100), {0: ["a"]})
    assert equal.name == "f2-n2-s100"


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
    assert zero.run.part(SaveId(1, 1), 0) is None


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
    assert zero.run.part(SaveId(1, 1), 0) is None
    assert zero.run.moving.upload_part(ship, files=files, save=facts(10)).files


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
            lambda: zero.run.retain(fence=fence, keep_last=1),
        ):
            with pytest.raises(StoreProblem, match="as the highest") as raised:
                ask()
            assert raised.value.transient
    store.list = listed  # type: ignore[method-assign]
    assert zero.run.held(fence)
    assert not zero.run.held(old)


def test_an_object_damaged_between_part_and_commit_is_never_committed(
    ranks: Ranks, store: Store
) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    ship = named(zero, fence, 1, facts(10), {0: ["a"]})
    zero.run.moving.upload_part(ship, files=zero.save("s", {"a": b"12345"}), save=facts(10))
    flip(store, "checkpoints/f1-n1-s10/a")
    outcome = zero.run.try_commit(ship, fence=fence)
    assert isinstance(outcome, Dropped)
    assert outcome.reason == Reason.CHECKPOINT_CORRUPT
    assert zero.run.candidates(zero.run.history()) == []


def serve(directory: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(directory))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_peers_before_the_store_and_never_their_wrong_bytes(
    ranks: Ranks, store: Store, tmp_path: Path
) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    save = facts(10)
    ship = named(zero, fence, 1, save, {0: ["good file", "bad"]})
    bodies = {"good file": b"good bytes", "bad": b"other bytes"}
    zero.run.moving.upload_part(ship, files=zero.save("s", bodies), save=save)
    assert isinstance(zero.run.try_commit(ship, fence=fence), Committed)
    served = tmp_path / "peer/saves/f1-n1-s10/files"
    served.mkdir(parents=True)
    (served / "good file").write_bytes(b"good bytes")
    (served / "bad").write_bytes(b"wrong bytes")
    for peer in serve(tmp_path / "peer"):
        peers = ["http://127.0.0.1:9", peer]
        got = zero.run.moving.fetch(ship.name, tmp_path / "in", peers=peers)
        assert got == Fetched(2, bytes_from_peers=10, bytes_from_store=11, bytes_kept=0)
        assert (tmp_path / "in/bad").read_bytes() == b"other bytes"
        files = zero.run.wanted(ship.name)
        failed = zero.run.moving.fetch(
            ship.name, tmp_path / "in2", files=files, peers=peers, from_store=False
        )
        assert isinstance(failed, FetchFailed)
        assert failed.finding is None
        assert "bad" in failed.message


def test_a_disk_that_cannot_be_written_is_not_the_saves_fault(ranks: Ranks, tmp_path: Path) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    shipped(zero, fence, 1, 10)
    (tmp_path / "in").write_text("a file in the way")
    failed = zero.run.moving.fetch("f1-n1-s10", tmp_path / "in")
    assert isinstance(failed, FetchFailed)
    assert failed.finding is None
    assert isinstance(zero.run.moving.fetch("f9-n9-s9", tmp_path / "x"), FetchFailed)


def test_retention_marks_then_deletes_and_keeps_what_is_needed(
    store: Store, tmp_path: Path
) -> None:
    clock = [1000.0]
    run = Run(
        store=store,
        run_id="ns/gpt",
        cluster_uid="cluster",
        job_uid="job",
        rank=0,
        union_gate=all_ranks_have_a_shard,
        now=lambda: clock[0],
    )
    zero = Rank(run, 0, tmp_path / "disk")
    fence = claimed(zero, 1, parent=SCRATCH)
    for n in range(1, 6):
        shipped(zero, fence, n, 10 * n)
    run.judging.mark(
        "f1-n1-s10", kind=MarkKind.PINNED, reason="Restoring", message="someone restores"
    )
    done = run.retain(fence=fence, keep_last=2, in_use=["f1-n2-s20"])
    assert done == Retained(("f1-n3-s30",), ())
    assert run.retain(fence=fence, keep_last=2, in_use=["f1-n2-s20"]) == Retained((), ())
    assert store.head("ns/gpt/checkpoints/f1-n3-s30/ckpt_30") is not None
    clock[0] += 3600
    done = run.retain(fence=fence, keep_last=2, in_use=["f1-n2-s20"])
    assert done == Retained((), ("f1-n3-s30",))
    assert list(store.list("ns/gpt/checkpoints/f1-n3-s30/")) == []
    listed = [c.name for c in run.candidates(run.history())]
    assert listed == ["f1-n5-s50", "f1-n4-s40", "f1-n2-s20", "f1-n1-s10"]
    assert run.next_n(run.history(), fence) == 6
    assert run.retain(fence=fence, keep_last=0) == Retained(("f1-n2-s20", "f1-n4-s40"), ())


def test_only_verified_saves_count_towards_keep_last(ranks: Ranks) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    for n, status in enumerate(("Verified", "Verified", "Verified", "Settled", "Settled"), 1):
        shipped(zero, fence, n, 10 * n, status=status)
    done = zero.run.retain(fence=fence, keep_last=2)
    assert done == Retained(("f1-n1-s10",), ()), "two settled ones are no two proved ones"


def test_a_save_that_a_newer_one_carries_a_file_of_is_kept(ranks: Ranks) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    best = {"carried": [{"path": "best.pt", "fence": fence, "n": 1, "step": 10}]}
    for n in range(1, 5):
        shipped(zero, fence, n, 10 * n, facts=best if n > 1 else {})
    assert zero.run.retain(fence=fence, keep_last=1) == Retained(("f1-n2-s20", "f1-n3-s30"), ())


def test_records_that_cannot_be_read_are_told_by_name(ranks: Ranks, store: Store) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    shipped(zero, fence, 1, 10)
    shipped(zero, fence, 2, 20)
    store.put("ns/gpt/manifests/f1-n2.json", b"{}")
    fresh = ranks(0)
    assert [(c.name, c.invalid) for c in fresh.run.candidates(fresh.run.history())] == [
        ("f1-n2-s20", "RunDamaged"),
        ("f1-n1-s10", None),
    ]
    store.put("ns/gpt/fences/00000001.json", b"not JSON")
    with pytest.raises(StoreProblem, match=r"fences/00000001.json is no FenceRecord") as raised:
        fresh.run.history()
    assert raised.value.reason == Reason.RUN_DAMAGED
    assert not raised.value.transient


def test_a_store_without_conditional_writes_is_refused(tmp_path: Path) -> None:
    class Careless(MemoryStore):
        def put(self, key: str, data: bytes, *, condition: object = None):  # type: ignore[no-untyped-def]
            return super().put(key, data)

        def probe(self, prefix: str):  # type: ignore[no-untyped-def]
            from rtj_sidecar.stores.base import Capabilities

            return Capabilities(False, False, "none")

    run = Run(
        store=Careless(),
        run_id="r",
        cluster_uid="c",
        job_uid="j",
        rank=0,
        union_gate=all_ranks_have_a_shard,
    )
    with pytest.raises(StoreProblem, match="conditional writes") as raised:
        run.claim(attempt=1, world_size=1)
    assert raised.value.reason == Reason.STORE_UNSUPPORTED


def test_a_names_format_is_told(ranks: Ranks) -> None:
    run = ranks(0).run
    with pytest.raises(StoreProblem, match="f<fence>-n<n>-s<step>"):
        run.position_of(run.history(), "latest")
    assert run.judging.mark("latest", kind=MarkKind.INVALID, reason="x", message="") is None
    assert run.manifest("latest") is None


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
    assert zero.run.answer_none(ship, why="too late") == part
    assert written == []
