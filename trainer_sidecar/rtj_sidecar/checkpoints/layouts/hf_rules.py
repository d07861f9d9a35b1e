"""Which files a Hugging Face Trainer directory must hold, by their names. Pure.

The Trainer resumes with exit code 0 where optimizer, scheduler or RNG state are missing, so their
presence is demanded here. Names: transformers/trainer.py 5.24.0, accelerate/utils/fsdp_utils.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rtj_sidecar.checkpoints.layouts.common import missing_rank_file
from rtj_sidecar.checkpoints.layouts.dcp_rules import MARKER
from rtj_sidecar.checkpoints.layouts.deepspeed_rules import is_ours as by_deepspeed
from rtj_sidecar.checkpoints.layouts.grouping import name_of

STATE = "trainer_state.json"
RNG = re.compile(r"^rng_state(?:_(\d+))?\.pth$")
MODEL = re.compile(
    r"^(model(-\d+-of-\d+)?\.safetensors|pytorch_model(_fsdp)?(-\d+-of-\d+)?\.bin"
    r"|adapter_model\.(safetensors|bin)|model\.safetensors\.index\.json"
    r"|pytorch_model\.bin\.index\.json)$"
)
TORCH = re.compile(
    r"^(optimizer|scheduler|training_args|pytorch_model|pytorch_model_fsdp|adapter_model"
    r"|pytorch_model_fsdp_\d+_rank\d+|optimizer_\d+_rank\d+)\.bin$"
)
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_ADAPTERS = {"adapter_model.safetensors", "adapter_model.bin"}
_WHOLE = {"model.safetensors", "pytorch_model.bin", "pytorch_model_fsdp.bin", *_ADAPTERS}
_OPTIMIZER = {"optimizer.pt", "optimizer.bin"}
_SCHEDULER = {"scheduler.pt", "scheduler.bin"}
_FIRST_RANKS = {STATE, "training_args.bin", "config.json", *_OPTIMIZER, *_SCHEDULER, *_WHOLE}


_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
_ACCESSORY = re.compile(
    r"^(training_args|optimizer.*|scheduler.*|scaler.*|rng_state.*|random_states.*)\.(bin|pt|pth)$"
)
_WEIGHTS_BYTES, _WEIGHTS_DEPTH = 1 << 10, 2


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asked for, as `training_args.bin` tells it; and what DeepSpeed's files say."""

    model_only: bool = False
    fp16: bool = False
    deepspeed_scheduler: bool | None = None
    """Whether DeepSpeed's own files hold a scheduler; None where there are none or unreadable."""


def missing(
    inner: Mapping[str, int], asked: Asked, *, world_size: int | None, first: bool = True
) -> str | None:
    """What is missing among the paths (relative to the directory, with sizes in bytes); None where
    all is there, or where only `names_its_model` is false: then nobody can tell.

    `first` false: these are not the files of all ranks, and those of others may be absent.
    """
    if problem := _model(inner):
        return problem
    if asked.model_only:
        return None
    if not has_optimizer(inner):
        return "optimizer.pt is missing"
    if not has_scheduler(inner, asked):
        return "scheduler.pt is missing"
    if first and (problem := missing_rank_file(inner, world_size=world_size)):
        return problem
    return missing_rng(inner, world_size, gapless=first)


def _model(inner: Mapping[str, int]) -> str | None:
    names = set(inner)
    adapters = [path for path in inner if name_of(path) in _ADAPTERS and path.count("/") <= 1]
    for path in adapters:
        config = path.removesuffix(name_of(path)) + "adapter_config.json"
        if config not in names:
            return f"{config} is missing"
    sharded = any(path.startswith("pytorch_model_fsdp_") or by_deepspeed(path) for path in inner)
    if adapters or sharded or names & _WHOLE or names & set(INDEXES):
        return None
    # `save_pretrained` writes its configuration beside the weights.
    return "no model file" if "config.json" in names and not _has_weights(inner) else None


def names_its_model(inner: Mapping[str, int]) -> bool:
    """Whether a file is there that holds, or may well hold, the model: a Trainer of another
    library (sentence-transformers, adapters) saves it under names of its own."""
    named = any(path in INDEXES or name_of(path) in _WHOLE for path in inner)
    sharded = any(path.startswith("pytorch_model_fsdp_") or by_deepspeed(path) for path in inner)
    return named or sharded or _has_weights(inner)


def _has_weights(inner: Mapping[str, int]) -> bool:
    return any(
        path.endswith(_WEIGHTS)
        and size >= _WEIGHTS_BYTES
        and path.count("/") <= _WEIGHTS_DEPTH
        and not _ACCESSORY.match(name_of(path))
        for path, size in inner.items()
    )


def has_optimizer(inner: Collection[str]) -> bool:
    """By name: the optimizer's own file, FSDP's directory or rank files, DeepSpeed's states."""
    return bool(_OPTIMIZER & set(inner)) or any(
        path.startswith("optimizer_") or by_deepspeed(path) for path in inner
    )


def has_scheduler(inner: Collection[str], asked: Asked) -> bool:
    return bool(_SCHEDULER & set(inner)) or asked.deepspeed_scheduler is True


def missing_rng(
    names: Collection[str], world_size: int | None, *, gapless: bool = True
) -> str | None:
    """`world_size`: processes of the job that made it, None where it is not known; `gapless`: all
    ranks' files are here, so none is missing below the last."""
    ranks = {int(m.group(1)) for name in names if (m := RNG.match(name)) and m.group(1)}
    if not ranks:
        if "rng_state.pth" not in names:
            return "rng_state.pth is missing"
        if world_size is not None and world_size > 1:
            return f"rng_state.pth is of one process, the job has {world_size}"
        return None
    if not gapless:
        return None
    for rank in range(max(world_size or 0, max(ranks) + 1)):
        if rank not in ranks:
            return f"rng_state_{rank}.pth is missing"
    return None


def is_later_rank(inner: Collection[str]) -> bool:
    """Whether no file is one that the first rank alone writes: RNG state and own shards at most."""
    return not any(
        path in _FIRST_RANKS
        or path in INDEXES
        or name_of(path) == MARKER
        or name_of(path).startswith(("__0_", "mp_rank_00_"))
        for path in inner
    )
