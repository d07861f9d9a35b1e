"""What the libraries' own resume needs beside the files, and what a save of theirs holds."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from kit import handmade_saves as by_hand
from kit.checkpoint_looks import judged
from kit.checkpoint_verdicts import look
from kit.handmade import Object, age
from kit.put_back import look as look_whole
from kit.put_back import put_back, ship
from rtj_sidecar.checkpoints.layouts import layout_named
from rtj_sidecar.checkpoints.pin_choice import InodeHistory, PinHow, how_to_pin
from rtj_sidecar.checkpoints.types import Expectations, FoundSave, PartFiles, Reason, Status


def restored(root: Path, key: str, into: Path) -> Path:
    """That save, shipped from `root` as it is now and put back into `into`."""
    snapshot, _, _ = look_whole(root)
    save = next(found for found in snapshot.saves if found.root_key == key)
    shipped = ship(root, save, snapshot, into=into.with_name(f"{into.name}-store"))
    put_back(shipped, into)
    return into


def held(save: FoundSave) -> object:
    return save.facts["has"]


# --- Lightning ---


def test_last_is_an_alias_and_a_second_file_of_a_step_is_a_save(tmp_path: Path) -> None:
    by_hand.lightning(tmp_path, step=10)
    by_hand.lightning(tmp_path, step=10, name="epoch=1-step=10-v1.ckpt")
    by_hand.lightning(tmp_path, step=20, name="last.ckpt")
    by_hand.lightning(tmp_path, step=20)
    found = look(tmp_path)
    assert set(found) == {
        "epoch=1-step=10.ckpt",
        "epoch=1-step=10-v1.ckpt",
        "epoch=2-step=20.ckpt",
    }
    assert [e.path for e in found["epoch=2-step=20.ckpt"][0].aliases] == ["last.ckpt"]


def test_last_is_rebuilt_as_the_link_that_it_was(tmp_path: Path) -> None:
    root = tmp_path / "run"
    for step in (10, 20):
        by_hand.lightning(root, step=step)
    (root / "last.ckpt").symlink_to("epoch=2-step=20.ckpt")
    fresh = restored(root, "epoch=1-step=10.ckpt", tmp_path / "fresh")
    assert os.readlink(fresh / "last.ckpt") == "epoch=1-step=10.ckpt"
    back = restored(root, "epoch=1-step=10.ckpt", root)
    assert os.readlink(back / "last.ckpt") == "epoch=1-step=10.ckpt"
    assert not (back / "epoch=2-step=20.ckpt").exists()


def test_a_torn_last_is_replaced_by_a_copy_that_shares_no_inode(tmp_path: Path) -> None:
    """Killed while `last.ckpt` was written over: without it Lightning begins anew."""
    root = tmp_path / "run"
    whole = by_hand.lightning(root, step=20)
    (root / "last.ckpt").write_bytes(whole.read_bytes()[:900])
    assert look(root)["last.ckpt"][1].status is Status.TORN
    for place in (restored(root, whole.name, tmp_path / "fresh"), restored(root, whole.name, root)):
        one, two = place / "last.ckpt", place / whole.name
        assert one.read_bytes() == two.read_bytes()
        assert one.stat().st_ino != two.stat().st_ino
        found = look(place)
        assert {key: v.status for key, (_, v) in found.items()} == {whole.name: Status.VERIFIED}
        assert [e.path for e in found[whole.name][0].aliases] == ["last.ckpt"]
    assert list((root / ".rtj" / "quarantine").rglob("last.ckpt"))


def test_lightning_says_what_it_does_not_save(tmp_path: Path) -> None:
    by_hand.lightning(tmp_path, step=10)
    by_hand.lightning(tmp_path, step=20, loader=True)
    by_hand.lightning(tmp_path, step=30, full=False)
    first, second, third = (save for save, _ in look(tmp_path).values())
    assert held(first) == {"optimizer": True, "scheduler": True, "rng": False, "loader": False}
    assert held(second) == {"optimizer": True, "scheduler": True, "rng": False, "loader": True}
    assert held(third) == {"optimizer": False, "scheduler": False, "rng": False, "loader": False}


def test_a_loss_in_the_name_is_the_only_one(tmp_path: Path) -> None:
    by_hand.lightning(tmp_path, step=10, name="epoch=1-val_loss=0.25.ckpt")
    assert look(tmp_path)["epoch=1-val_loss=0.25.ckpt"][0].loss == 0.25


def test_a_sharded_save_is_whole_only_over_all_ranks(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    place = by_hand.lightning_sharded(one, step=10)
    (two / place.name).mkdir(parents=True)
    (place / "__1_0.distcp").rename(two / place.name / "__1_0.distcp")
    age(one)
    part = Expectations(world_size=2, whole=False)
    found = [judged(root, expect=part)[place.name] for root in (one, two)]
    assert [verdict.status for _, verdict in found] == [Status.VERIFIED, Status.VERIFIED]
    parts = [
        PartFiles(rank, {e.path: e.size for e in save.files}, verdict.facts)
        for rank, (save, verdict) in enumerate(found)
    ]
    layout = layout_named("lightning")
    assert layout is not None
    assert layout.union_gate(parts=parts, expect=part).passed is True
    assert layout.union_gate(parts=parts[:1], expect=part).reason is Reason.FILES_MISSING
    assert layout.union_gate(parts=parts[1:], expect=part).reason is Reason.MARKER_MISSING


# --- Composer ---


def test_rank_0_writes_for_all_unless_another_rank_has_a_file(tmp_path: Path) -> None:
    by_hand.composer(tmp_path, batch=10)
    assert look(tmp_path, world_size=4)["ep0-ba10-rank0.pt"][1].status is Status.VERIFIED
    by_hand.composer(tmp_path, batch=10, rank=1)
    found = look(tmp_path, world_size=2)
    assert [e.path for e in found["ep0-ba10-rank0.pt"][0].files] == [
        "ep0-ba10-rank0.pt",
        "ep0-ba10-rank1.pt",
    ]
    assert found["ep0-ba10-rank0.pt"][1].status is Status.VERIFIED
    verdict = look(tmp_path, world_size=3)["ep0-ba10-rank0.pt"][1]
    assert (verdict.status, verdict.reason) == (Status.TORN, Reason.FILES_MISSING)


def test_a_link_to_a_file_that_is_gone_tells_of_it_where_all_ranks_files_should_be(
    tmp_path: Path,
) -> None:
    for rank in (0, 1):
        by_hand.composer(tmp_path, batch=10, rank=rank)
    (tmp_path / "ep0-ba10-rank1.pt").unlink()
    assert os.readlink(tmp_path / "latest-rank1.pt") == "ep0-ba10-rank1.pt"
    age(tmp_path)
    verdict = look(tmp_path, world_size=2)["ep0-ba10-rank0.pt"][1]
    assert (verdict.status, verdict.reason) == (Status.TORN, Reason.FILES_MISSING)
    assert "ep0-ba10-rank1.pt" in verdict.message
    part = Expectations(world_size=2, whole=False)
    verdict = judged(tmp_path, expect=part)["ep0-ba10-rank0.pt"][1]
    assert verdict.status is Status.VERIFIED, "another rank's disk may have it"


PART = "torch.distributed._shard.sharded_tensor.api"
SHARDED = {
    "parts": {"w": Object(PART, "ShardedTensor", {"_local_shards": []})},
    "flat": {"module._fsdp_wrapped_module.flat_param": None},
}


@pytest.mark.parametrize("kind", SHARDED)
def test_a_file_with_a_part_of_sharded_tensors_is_one_of_as_many_as_there_are_rng_states(
    tmp_path: Path, kind: str
) -> None:
    """Neither a file nor a link of rank 1 is left, and the job may have another size by now."""
    for batch in (10, 20):
        for rank in (0, 1):
            by_hand.composer(
                tmp_path, batch=batch, rank=rank, sharded=SHARDED[kind], world_size=2, link=False
            )
    (tmp_path / "ep0-ba20-rank1.pt").unlink()
    age(tmp_path)
    found = judged(tmp_path, expect=Expectations(earlier=True))
    assert found["ep0-ba10-rank0.pt"][1].status is Status.VERIFIED
    save, verdict = found["ep0-ba20-rank0.pt"]
    assert save.facts["world_size"] == 2
    assert (verdict.status, verdict.reason) == (Status.TORN, Reason.FILES_MISSING)
    assert "rank 1" in verdict.message


def test_rank_0_of_many_alone_is_whole_where_its_state_is_not_sharded(tmp_path: Path) -> None:
    by_hand.composer(tmp_path, batch=10, world_size=4)
    save, verdict = look(tmp_path, world_size=4)["ep0-ba10-rank0.pt"]
    assert (save.facts["world_size"], verdict.status) == (4, Status.VERIFIED)


def test_the_union_of_composer_has_the_files_that_its_content_proves(tmp_path: Path) -> None:
    by_hand.composer(tmp_path, batch=10, sharded=SHARDED["parts"], world_size=2)
    save = look(tmp_path)["ep0-ba10-rank0.pt"][0]
    layout = layout_named("composer")
    assert layout is not None
    name, part = "ep0-ba10-rank{}.pt", Expectations(world_size=2, whole=False, earlier=True)
    parts = [PartFiles(rank, {name.format(rank): 9}, save.facts) for rank in (0, 1)]
    assert layout.union_gate(parts=parts, expect=part).passed is True
    assert layout.union_gate(parts=parts[:1], expect=part).reason is Reason.FILES_MISSING


def test_latest_is_rebuilt_where_a_kill_left_none(tmp_path: Path) -> None:
    root = tmp_path / "run"
    for batch in (10, 20):
        by_hand.composer(root, batch=batch, link=False)
    fresh = restored(root, "ep0-ba20-rank0.pt", tmp_path / "fresh")
    assert os.readlink(fresh / "latest-rank0.pt") == "ep0-ba20-rank0.pt"


# --- torchtune ---


def test_the_recipes_state_belongs_to_the_epoch_that_it_states(tmp_path: Path) -> None:
    for epoch in (0, 1):
        by_hand.torchtune(tmp_path, epoch=epoch)
    found = look(tmp_path)
    assert [(s.root_key, s.full_state) for s, _ in found.values()] == [
        ("epoch_0", False),
        ("epoch_1", True),
    ]
    by_hand.torchtune(tmp_path, epoch=2, states=2)  # killed before the state was written
    full = {key: save.full_state for key, (save, _) in look(tmp_path).items()}
    assert full == {"epoch_0": False, "epoch_1": True, "epoch_2": False}
    shutil.rmtree(tmp_path / "recipe_state")
    assert {save.layout for save, _ in look(tmp_path).values()} == {"safetensors"}


def test_the_recipes_state_is_copied_before_the_next_epoch_writes_over_it(tmp_path: Path) -> None:
    by_hand.torchtune(tmp_path, epoch=1)
    plan = how_to_pin(save=look(tmp_path)["epoch_1"][0], history=InodeHistory())
    assert plan["recipe_state/recipe_state.pt"] is PinHow.COPY
    assert plan["epoch_1/model-00001-of-00001.safetensors"] is PinHow.LINK


def test_no_empty_directory_of_a_newer_epoch_stays(tmp_path: Path) -> None:
    """Killed within the recipe's state, which both epochs share: found by a real kill."""
    root = tmp_path / "run"
    by_hand.torchtune(root, epoch=1)
    snapshot, _, _ = look_whole(root)
    shipped = ship(root, snapshot.saves[0], snapshot, into=tmp_path / "store")
    by_hand.torchtune(root, epoch=2)
    state = root / "recipe_state" / "recipe_state.pt"
    state.write_bytes(state.read_bytes()[:500])
    put_back(shipped, root)
    assert sorted(os.listdir(root)) == [".rtj", "epoch_1", "recipe_state"]
    assert look(root)["epoch_1"][0].full_state is True


# --- TensorFlow ---


def test_checkpoint_is_written_anew_with_a_relative_path(tmp_path: Path) -> None:
    root = tmp_path / "run"
    for number in (1, 2, 3):
        by_hand.tensorflow(root, number=number, step=number * 10)
    text = (root / "checkpoint").read_text()
    (root / "checkpoint").write_text(text.replace('"ckpt', f'"{root}/ckpt'))
    assert "checkpoint" not in {e.path for e in look_whole(root)[0].companions}
    wanted = 'model_checkpoint_path: "ckpt-2"\nall_model_checkpoint_paths: "ckpt-2"\n'
    fresh = restored(root, "ckpt-2.index", tmp_path / "fresh")
    assert (fresh / "checkpoint").read_text() == wanted
    restored(root, "ckpt-2.index", root)
    assert (root / "checkpoint").read_text() == wanted
    assert sorted(look(root)) == ["ckpt-1.index", "ckpt-2.index"]


def test_what_a_killed_save_left_is_a_torn_save(tmp_path: Path) -> None:
    by_hand.tensorflow(tmp_path, number=1, step=10)
    left = tmp_path / "ckpt-2_temp" / "part-00000-of-00001.data-00000-of-00001.tempstate42"
    left.parent.mkdir()
    left.write_bytes(b"half")
    verdicts = {key: verdict for key, (_, verdict) in look(tmp_path).items()}
    assert verdicts["ckpt-1.index"].candidate
    torn = verdicts[f"ckpt-2_temp/{left.name}"]
    assert (torn.status, torn.reason) == (Status.TORN, Reason.MARKER_MISSING)


def test_an_index_of_another_tool_is_no_save(tmp_path: Path) -> None:
    (tmp_path / "words.index").write_bytes(os.urandom(200))
    assert look(tmp_path) == {}


# --- Keras ---


def test_both_files_of_a_backup_come_back_from_the_one_before(tmp_path: Path) -> None:
    root = tmp_path / "run"
    by_hand.keras_backup(root, epoch=2, step=20)
    age(root)
    snapshot, _, _ = look_whole(root)
    before = ship(root, snapshot.saves[0], snapshot, into=tmp_path / "store")
    plan = how_to_pin(save=snapshot.saves[0], history=InodeHistory())
    assert set(plan.values()) == {PinHow.COPY}
    weights = root / "latest.weights.h5"
    kept = weights.read_bytes()
    weights.write_bytes(kept[:700])
    put_back(before, root)
    assert weights.read_bytes() == kept
    save, verdict = look(root)["latest.weights.h5"]
    assert (verdict.status, save.step, save.epoch) == (Status.VERIFIED, 20, 2)


def test_keras_spare_copy_rides_along(tmp_path: Path) -> None:
    by_hand.keras_backup(tmp_path, epoch=2, step=20, double=True)
    save = look(tmp_path)["latest.weights.h5"][0]
    assert [e.path for e in save.aliases] == [
        "latest.weights.h5.bkp",
        "training_metadata.json.bkp",
    ]


def test_data_in_hdf5_is_no_save(tmp_path: Path) -> None:
    (tmp_path / "train_1.h5").write_bytes(by_hand.hdf5_bytes({"images/0": os.urandom(40)}))
    assert look(tmp_path) == {}


def test_weights_without_the_optimizer_are_weights_only(tmp_path: Path) -> None:
    by_hand.keras_weights(tmp_path / "epoch_3.weights.h5", step=0, optimizer=False)
    save = look(tmp_path)["epoch_3.weights.h5"][0]
    assert (save.full_state, save.epoch) == (False, 3)
    assert held(save) == {"optimizer": False, "rng": False, "loader": False}


# --- Orbax ---


def test_what_orbax_never_cleans_up_is_set_aside(tmp_path: Path) -> None:
    for step in (10, 20):
        by_hand.orbax(tmp_path, step=step)
    (tmp_path / "20").rename(tmp_path / "20.orbax-checkpoint-tmp")
    found = look(tmp_path)
    assert found["20.orbax-checkpoint-tmp"][0].step == 20
    restored(tmp_path, "10", tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".rtj", "10"]


def test_a_single_directory_of_a_checkpointer_is_one_save(tmp_path: Path) -> None:
    by_hand.orbax(tmp_path, step=7)
    (tmp_path / "7" / "state").rename(tmp_path / "ck_7")
    shutil.rmtree(tmp_path / "7")
    marker = {"item_handlers": "orbax.StandardCheckpointHandler", "commit_timestamp_nsecs": 2}
    (tmp_path / "ck_7" / "_CHECKPOINT_METADATA").write_text(json.dumps(marker))
    save, verdict = look(tmp_path)["ck_7"]
    assert (save.step, verdict.status) == (7, Status.VERIFIED)


def test_the_union_of_orbax_has_every_item_that_its_marker_names(tmp_path: Path) -> None:
    by_hand.orbax(tmp_path, step=7)
    save, verdict = look(tmp_path)["7"]
    facts = {**save.facts, **verdict.facts}
    whole = {entry.path: entry.size for entry in save.files}
    layout = layout_named("orbax")
    assert layout is not None
    part = Expectations(world_size=2, whole=False)
    # A process that wrote on another disk is missed by nobody.
    assert layout.union_gate(parts=[PartFiles(0, whole, facts)], expect=part).passed is None
    half = {path: size for path, size in whole.items() if not path.startswith("7/extra/")}
    answer = layout.union_gate(parts=[PartFiles(0, half, facts)], expect=part)
    assert (answer.passed, answer.reason) == (False, Reason.FILES_MISSING)
    assert "7/extra/" in answer.detail


@pytest.mark.parametrize("name", ["fastai", "composer", "tf-checkpoint", "keras", "torchtune"])
def test_no_union_without_a_file(name: str) -> None:
    layout = layout_named(name)
    assert layout is not None
    assert layout.union_gate(parts=[], expect=Expectations()).passed is not True
