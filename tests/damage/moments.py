"""What a directory looks like in the midst of something: an old save half deleted, the disk full or
read-only, a file replaced while it is looked at; and names that public reports were about.

A trainer deletes with `shutil.rmtree`, whose order is the directory's: each file may be the first
to go. What is half deleted must never be resumed from, however whole what is left looks.
"""

from __future__ import annotations

import os
from pathlib import Path

from kit.damage import Damage, both, lost, renamed
from rtj_sidecar.checkpoints.types import Reason, Status

from damage.acts import added, cut, edited, emptied, linked, newer_by, zeros
from damage.case import Case, Kind, Pick, fine
from damage.trees import NEW, OLD, TREES

R, F, W, N, K = Kind.ROTATED, Kind.FULL, Kind.DURING, Kind.ORDER, Kind.KILLED
TORN, GOOD = Status.TORN, Status.VERIFIED
HF, DCP, DS, ITER = "checkpoint-1000", "step-1000", "global_step1000", "iter_0001000"
OLD_HF, OLD_DCP, OLD_DS = "checkpoint-900", "step-900", "global_step900"
PT = "ckpt_1000.pt"
SHARD = "step_1000/model-00002-of-00002.safetensors"
ZERO = "bf16_zero_pp_rank_{}_mp_rank_00_optim_states.pt"


def _half_deleted(
    tree: str, gone: str, reason: Reason, *, key: str | None = None, name: str = ""
) -> tuple[Case, Case]:
    """The older save without the files `gone`: once beside the newer one whole, once beside a newer
    one that is not finished either, when there is nothing to resume from."""
    of = TREES[tree]
    judged = of.key_of(OLD) if key is None else key
    what = name or f"{Path(gone).name} is deleted already"
    newer = cut(of.path_of(NEW))
    return (
        Case(f"{what}, the newer save is whole", R, tree, lost(gone), TORN, reason, Pick.NEWER,
             key=judged),
        Case(f"{what}, the newer save is half written", R, tree, both(lost(gone), newer), TORN,
             reason, Pick.NONE, key=judged, report="bghira/SimpleTuner#2989"),
    )  # fmt: skip


ROTATED = (
    *_half_deleted("hf", f"{OLD_HF}/trainer_state.json", Reason.MARKER_MISSING),
    *_half_deleted("hf", f"{OLD_HF}/model.safetensors", Reason.FILES_MISSING),
    *_half_deleted("hf", f"{OLD_HF}/rng_state_0.pth", Reason.FILES_MISSING),
    *_half_deleted("hf-deepspeed", f"{OLD_HF}/{OLD_DS}", Reason.FILES_MISSING),
    *_half_deleted("hf-fsdp", f"{OLD_HF}/pytorch_model_fsdp_0/__0_0.distcp", Reason.FILES_MISSING),
    Case("optimizer.bin is deleted already, the newer save is half written", R, "accelerate",
         both(lost("step_900/optimizer.bin"), cut("step_1000/model.safetensors")), GOOD,
         Reason.OK, Pick.NONE, key="step_900"),
    *_half_deleted("accelerate-fsdp", "step_900/optimizer_0/__1_0.distcp", Reason.FILES_MISSING),
    *_half_deleted("dcp", f"{OLD_DCP}/__0_0.distcp", Reason.FILES_MISSING),
    *_half_deleted("dcp", f"{OLD_DCP}/.metadata", Reason.MARKER_MISSING),
    *_half_deleted("deepspeed-2", f"{OLD_DS}/{ZERO.format(0)}", Reason.FILES_MISSING),
    *_half_deleted("deepspeed-2", f"{OLD_DS}/mp_rank_00_model_states.pt", Reason.FILES_MISSING),
    *_half_deleted("megatron", "iter_0000900/metadata.json", Reason.MARKER_MISSING),
    *_half_deleted("megatron", "iter_0000900/__0_0.distcp", Reason.FILES_MISSING),
    *_half_deleted("lightning-sharded", "epoch=9-step=900.ckpt/__0_0.distcp",
                   Reason.FILES_MISSING),
    *_half_deleted("orbax", "900/_CHECKPOINT_METADATA", Reason.MARKER_MISSING),
    *_half_deleted("orbax", "900/default/manifest.ocdbt", Reason.FILES_MISSING),
    *_half_deleted("orbax", "900/default/_METADATA", Reason.FILES_MISSING),
    *_half_deleted("orbax", "900/default/ocdbt.process_1/d", Reason.FILES_MISSING),
    *_half_deleted("orbax", "900/default", Reason.FILES_MISSING),
    *_half_deleted("tf", "ckpt-900.index", Reason.MARKER_MISSING,
                   key="ckpt-900.data-00000-of-00001"),
    *_half_deleted("tf", "ckpt-900.data-00000-of-00001", Reason.FILES_MISSING),
    *_half_deleted("nvrx", "run/1/iter_0000900_1_local.pt", Reason.FILES_MISSING),
    *_half_deleted("dlrover", "900/rank_0.pt", Reason.FILES_MISSING),
    *_half_deleted("composer", "ep9-ba900-rank0.pt", Reason.FILES_MISSING,
                   key="ep9-ba900-rank1.pt"),
    *_half_deleted("safetensors", "step_900/model-00001-of-00002.safetensors",
                   Reason.FILES_MISSING),
    Case("the only older save was deleted before the newer one was whole", R, "torch",
         both(lost("ckpt_900.pt"), cut(PT)), TORN, Reason.TRUNCATED, Pick.NONE,
         report="bghira/SimpleTuner#2989"),
)  # fmt: skip


def only(directory: str, *kept: str) -> Damage:
    """Nothing else of it was ever written; with no name kept it is an empty directory."""

    def do(root: Path) -> None:
        for path in sorted((root / directory).rglob("*"), reverse=True):
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif str(path.relative_to(root / directory)) not in kept:
                path.unlink()

    return do


def sparse(name: str, *, part: float) -> Damage:
    """Its full length was set, but its blocks from `part` on were never written."""

    def do(root: Path) -> None:
        status = (root / name).stat()
        os.truncate(root / name, int(status.st_size * part))
        os.truncate(root / name, status.st_size)
        os.utime(root / name, ns=(status.st_mtime_ns, status.st_mtime_ns))

    return do


FULL = (
    Case("full at rank 1's shard: it is cut, and .metadata has no bytes", F, "dcp",
         both(cut(f"{DCP}/__1_0.distcp"), emptied(f"{DCP}/.metadata")), TORN,
         Reason.MARKER_INVALID),
    Case("full at rank 1's shard, while rank 0 still found room for .metadata", F, "dcp",
         emptied(f"{DCP}/__1_0.distcp"), TORN, Reason.TRUNCATED),
    Case("full at optimizer.pt: what follows has no bytes", F, "hf",
         both(cut(f"{HF}/optimizer.pt"), *(emptied(f"{HF}/{name}") for name in (
             "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth", "trainer_state.json"))),
         TORN, Reason.MARKER_INVALID),
    Case("full at the model: smaller files after it found room", F, "hf",
         cut(f"{HF}/model.safetensors"), TORN, Reason.TRUNCATED),
    Case("its length was set, but its end was never written", F, "torch", sparse(PT, part=0.5),
         TORN, Reason.TRUNCATED),
    Case("its length was set, but its end was never written", F, "dcp",
         sparse(f"{DCP}/__0_0.distcp", part=0.8), TORN, Reason.TRUNCATED),
    Case("its length was set, but nothing was ever written", F, "keras",
         sparse("step-1000.weights.h5", part=0), TORN, Reason.TRUNCATED),
    Case("its length was set, but nothing was ever written", F, "safetensors",
         sparse(SHARD, part=0), TORN, Reason.MALFORMED),
    Case("full at a rank's optimizer states", F, "deepspeed-2",
         cut(f"{DS}/{ZERO.format(1)}", part=0.1), TORN, Reason.TRUNCATED),
    Case("full at the recipe's state, which has no bytes", F, "torchtune",
         emptied("epoch_10/recipe_state.pt"), TORN, Reason.TRUNCATED),
    Case("full at the index", F, "tf", emptied("ckpt-1000.index"), TORN, Reason.TRUNCATED),
    Case("full at the marker", F, "orbax", emptied("1000/_CHECKPOINT_METADATA"), TORN,
         Reason.MARKER_INVALID),
    Case("full at the temporary file: the name has no bytes, and no save was replaced", F, "torch",
         both(lost(PT), added("ckpt_1000.pt.tmp", b"")), None),
    fine("full at the tracker: it has no bytes", F, "dlrover", emptied("dlrover_latest.txt")),
    Case("full at a rank's file and at the tracker", F, "dlrover",
         both(cut("1000/rank_1.pt"), emptied("dlrover_latest.txt")), TORN, Reason.TRUNCATED),
    fine("full at the pointer: its new copy has no bytes, the old one names the older save", F,
         "deepspeed-2", both(edited("latest", lambda _: b"global_step900"),
                             added("latest.tmp", b"")), report="NVIDIA-NeMo/Automodel#3390"),
    Case("read-only after the directory was made: it is empty", F, "hf", only(HF), None,
         report="Lightning-AI/pytorch-lightning#21800"),
    Case("read-only after the first file", F, "hf", only(HF, "config.json"), TORN,
         Reason.MARKER_MISSING),
    Case("read-only after the model", F, "hf", only(HF, "config.json", "model.safetensors"), TORN,
         Reason.MARKER_MISSING),
    Case("read-only after the directory was made: it is empty", F, "dcp", only(DCP), None),
    Case("read-only after rank 0's shard", F, "dcp", only(DCP, "__0_0.distcp"), TORN,
         Reason.MARKER_MISSING, report="NVIDIA-NeMo/Automodel#3261"),
    Case("read-only before the rename of .metadata", F, "dcp",
         renamed(f"{DCP}/.metadata", f"{DCP}/.metadata.tmp"), TORN, Reason.MARKER_MISSING),
    Case("read-only before the save: it was never written", F, "lightning",
         lost("epoch=10-step=1000.ckpt"), None, report="Lightning-AI/pytorch-lightning#21800"),
    Case("read-only before metadata.json", F, "megatron", lost(f"{ITER}/metadata.json"), TORN,
         Reason.MARKER_MISSING),
    Case("read-only after the model states", F, "deepspeed-2",
         only(DS, "mp_rank_00_model_states.pt"), TORN, Reason.FILES_MISSING),
    Case("read-only before the last rename", F, "orbax",
         renamed("1000", "1000.orbax-checkpoint-tmp"), TORN, Reason.MARKER_MISSING,
         key="1000.orbax-checkpoint-tmp"),
)  # fmt: skip


def swapped_in(name: str, *, part: float = 1.0) -> Damage:
    """Another file is renamed to this name: an inode that the look has not listed."""

    def do(root: Path) -> None:
        content = (root / name).read_bytes()
        (root / "swapped-in").write_bytes(content[: int(len(content) * part)])
        (root / "swapped-in").rename(root / name)

    return do


def _amid(name: str, tree: str, path: str, damage: Damage, *, report: str = "") -> Case:
    """The save is neither good nor bad at that moment, and the older one stands."""
    return Case(
        name, W, tree, damage, Status.UNKNOWN, Reason.GONE, Pick.OLDER, during=path, report=report
    )


_OPTIMIZER, _RANK = f"{HF}/optimizer.pt", f"{DCP}/__0_0.distcp"
DURING = (
    *(
        case
        for tree, path in (
            ("torch", PT), ("torch-legacy", PT), ("safetensors", SHARD), ("hf", _OPTIMIZER),
            ("dcp", _RANK), ("megatron", f"{ITER}/metadata.json"),
            ("deepspeed-2", f"{DS}/{ZERO.format(1)}"), ("lightning", "epoch=10-step=1000.ckpt"),
            ("keras", "step-1000.weights.h5"),
            ("orbax", "1000/default/ocdbt.process_1/manifest.ocdbt"),
            ("tf", "ckpt-1000.data-00000-of-00001"), ("torchtune", "epoch_10/recipe_state.pt"),
        )
        for case in (
            _amid("another file takes its name", tree, path, swapped_in(path)),
            _amid("it is written over in place", tree, path, zeros(path)),
            _amid("it is deleted", tree, path, lost(path)),
        )
    ),
    _amid("it is cut to nothing, as a writer begins anew", "torch", PT, emptied(PT)),
)  # fmt: skip


def _names(tree: str, older: str, newer: str) -> Damage:
    of = TREES[tree]
    return both(renamed(of.key_of(OLD), older), renamed(of.key_of(NEW), newer))


def _named(tree: str, older: str, newer: str, *, report: str) -> Case:
    """Both saves whole, under other names."""
    name = f"they are named {older} and {newer}"
    return Case(name, N, tree, _names(tree, older, newer), GOOD, Reason.OK, Pick.NEWER, newer,
                report, takes=newer)  # fmt: skip


REPORTED = (
    _named("accelerate", "checkpoint_9", "checkpoint_10", report="huggingface/accelerate#1163"),
    _named("dcp", "step_500", "step_2500", report="strands-labs/robots#3165"),
    _named("torch", "0900000.pt", "1000000.pt", report="isaac-sim/IsaacLab#3933"),
    _named("torch", "model_9900.pt", "model_10000.pt", report="huggingface/transformers#27138"),
    _named("torch", "0900.pt", "1000.pt", report="allenai/open-instruct#541"),
    _named("torch", "00900.pt", "1000.pt", report="nvidia-cosmos/cosmos-rl#232"),
    fine("the newest directory has the oldest time", N, "hf", newer_by(HF, -90_000),
         report="huggingface/transformers#26961"),
    Case("a directory whose name is a number holds a torn file", K, "safetensors",
         both(_names("safetensors", "900", "1000"),
              cut("1000/model-00002-of-00002.safetensors")), TORN, Reason.TRUNCATED,
         key="1000", takes="900", report="vllm-project/speculators#739"),
    Case("the link was moved before the files were there", Kind.POINTER, "composer",
         both(lost("ep10-ba1000-rank0.pt", "ep10-ba1000-rank1.pt"),
              linked("latest-rank0.pt", "ep10-ba1000-rank0.pt")), None,
         report="mosaicml/composer#3376"),
    fine("the link has an absolute path of another machine", Kind.POINTER, "composer",
         linked("latest-rank0.pt", "/data/run/ep10-ba1000-rank0.pt"),
         report="deepseek-ai/DeepSpec#74"),
    Case("a cached mount lost the newest file's end", K, "hf", cut(f"{HF}/model.safetensors"),
         TORN, Reason.TRUNCATED, report="axolotl-ai-cloud/axolotl#3948"),
)  # fmt: skip

CASES = (*ROTATED, *FULL, *DURING, *REPORTED)
