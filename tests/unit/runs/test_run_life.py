"""A run's life through the facade, on a directory and on a real S3 server."""

from __future__ import annotations

import json

import pytest
from kit.memory_store import MemoryStore
from kit.ranks import (
    SCRATCH,
    Ranks,
    claimed,
    data,
    facts,
    named,
    shipped,
)
from rtj_api.reasons import Reason
from rtj_sidecar.runs.commit import Committed, Waiting
from rtj_sidecar.runs.fence import Done, FenceLost, Superseded
from rtj_sidecar.runs.keeping import Keep
from rtj_sidecar.runs.records import MarkKind, Outcome, Parent
from rtj_sidecar.runs.ships import Ignored
from rtj_sidecar.stores.base import Small, Store, StoreProblem


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
    assert one.run.publishing.read_ships(fence=1) == [ship]
    assert one.run.publishing.read_ships(fence=1, since=1) == []
    zero.run.moving.upload_part(ship, files=zero.save("a", {"shard0": b"0" * 99}), save=save)
    assert zero.run.publishing.try_commit(ship, fence=fence) == Waiting((1,))
    [pending] = zero.run.candidates(zero.run.history())
    assert (pending.durable, pending.needs, pending.step) == (False, [0, 1], 10)
    one.run.moving.upload_part(ship, files=one.save("a", {"shard1": b"1" * 98}), save=save)
    outcome = zero.run.publishing.try_commit(ship, fence=fence)
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
    assert zombie.run.publishing.try_commit(ship, fence=old) == FenceLost(fence)
    assert zombie.run.set_parent(fence=old, parent=SCRATCH) == FenceLost(fence)
    assert zombie.run.set_outcome(fence=old, outcome=Outcome.COMPLETE) == FenceLost(fence)
    assert zombie.run.tending.retain(fence=old, keep=Keep(last=1)) == FenceLost(fence)
    assert zombie.run.claim(attempt=1, world_size=2) == Superseded(2, fence)
    assert not zombie.run.held(old)
    assert [c.name for c in new.run.candidates(new.run.history())] == ["f1-n1-s10"]


def test_a_trainer_that_ignored_its_checkpoint_publishes_nothing(ranks: Ranks) -> None:
    zero = ranks(0)
    fence = claimed(zero, 1, parent=SCRATCH)
    shipped(zero, fence, 1, 100)
    fence = claimed(zero, 2)
    parent = Parent(name="f1-n1-s100", step=100)
    zero.run.set_parent(fence=fence, parent=parent)
    refused = zero.run.publishing.name_ship(
        fence=fence, n=1, save=facts(10), seen={0: ["a"]}, world_size=2, parent=parent
    )
    assert isinstance(refused, Ignored)
    # Named by someone who did not know the step, it is still caught before the manifest.
    ship = named(zero, fence, 1, facts(None), {0: ["a"]})
    zero.run.moving.upload_part(ship, files=zero.save("x", {"a": b"1"}), save=facts(10))
    assert isinstance(zero.run.publishing.try_commit(ship, fence=fence), Ignored)
    claimed(zero, 3)
    history = zero.run.history()
    assert zero.run.publishing.roll_forward(history, fence=3).committed == ()
    assert [c.name for c in zero.run.candidates(history)] == ["f1-n1-s100"]
    equal = named(zero, fence, 2, facts(100), {0: ["a"]})
    assert equal.name == "f2-n2-s100"


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


@pytest.mark.parametrize(
    "reason", [Reason.CREDENTIALS_REFUSED, Reason.STORE_UNREACHABLE, Reason.INTERNAL_ERROR]
)
def test_a_store_that_refuses_to_be_read_makes_no_save_broken(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, reason: Reason
) -> None:
    """Keys that were taken away while it was listed: unknown is not bad, also where no other try
    of the same call would help."""
    store = MemoryStore()
    zero = ranks(0, store=store)
    fence = claimed(zero, 1, parent=SCRATCH)
    shipped(zero, fence, 1, 10)
    read = store.get

    def refuse(key: str) -> Small | None:
        if "/manifests/" in key:
            raise StoreProblem(reason, f"get {key}: AccessDenied")
        return read(key)

    monkeypatch.setattr(store, "get", refuse)
    with pytest.raises(StoreProblem) as raised:
        ranks(0, store=store).run.history()
    assert raised.value.reason == reason


def test_a_names_format_is_told(ranks: Ranks) -> None:
    run = ranks(0).run
    with pytest.raises(StoreProblem, match="f<fence>-n<n>-s<step>"):
        run.position_of(run.history(), "latest")
    assert run.judging.mark("latest", kind=MarkKind.INVALID, reason="x", message="") is None
    assert run.manifest("latest") is None
