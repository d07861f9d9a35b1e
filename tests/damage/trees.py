"""Two good saves of each layout, the older with number 900 and the newer with 1000 (or epochs 9 and
10): sorted as text the older would be taken.

Made by hand; how far they are compared with real ones is told in `kit/handmade.py`. All files look
100 s old, the newer save's 50 s younger than the older's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kit.handmade import dcp_directory, safetensors_file, safetensors_index, torch_file
from kit.handmade_grid import (
    dcp_hf,
    dlrover,
    megatron_dist,
    megatron_legacy,
    nemo_two,
    nvrx,
)
from kit.handmade_others import (
    composer,
    fastai,
    keras_backup,
    keras_weights,
    legacy_file,
    lightning,
    lightning_sharded,
    orbax,
    tf_checkpoint,
    torchtune,
)
from kit.handmade_sharded import accelerate, accelerate_fsdp, deepspeed_tag, hf_trainer

OLD, NEW = 900, 1000
_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Tree:
    """`build(root, n)` writes the save numbered `n`. `key`: its root key where `{n}` is the number,
    `{n7}` the same in seven digits and `{e}` the epoch."""

    layout: str
    build: Callable[[Path, int], None]
    key: str
    biggest: str
    """Its largest file that a framework loads."""
    hole_is_seen: bool = True
    """Whether the format has a checksum over what its tensors are."""
    world_size: int | None = 2
    weights_only: bool = False
    include: tuple[str, ...] = ()

    def key_of(self, number: int) -> str:
        return named(self.key, number)

    def path_of(self, number: int) -> str:
        return named(self.biggest, number)


def named(text: str, number: int) -> str:
    forms = {"{n}": str(number), "{n7}": f"{number:07d}", "{e}": str(number // 100)}
    for mark, form in forms.items():
        text = text.replace(mark, form)
    return text


def torch_state(step: int) -> dict[str, object]:
    return {"model": {}, "optimizer": {"state": {0: 1}}, "step": step, "epoch": step // 100}


Build = Callable[[Path, int], None]


def _within(name: str, build: Callable[..., None], **options: object) -> Build:
    """A builder of one directory, which gets the step where it asks for one."""

    def do(root: Path, number: int) -> None:
        extra = {"step": number} if options.get("step") else {}
        build(root / named(name, number), **{**options, **extra})

    return do


def _pointing(build: Build, path: str, text: str) -> Build:
    def do(root: Path, number: int) -> None:
        build(root, number)
        (root / path).write_text(named(text, number))

    return do


def _sharded_safetensors(root: Path, number: int) -> None:
    place = root / f"step_{number}"
    shards = [f"model-0000{at}-of-00002.safetensors" for at in (1, 2)]
    for at, shard in enumerate(shards):
        safetensors_file(place / shard, f"w{at}", size=200)
    index = place / "model.safetensors.index.json"
    safetensors_index(index, {f"w{at}": shard for at, shard in enumerate(shards)}, size=200)


_DCP: dict[str, object] = {"model.w": None, "optim.m": None}
_ITER = "iter_{n7}"
TREES: dict[str, Tree] = {
    "torch": Tree(
        "torch",
        lambda root, n: torch_file(root / f"ckpt_{n}.pt", torch_state(n)),
        "ckpt_{n}.pt", "ckpt_{n}.pt",
    ),
    "torch-legacy": Tree(
        "torch",
        lambda root, n: legacy_file(root / f"ckpt_{n}.pt", torch_state(n)),
        "ckpt_{n}.pt", "ckpt_{n}.pt", hole_is_seen=False,
    ),
    "safetensors": Tree(
        "safetensors", _sharded_safetensors, "step_{n}",
        "step_{n}/model-00002-of-00002.safetensors", hole_is_seen=False, weights_only=True,
    ),
    "dcp": Tree(
        "dcp", lambda root, n: dcp_directory(root / f"step-{n}", {**_DCP, "step": n}),
        "step-{n}", "step-{n}/__1_0.distcp",
    ),
    "hf": Tree(
        "hf-trainer", _within("checkpoint-{n}", hf_trainer, step=1, ranks=2), "checkpoint-{n}",
        "checkpoint-{n}/optimizer.pt",
    ),
    "hf-peft": Tree(
        "hf-trainer", _within("checkpoint-{n}", hf_trainer, step=1, kind="peft"),
        "checkpoint-{n}", "checkpoint-{n}/optimizer.pt", world_size=1,
    ),
    "hf-deepspeed": Tree(
        "hf-trainer", _within("checkpoint-{n}", hf_trainer, step=1, ranks=2, kind="deepspeed"),
        "checkpoint-{n}",
        "checkpoint-{n}/global_step{n}/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
    ),
    "hf-fsdp": Tree(
        "hf-trainer", _within("checkpoint-{n}", hf_trainer, step=1, ranks=2, kind="fsdp"),
        "checkpoint-{n}", "checkpoint-{n}/optimizer_0/__1_0.distcp",
    ),
    "accelerate": Tree(
        "accelerate", _within("step_{n}", accelerate, ranks=2), "step_{n}",
        "step_{n}/optimizer.bin",
    ),
    "accelerate-fsdp": Tree(
        "accelerate", _within("step_{n}", accelerate_fsdp), "step_{n}",
        "step_{n}/optimizer_0/__1_0.distcp",
    ),
    "lightning": Tree(
        "lightning",
        lambda root, n: lightning(root / f"epoch={n // 100}-step={n}.ckpt", step=n),
        "epoch={e}-step={n}.ckpt", "epoch={e}-step={n}.ckpt",
    ),
    "lightning-sharded": Tree(
        "lightning", _within("epoch={e}-step={n}.ckpt", lightning_sharded, step=1),
        "epoch={e}-step={n}.ckpt", "epoch={e}-step={n}.ckpt/__1_0.distcp",
    ),
    "deepspeed-2": Tree(
        "deepspeed",
        _pointing(
            _within("global_step{n}", deepspeed_tag, step=1, stage=2), "latest", "global_step{n}"
        ),
        "global_step{n}", "global_step{n}/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
    ),
    "deepspeed-3": Tree(
        "deepspeed",
        _pointing(
            _within("global_step{n}", deepspeed_tag, step=1, stage=3), "latest", "global_step{n}"
        ),
        "global_step{n}", "global_step{n}/zero_pp_rank_1_mp_rank_00_model_states.pt",
    ),
    "megatron": Tree(
        "megatron",
        _pointing(
            _within(_ITER, megatron_dist, step=1), "latest_checkpointed_iteration.txt", "{n}"
        ),
        _ITER, "iter_{n7}/__1_0.distcp",
    ),
    "megatron-legacy": Tree(
        "megatron",
        _pointing(
            _within(_ITER, megatron_legacy, step=1), "latest_checkpointed_iteration.txt", "{n}"
        ),
        _ITER, "iter_{n7}/mp_rank_01/model_optim_rng.pt",
    ),
    "nemo": Tree(
        "nemo", _within("step_{n}", nemo_two), "step_{n}", "step_{n}/weights/__1_0.distcp"
    ),
    "dcp-hf": Tree(
        "dcp-hf", _within("step-{n}", dcp_hf), "step-{n}",
        "step-{n}/model-00001-of-00001.safetensors", hole_is_seen=False, weights_only=True,
    ),
    "nvrx": Tree(
        "nvrx-local", lambda root, n: nvrx(root, step=n), "run/0/iter_{n7}_0_local.pt",
        "run/1/iter_{n7}_1_local.pt",
    ),
    "dlrover": Tree(
        "dlrover", lambda root, n: dlrover(root, step=n, ranks=2), "{n}", "{n}/rank_1.pt"
    ),
    "composer": Tree(
        "composer", lambda root, n: composer(root, epoch=n // 100, batch=n),
        "ep{e}-ba{n}-rank0.pt", "ep{e}-ba{n}-rank0.pt",
    ),
    "torchtune": Tree(
        "torchtune", lambda root, n: torchtune(root / f"epoch_{n // 100}", epoch=n // 100),
        "epoch_{e}", "epoch_{e}/recipe_state.pt",
    ),
    "fastai": Tree(
        "fastai", lambda root, n: fastai(root / "models" / f"m_{n // 100}.pth"),
        "models/m_{e}.pth", "models/m_{e}.pth",
    ),
    "orbax": Tree(
        "orbax", _within("{n}", orbax), "{n}", "{n}/default/ocdbt.process_1/manifest.ocdbt"
    ),
    "tf": Tree(
        "tf-checkpoint", lambda root, n: tf_checkpoint(root / f"ckpt-{n}", step=n),
        "ckpt-{n}.index", "ckpt-{n}.data-00000-of-00001",
    ),
    "keras": Tree(
        "keras", lambda root, n: keras_weights(root / f"step-{n}.weights.h5", step=n),
        "step-{n}.weights.h5", "step-{n}.weights.h5", hole_is_seen=False,
    ),
    "generic": Tree(
        "generic",
        lambda root, n: torch_file(root / f"save_{n}" / "all.dat", torch_state(n)),
        "save_{n}", "save_{n}/all.dat", include=("save_*/",),
    ),
}  # fmt: skip


def made(root: Path, tree: Tree) -> None:
    """Both saves; the files of each as old as if it had been written in one second."""
    for number, age in ((OLD, 150), (NEW, 100)):
        before = set(root.rglob("*"))
        tree.build(root, number)
        for path in root.rglob("*"):
            if path.is_file() and not path.is_symlink() and path not in before:
                when = path.stat().st_mtime_ns - age * _SECOND
                os.utime(path, ns=(when, when))


def reused(root: Path) -> None:
    """One directory that DCP writes over at each save."""
    dcp_directory(root / "state", {**_DCP, "step": 5})


def backup(root: Path) -> None:
    """What Keras's BackupAndRestore writes over at each epoch."""
    keras_backup(root, epoch=4)
