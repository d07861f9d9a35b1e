"""Lightning, Composer, fastai, torchtune, TensorFlow, Keras and Orbax: whole saves are Verified,
damaged ones refused for the right reason, and never resumed from.

The trees are made by hand; `tests/frameworks` compares them with those of the real libraries.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import handmade_saves as by_hand
from kit.checkpoint_verdicts import expect_torn, look
from kit.damage import Damage, cut, emptied, hole, lost, renamed, written
from kit.handmade import age
from rtj_sidecar.checkpoints.types import Reason, Status

Build = Callable[[Path], object]

# name -> (layout, root key, step, epoch, full state, how it is built)
SAVES: dict[str, tuple[str, str, int | None, int | None, bool | None, Build]] = {
    "lightning": (
        "lightning", "epoch=1-step=10.ckpt", 10, 1, True,
        lambda root: by_hand.lightning(root, step=10),
    ),
    "lightning-hpc": (
        "lightning", "hpc_ckpt_3.ckpt", 10, 1, True,
        lambda root: by_hand.lightning(root, step=10, name="hpc_ckpt_3.ckpt"),
    ),
    "lightning-weights": (
        "lightning", "epoch=1-step=10.ckpt", 10, 1, False,
        lambda root: by_hand.lightning(root, step=10, full=False),
    ),
    "lightning-sharded": (
        "lightning", "epoch=1-step=10.ckpt", 10, 1, True,
        lambda root: by_hand.lightning_sharded(root, step=10),
    ),
    "composer": (
        "composer", "ep0-ba10-rank0.pt", 10, 0, True, lambda root: by_hand.composer(root, batch=10)
    ),
    "fastai": (
        "fastai", "models/run_3.pth", None, 3, True, lambda root: by_hand.fastai(root, epoch=3)
    ),
    "torchtune": (
        "torchtune", "epoch_1", None, 1, True, lambda root: by_hand.torchtune(root, epoch=1)
    ),
    "torchtune-inside": (
        "torchtune", "epoch_1", None, 1, True,
        lambda root: by_hand.torchtune(root, epoch=1, inside=True),
    ),
    "tensorflow": (
        "tf-checkpoint", "ckpt-3.index", 30, None, True,
        lambda root: by_hand.tensorflow(root, number=3, step=30),
    ),
    "tensorflow-shards": (
        "tf-checkpoint", "ckpt-3.index", 30, None, True,
        lambda root: by_hand.tensorflow(root, number=3, step=30, shards=3),
    ),
    "keras-weights": (
        "keras", "epoch_02.weights.h5", 20, 2, True,
        lambda root: by_hand.keras_weights(root / "epoch_02.weights.h5", step=20),
    ),
    "keras-h5": (
        "keras", "epoch_02.h5", 20, 2, True,
        lambda root: by_hand.keras_weights(root / "epoch_02.h5", step=20),
    ),
    "keras-archive": (
        "keras", "epoch_02.keras", 20, 2, True,
        lambda root: by_hand.keras_archive(root / "epoch_02.keras", step=20),
    ),
    "keras-backup": (
        "keras", "latest.weights.h5", 20, 2, True,
        lambda root: by_hand.keras_backup(root, epoch=2, step=20),
    ),
    "keras-double": (
        "keras", "latest.weights.h5", 20, 2, True,
        lambda root: by_hand.keras_backup(root, epoch=2, step=20, double=True),
    ),
    "orbax": ("orbax", "20", 20, 2, True, lambda root: by_hand.orbax(root, step=20)),
    "orbax-two": (
        "orbax", "20", 20, 2, True, lambda root: by_hand.orbax(root, step=20, processes=2)
    ),
    "orbax-weights": (
        "orbax", "20", 20, 2, False, lambda root: by_hand.orbax(root, step=20, optimizer=False)
    ),
}  # fmt: skip


def made(root: Path, name: str) -> str:
    SAVES[name][5](root)
    age(root)
    return SAVES[name][1]


@pytest.mark.parametrize("name", SAVES)
def test_a_whole_save_is_verified_with_what_it_says(tmp_path: Path, name: str) -> None:
    layout, key, step, epoch, full, _ = SAVES[name]
    made(tmp_path, name)
    found = look(tmp_path)
    assert set(found) == {key}
    save, verdict = found[key]
    assert (verdict.status, verdict.candidate) == (Status.VERIFIED, True), verdict.message
    assert (save.layout, save.step, save.epoch, save.full_state) == (layout, step, epoch, full)


def stale(name: str) -> Damage:
    """Written after all the others."""

    def do(root: Path) -> None:
        status = (root / name).stat()
        when = status.st_mtime_ns + 5_000_000_000
        os.utime(root / name, ns=(when, when))

    return do


CKPT, TF = "epoch=1-step=10.ckpt", "ckpt-3.data-00000-of-00001"
STATE = "recipe_state/recipe_state.pt"
MODEL = "epoch_1/model-00001-of-00001.safetensors"
MANIFEST, NODE = "20/state/manifest.ocdbt", f"20/state/ocdbt.process_0/d/{by_hand.HEX}"
DAMAGED: dict[str, tuple[str, Damage, Reason, str]] = {
    "lightning cut": ("lightning", cut(CKPT), Reason.TRUNCATED, CKPT),
    "lightning empty": ("lightning", emptied(CKPT), Reason.TRUNCATED, CKPT),
    "lightning hole": ("lightning", hole(CKPT), Reason.CHECKSUM_MISMATCH, "CRC-32"),
    "hpc cut": ("lightning-hpc", cut("hpc_ckpt_3.ckpt"), Reason.TRUNCATED, "hpc_ckpt_3.ckpt"),
    "no meta": ("lightning-sharded", lost(f"{CKPT}/meta.pt"), Reason.MARKER_MISSING, "meta.pt"),
    "meta cut": ("lightning-sharded", cut(f"{CKPT}/meta.pt"), Reason.TRUNCATED, "meta.pt"),
    "shards no marker": (
        "lightning-sharded", lost(f"{CKPT}/.metadata"), Reason.MARKER_MISSING, ".metadata"
    ),
    "no shard": (
        "lightning-sharded", lost(f"{CKPT}/__1_0.distcp"), Reason.FILES_MISSING, "__1_0.distcp"
    ),
    "shard newer": (
        "lightning-sharded", stale(f"{CKPT}/__1_0.distcp"), Reason.MIXED_GENERATIONS, "__1_0"
    ),
    "shards alone": (
        "lightning-sharded", lost(f"{CKPT}/.metadata", f"{CKPT}/meta.pt"),
        Reason.MARKER_MISSING, ".metadata",
    ),
    "composer cut": ("composer", cut("ep0-ba10-rank0.pt"), Reason.TRUNCATED, "ep0-ba10-rank0.pt"),
    "composer hole": ("composer", hole("ep0-ba10-rank0.pt"), Reason.CHECKSUM_MISMATCH, "CRC-32"),
    "state cut": ("torchtune", cut(STATE), Reason.TRUNCATED, "recipe_state.pt"),
    "state hole": ("torchtune", hole(STATE), Reason.CHECKSUM_MISMATCH, "recipe_state.pt"),
    "state inside cut": (
        "torchtune-inside", cut("epoch_1/recipe_state.pt"), Reason.TRUNCATED, "recipe_state.pt"
    ),
    "weights cut": ("torchtune", cut(MODEL), Reason.TRUNCATED, MODEL),
    "no weights": ("torchtune", lost(MODEL), Reason.FILES_MISSING, "model-00001-of-00001"),
    "index cut": ("tensorflow", cut("ckpt-3.index"), Reason.TRUNCATED, "ckpt-3.index"),
    "index hole": (
        "tensorflow", hole("ckpt-3.index", at=0.1), Reason.CHECKSUM_MISMATCH, "CRC-32C"
    ),
    "data cut": ("tensorflow", cut(TF), Reason.TRUNCATED, TF),
    "data hole": ("tensorflow", hole(TF), Reason.CHECKSUM_MISMATCH, "CRC-32C"),
    "data empty": ("tensorflow", emptied(TF), Reason.TRUNCATED, TF),
    "data lost": (
        "tensorflow-shards", lost("ckpt-3.data-00001-of-00003"), Reason.FILES_MISSING, "1 of 3"
    ),
    "h5 cut": (
        "keras-weights", cut("epoch_02.weights.h5"), Reason.TRUNCATED, "superblock says"
    ),
    "h5 empty": ("keras-weights", emptied("epoch_02.weights.h5"), Reason.TRUNCATED, "epoch_02"),
    "h5 no head": (
        "keras-weights", hole("epoch_02.weights.h5", at=0.0, size=96), Reason.TRUNCATED, "close"
    ),
    "archive cut": ("keras-archive", cut("epoch_02.keras"), Reason.TRUNCATED, "epoch_02.keras"),
    "archive hole": (
        "keras-archive", hole("epoch_02.keras"), Reason.CHECKSUM_MISMATCH, "CRC-32"
    ),
    "backup cut": ("keras-backup", cut("latest.weights.h5"), Reason.TRUNCATED, "latest"),
    "backup half": (
        "keras-backup", stale("latest.weights.h5"), Reason.MIXED_GENERATIONS, "different epochs"
    ),
    "no count": (
        "keras-backup", lost("training_metadata.json"), Reason.MARKER_MISSING, "training_metadata"
    ),
    "count cut": (
        "keras-backup", written("training_metadata.json", '{"epo'), Reason.MARKER_INVALID, "JSON"
    ),
    "no epoch": (
        "keras-backup", written("training_metadata.json", '{"batch": 1}'),
        Reason.MARKER_INVALID, "epoch",
    ),
    "not committed": (
        "orbax", written("20/_CHECKPOINT_METADATA", '{"commit_timestamp_nsecs": null}'),
        Reason.MARKER_MISSING, "commit",
    ),
    "marker cut": (
        "orbax", written("20/_CHECKPOINT_METADATA", '{"commit'), Reason.MARKER_INVALID, "JSON"
    ),
    "item temporary": (
        "orbax", renamed("20/state", "20/state.orbax-checkpoint-tmp"),
        Reason.MARKER_MISSING, "renamed",
    ),
    "commit lost": (
        "orbax", lost("20/commit_success.txt"), Reason.MARKER_MISSING, "20/commit_success.txt",
    ),
    "commit of an item lost": (
        "orbax", lost("20/state/commit_success.txt"), Reason.MARKER_MISSING, "20/state/commit",
    ),
    "manifest cut": ("orbax", cut(MANIFEST), Reason.TRUNCATED, MANIFEST),
    "manifest hole": ("orbax", hole(MANIFEST, size=8), Reason.CHECKSUM_MISMATCH, "CRC-32C"),
    "manifest lost": ("orbax", lost(MANIFEST), Reason.FILES_MISSING, "manifest.ocdbt"),
    "values empty": (
        "orbax", emptied(f"20/state/d/{by_hand.HEX}"), Reason.TRUNCATED, by_hand.HEX
    ),
    "node hole": ("orbax", hole(NODE, size=8), Reason.CHECKSUM_MISMATCH, by_hand.HEX),
    "tree cut": ("orbax", cut("20/state/_METADATA"), Reason.MALFORMED, "_METADATA"),
    "item lost": ("orbax", lost("20/extra"), Reason.FILES_MISSING, "20/extra/"),
    "item empty": ("orbax", lost("20/extra/metadata"), Reason.FILES_MISSING, "20/extra/"),
    "arrays lost": ("orbax", lost("20/state"), Reason.FILES_MISSING, "20/state/"),
    "process lost": (
        "orbax-two", lost("20/state/ocdbt.process_0"), Reason.FILES_MISSING, "process_0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_save_is_torn_and_says_why(tmp_path: Path, name: str) -> None:
    of, damage, reason, word = DAMAGED[name]
    key = made(tmp_path, of)
    damage(tmp_path)
    # Without its first file a save is named by the next.
    keys = set(look(tmp_path))
    expect_torn(tmp_path, key if key in keys else keys.pop(), reason, word)


def test_the_older_save_is_chosen_beside_a_torn_newer_one(tmp_path: Path) -> None:
    """For every library: what is Torn is no candidate, what is older stays one."""
    builders: dict[str, tuple[Build, Build, Damage]] = {
        "lightning": (
            lambda root: by_hand.lightning(root, step=10),
            lambda root: by_hand.lightning(root, step=20),
            cut("epoch=2-step=20.ckpt"),
        ),
        "composer": (
            lambda root: by_hand.composer(root, batch=10),
            lambda root: by_hand.composer(root, batch=20),
            cut("ep0-ba20-rank0.pt"),
        ),
        "fastai": (
            lambda root: by_hand.fastai(root, epoch=1),
            lambda root: by_hand.fastai(root, epoch=2),
            cut("models/run_2.pth"),
        ),
        "tensorflow": (
            lambda root: by_hand.tensorflow(root, number=1, step=10),
            lambda root: by_hand.tensorflow(root, number=2, step=20),
            lost("ckpt-2.index"),
        ),
        "keras": (
            lambda root: by_hand.keras_weights(root / "e_1.weights.h5", step=10),
            lambda root: by_hand.keras_weights(root / "e_2.weights.h5", step=20),
            cut("e_2.weights.h5"),
        ),
        "orbax": (
            lambda root: by_hand.orbax(root, step=9),
            lambda root: by_hand.orbax(root, step=10),
            renamed("10", "10.orbax-checkpoint-tmp"),
        ),
    }
    for name, (older, newer, damage) in builders.items():
        root = tmp_path / name
        older(root)
        newer(root)
        damage(root)
        verdicts = {verdict.status: verdict for _, verdict in look(root).values()}
        assert set(verdicts) == {Status.VERIFIED, Status.TORN}, name
        assert verdicts[Status.VERIFIED].candidate, name
        assert not verdicts[Status.TORN].candidate, name
